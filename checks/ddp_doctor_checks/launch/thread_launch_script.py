"""What a script shows of DDP103: its threads that join a job, or start one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.script import ThreadedStart
from ddp_doctor.model import Confidence, Facts, Fix, Severity

NEEDS = "code change, job restart"


def ranks_of_their_own(title: str, count: int = 2) -> Fix:
    """Instead of starting ranks from a thread: torchrun as a child process, where the thread starts now."""
    return Fix(
        title=title,
        commands=(
            "import subprocess, sys",
            "",
            "subprocess.Popen([",
            f'    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node={count}", "train.py",',
            "])",
        ),
        needs=NEEDS,
    )


def from_script(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `ThreadLaunch.finding`, one set for each origin of threads."""
    for start in facts[ThreadedStart]:
        if start.what == "launcher":
            yield _launcher(start)
        elif start.rank_from == "each-thread":
            yield _ranks(start)
        else:
            yield _one_rank(start)


def _ranks(start: ThreadedStart) -> dict[str, Any]:
    script = start.at.path
    count = len(start.ranks) if start.proven else 0
    shown = f"{count} ranks" if count else "several ranks"
    rewrite = (
        Fix(title="start one process per rank", diff=start.rewrite, needs=NEEDS)
        if start.rewrite
        else Fix(
            title="start one process per rank: delete the threads, and in their place",
            commands=_lines(start),
            needs=NEEDS,
        )
    )
    return {
        "summary": f"{shown} are started as threads of one process ({start.how}, {start.at.source})",
        "because": "torch.distributed keeps one default group per process: each thread opens a group of its own and waits "
        "for keys that the others never write, until the timeout blames the network",
        "evidence": [
            start.evidence(),
            start.call.evidence(start.kind(), f"each thread runs {start.function}, which joins the default group"),
        ],
        "fixes": [
            rewrite,
            Fix(
                title='or delete the threads, read rank and world size from the environment (init_method="env://"), and',
                commands=(f"torchrun --standalone --nproc-per-node={count or 2} {script}",),
                needs=NEEDS,
            ),
        ],
        "severity": Severity.ERROR,
        "confidence": Confidence.CERTAIN if start.proven else Confidence.LIKELY,
    }


def _lines(start: ThreadedStart) -> tuple[str, ...]:
    if start.lines:
        return start.lines
    count = len(start.ranks) if start.proven else "world_size"
    return (
        "import torch.multiprocessing as mp",
        "",
        f"def worker(rank, world_size):  # at the top level of the file: what {start.function} does now",
        "    ...",
        "",
        'if __name__ == "__main__":',
        f"    mp.spawn(worker, args=({count},), nprocs={count})",
    )


def _launcher(start: ThreadedStart) -> dict[str, Any]:
    script = start.at.path
    fixes = [
        ranks_of_their_own(
            "let a process of its own start the ranks: put the training into a script, and where the thread starts now"
        )
    ]
    if start.rewrite:
        fixes.insert(0, Fix(title="start it on the main thread", diff=start.rewrite, needs=NEEDS))
    else:
        fixes.append(
            Fix(
                title="or start the ranks before the program, and train",
                commands=(f"torchrun --standalone --nproc-per-node=2 {script}",),
                needs=NEEDS,
            )
        )
    return {
        "summary": f"{start.launcher}, which starts the other ranks, runs off the main thread ({start.how}, {start.at.source})",
        "because": "the launcher starts the program again, or forks it, and every copy must reach this call by itself; what "
        "a request, a message or a button set off happens in the first one only. Launchers also set signal handlers, which "
        "only the main thread may",
        "evidence": [start.evidence(), start.call.evidence(start.kind(), f"in {start.function}")],
        "fixes": fixes,
        "severity": Severity.WARNING,
        "confidence": Confidence.CERTAIN if start.proven and start.launcher != "Trainer.fit" else Confidence.LIKELY,
    }


def _one_rank(start: ThreadedStart) -> dict[str, Any]:
    return {
        "summary": f"a rank joins its job in a thread ({start.how}, {start.at.source})",
        "because": "one rank per process may do so, as Ray Train's workers do; two threads of one process may not",
        "evidence": [start.evidence(), start.call.evidence(start.kind(), f"in {start.function}")],
        "fixes": [
            Fix(
                title="nothing, as long as each process holds one rank; start them with",
                commands=(f"torchrun --standalone --nproc-per-node=2 {start.at.path}",),
                needs="nothing",
            )
        ],
        "severity": Severity.NOTE,
        "confidence": Confidence.LIKELY,
    }
