"""DDP103: two or more ranks were started as threads of one process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.job import JobRank, Process
from ddp_doctor.facts.process import RankThread, Stack
from ddp_doctor.facts.script import ThreadedStart
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.launch.thread_launch_live import from_job, launchers_in_threads
from ddp_doctor_checks.launch.thread_launch_meeting import from_one_thread, ranks_in_threads
from ddp_doctor_checks.launch.thread_launch_script import from_script


class ThreadLaunch(Check):
    id, name = "DDP103", "thread-launch"
    title = "Ranks started as threads of one process"
    needs = ((RankThread, ThreadedStart, Attendee),)
    also_reads = (JobRank, Process, Stack)
    acts_at = INIT | {Stage.FIRST_COLLECTIVE}
    explains = ("DDP101",)
    told = Told(
        because="torch.distributed keeps one default group per process and launchers set signal handlers, which Python "
        "allows on the main thread only; ranks or launchers in threads wait for each other or fail",
        fixes=(
            Fix(
                title="call the launcher from the main thread, with one process per rank",
                commands=('if __name__ == "__main__":', "    torch.multiprocessing.spawn(worker, nprocs=2)"),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for found in from_script(facts):
            yield self.finding(**found)
        for arguments, where, ranks in ranks_in_threads(facts):
            yield self.finding(**arguments, fixes=start_processes(where, ranks))
        for met in from_one_thread(facts):
            yield self.finding(**met)
        for live in from_job(facts):
            yield self.finding(**live, fixes=start_processes(live["evidence"][0].value, len(live["ranks"])))
        for launcher in launchers_in_threads(facts):
            yield self.finding(**launcher)
        processes: dict[object, list[RankThread]] = defaultdict(list)
        for thread in facts[RankThread]:
            # one group of its own in a thread is normal: asynchronous checkpoints make one
            if thread.in_init and thread.group == "default":
                processes[thread.process_key].append(thread)
        for threads in processes.values():
            confidence = _confidence(threads)
            if confidence is None:
                continue
            first = threads[0]
            where = f"PID {first.subject.pid}" if first.subject.pid else f"the one that wrote {first.process}"
            yield self.finding(
                f"{len(threads)} ranks run as threads of one process, {where}",
                because="torch.distributed keeps one default group per process: the second thread opened a second group "
                "(its store keys start with /default_pg/1), so each waits for keys that the other never writes. It ends "
                "only with the timeout, 10 or 30 minutes by default, and then as an error that blames the network",
                evidence=[thread.evidence() for thread in threads],
                confidence=confidence,
                fixes=start_processes(next((thread.where for thread in threads if thread.where), ""), len(threads)),
                ranks=[thread.rank for thread in threads if thread.rank is not None],
            )


def _confidence(threads: list[RankThread]) -> Confidence | None:
    """Certain where two ranks are seen; likely where two groups of one process wait and the ranks are not told.

    A log alone stays likely: two processes that share it, one of which tried twice, write the same keys.
    """
    ranks = {thread.rank for thread in threads if thread.rank is not None}
    groups = {thread.group_number for thread in threads if thread.group_number is not None}
    alive = all(not thread.ended for thread in threads)
    if alive and len({thread.subject.thread for thread in threads}) >= 2:
        return Confidence.CERTAIN if len(ranks) >= 2 else Confidence.LIKELY if not ranks else None
    threads_died = len({thread.thread_name for thread in threads if thread.thread_name}) >= 2
    if len(groups) < 2:
        # tracebacks of two threads: one may have died before it wrote a key, of a port that was taken, say
        return Confidence.LIKELY if threads_died and not alive else None
    retried = len({thread.waits_for.rsplit("/", 1)[-1] for thread in threads}) < 2
    return Confidence.LIKELY if threads_died or not retried else Confidence.POSSIBLE


def start_processes(where: str, ranks: int) -> list[Fix]:
    """The two rewrites that give each rank a process; torchrun on an unchanged thread script would not help."""
    place, _, function = where.rpartition(" ")
    script = place.rsplit(":", 1)[0] or "train.py"
    worker = function if function.isidentifier() else "worker"
    return [
        Fix(
            title="start one process per rank: delete the threads, and call the same function as",
            commands=(
                'if __name__ == "__main__":',
                f"    torch.multiprocessing.spawn({worker}, nprocs={ranks})",
            ),
            needs="code change, job restart",
        ),
        Fix(
            title='or let a launcher start them: read RANK from the environment (init_method="env://", no threads), and',
            commands=(f"torchrun --standalone --nproc-per-node={ranks} {script}",),
            needs="code change, job restart",
        ),
    ]
