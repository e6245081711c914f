"""The process beside a watched command that looks at its ranks: it finds when they come to init, and reports a hang."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence

from ddp_doctor.collect import collect
from ddp_doctor.examine import Selection
from ddp_doctor.facts.job import JobView, Process, jobs
from ddp_doctor.host import Host
from ddp_doctor.interpret.job import interpret as interpret_job
from ddp_doctor.model import Facts, Report
from ddp_doctor.probes import job_nccl
from ddp_doctor.probes.job import job_probes
from ddp_doctor.running_job import examine_running
from ddp_doctor.watching.standing import Look, Standing, first_look, idle, in_init, look_at, pause_between_looks, settle

SETTLED_SECONDS = 30.0
"""Between two looks for new ranks once those that were there have initialised."""
MOST_SEATED_SEARCHES = 1
RECKONED = ("refused", "no-answer", "handshake")
"""What a rank does before it has a thread of torch.distributed that tells when it came to init."""
Identity = tuple[str, int | None, int | None]


class Observer:
    """Looks at what the command started, until somebody ends this process or the job is hung and `report` says so."""

    def __init__(
        self,
        pids: Callable[[], list[int]],
        after: float,
        *,
        report: Callable[[Report, Standing], bool],
        note: Callable[[str], None],
        selection: Selection | None = None,
        timeout: float = 60.0,
        probe_timeout: float = 5.0,
        py_spy: tuple[str, ...] = (),
    ) -> None:
        """`pids` are the processes below which the ranks are. `report` says whether what it printed was the last word."""
        self._pids = pids
        self._after = after
        self._report = report
        self._note = note
        self._selection = selection
        self._timeout = timeout
        self._probe_timeout = probe_timeout
        self._py_spy = py_spy
        self._began: dict[Identity, float] = {}
        self._idle: dict[Identity, float] = {}
        self._settled: set[Identity] = set()
        self._told_slow: set[Identity] = set()
        self._not_before = 0.0
        self._stacks_at = time.monotonic() + 1.0
        self._stacks_pause = 1.0
        # each stack below seats costs one of them, and the look at a hang has to have some left
        self._stacks_left = MOST_SEATED_SEARCHES if py_spy else sys.maxsize

    def run(self) -> None:
        """Returns when the last word was said."""
        while True:
            began, view, members = self._next()
            left = max(first_look(began, self._after), self._not_before) - time.monotonic()
            if view is None or left > 0:
                time.sleep(max(0.05, left) if view is not None else self._interval(members))
                if view is None:
                    continue
            if self._look(began, view):
                return

    def _interval(self, members: Sequence[Identity]) -> float:
        if members and self._settled.issuperset(members):
            return SETTLED_SECONDS
        return min(max(self._after / 20, 0.5), 5.0)

    def _next(self) -> tuple[float, JobView | None, Sequence[Identity]]:
        """When the next job to be looked at came to init, that job, and all the ranks there are."""
        facts = self._observe()
        best: tuple[float, JobView | None] = (0.0, None)
        members: list[Identity] = []
        for view in jobs(facts):
            mine = [rank.subject.process for rank in (*view.ranks, *view.others)]
            members += mine
            began = self._began_at(view)
            if began is not None and not self._settled.issuperset(mine) and (best[1] is None or began < best[0]):
                best = (began, view)
        return (*best, members)

    def _began_at(self, view: JobView) -> float | None:
        now = time.monotonic()
        begun = []
        for rank in (*view.ranks, *view.others):
            if in_init(rank):
                ago = rank.since_s if rank.call == "init_process_group" and rank.doing not in RECKONED else None
                begun.append(self._began.setdefault(rank.subject.process, now - (ago or 0.0)))
        if not begun and any(rank.rank is not None or rank.world_size for rank in view.ranks):
            for rank in view.ranks:
                if idle(view.ranks):
                    begun.append(self._idle.setdefault(rank.subject.process, now))
                elif rank.has_stack:
                    self._idle.pop(rank.subject.process, None)
                elif rank.subject.process in self._idle:
                    begun.append(self._idle[rank.subject.process])
        return min(begun) if begun else None

    def _observe(self) -> Facts:
        """The ranks below the command, cheaply: stacks only where nothing else told of init for a while."""
        host = Host(self._timeout, probe_seconds=self._probe_timeout)
        given = job_probes(self._pids(), every=False, stacks=True, native=False, py_spy=self._py_spy)
        probes = {probe.name: probe for probe in given}
        wanted = [probes["processes"]]
        facts = collect(host, wanted, Facts()).facts
        facts = facts.plus(interpret_job(facts))
        waits = any(in_init(rank) for view in jobs(facts) for rank in (*view.ranks, *view.others))
        search = not waits and self._stacks_left > 0 and time.monotonic() >= self._stacks_at
        if search and any(process.torch or process.nccl for process in facts[Process]):
            self._stacks_left -= 1
            facts = collect(host, [*wanted, probes["stacks"], probes[job_nccl.PROBE.name]], Facts()).facts
            facts = facts.plus(interpret_job(facts))
            self._stacks_pause = min(self._stacks_pause * 2, max(1.0, self._after / 4), SETTLED_SECONDS)
            self._stacks_at = time.monotonic() + self._stacks_pause
        host.close()
        return facts

    def _look(self, began: float, view: JobView) -> bool:
        """Look at one job until it is settled; whether the last word was said."""
        members = [rank.subject.process for rank in (*view.ranks, *view.others)]
        pids = [rank.subject.pid for rank in (*view.ranks, *view.others) if rank.subject.pid is not None]
        seen = settle(lambda: self._examined(pids), self._after, note=self._note, began=began)
        last = False
        if seen.standing is Standing.HUNG or (
            seen.standing is Standing.SLOW and not self._told_slow.issuperset(members)
        ):
            last = self._report(seen.report, seen.standing)
        if seen.standing is Standing.SLOW:
            self._told_slow.update(members)
        if seen.standing in (Standing.EARLY, Standing.SLOW):
            self._not_before = time.monotonic() + pause_between_looks(self._after)
        else:
            self._settled.update(members)
        return last

    def _examined(self, pids: Iterable[int]) -> Look:
        host = Host(self._timeout, probe_seconds=self._probe_timeout)
        return look_at(examine_running("watch", host, pids, selection=self._selection, py_spy=self._py_spy))
