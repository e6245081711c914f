"""What a meeting before init shows of DDP103: threads of one process that are about to join as ranks, or to start some."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.model import Confidence, Facts, Fix, Severity
from ddp_doctor_checks.launch.thread_launch_script import ranks_of_their_own

WHY = (
    "torch.distributed keeps one default group per process: each thread opens a group of its own and waits for keys that "
    "the others never write, until the timeout blames the network"
)


def ranks_in_threads(facts: Facts) -> Iterator[tuple[dict[str, Any], str, int]]:
    """Arguments for `ThreadLaunch.finding` without fixes, where the threads were asked, and how many they are."""
    processes: dict[object, list[Attendee]] = defaultdict(list)
    for each in facts[Attendee]:
        if each.rank is not None:
            processes[each.subject.process].append(each)
    for threads in processes.values():
        ranks = sorted({each.rank for each in threads if each.rank is not None})
        if len({each.subject.thread for each in threads}) > 1:
            yield (
                {
                    "summary": f"{len(threads)} threads of one process, PID {threads[0].subject.pid}, are about to join as "
                    f"{'ranks ' + ', '.join(map(str, ranks)) if len(ranks) > 1 else f'the same rank {ranks[0]}'}",
                    "because": WHY,
                    "evidence": [each.evidence() for each in threads],
                    "confidence": Confidence.CERTAIN,
                    "ranks": ranks,
                },
                threads[0].where,
                max(len(threads), threads[0].world_size or 0),
            )


def from_one_thread(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for what one thread of a process shows: a launcher in it is a warning, a rank in it a note."""
    by_process: dict[object, list[Attendee]] = defaultdict(list)
    for each in facts[Attendee]:
        by_process[each.subject.process].append(each)
    alone = [threads[0] for threads in by_process.values() if len(threads) == 1 and not threads[0].main_thread]
    starters = [each for each in alone if each.rank is None and each.world_size is None]
    for each in starters:
        yield {
            "summary": f'this process has no rank and is about to start the others off the main thread ("{each.thread_name}")',
            "because": "a launcher starts the program again, or forks it, and every copy must reach this call by itself; what "
            "a request, a message or a button set off happens in the first one only. Launchers also set signal handlers, "
            "which only the main thread may",
            "evidence": [each.evidence()],
            "fixes": [
                ranks_of_their_own(
                    "let a process of its own start the ranks: put the training into a script, and where the thread "
                    "starts now"
                )
            ],
            "severity": Severity.WARNING,
            "confidence": Confidence.LIKELY,
        }
    ranks = [each for each in alone if each.rank is not None]
    if ranks:
        yield {
            "summary": f"{ranks[0].name}{' and others join' if len(ranks) > 1 else ' joins'} its job in a thread",
            "because": "one rank per process may do so, as Ray Train's workers do; two threads of one process may not",
            "evidence": [each.evidence() for each in ranks[:4]],
            "fixes": [
                Fix(
                    title="nothing, as long as each process holds one rank; start them with",
                    commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                    needs="nothing",
                )
            ],
            "severity": Severity.NOTE,
            "confidence": Confidence.CERTAIN,
            "ranks": [each.rank for each in ranks if each.rank is not None],
        }
