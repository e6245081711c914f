"""Runs probes side by side, each when the facts it builds on are there, all within the host's deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Check, Fact, Facts, ProbeRun, ProbeStatus, Subject

Risk = Literal["none", "network", "gpu"]
Observation = Fact | Absent
GRACE_SECONDS = 1.2
SLICE_SECONDS = 0.2


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One source of evidence. `take` observes in the system's own words and never judges.

    `gives` are the kinds of facts it yields (or their `Absent`), `builds_on` the kinds it reads first; it starts when
    every probe that gives those has ended. `seconds` is its own deadline where `--probe-timeout` is too short or long.
    A probe of risk `gpu` does not start once an earlier worker could not be killed. One that `separates` finding ids
    runs only in a second round, when the verdict hangs between at least two of them.
    """

    name: str
    gives: tuple[type[Fact], ...]
    take: Callable[[Host, Facts], Iterable[Observation]]
    builds_on: tuple[type[Fact], ...] = ()
    risk: Risk = "none"
    seconds: float | None = None
    separates: tuple[str, ...] = ()


def wanted_kinds(checks: Iterable[Check]) -> set[type[Fact]]:
    """Every kind of fact some check reads."""
    kinds: set[type[Fact]] = set()
    for check in checks:
        kinds.update(check.also_reads)
        for need in check.needs:
            kinds.update(need if isinstance(need, tuple) else (need,))
    return kinds


def closure(probes: Sequence[Probe], kinds: Iterable[type[Fact]]) -> tuple[Probe, ...]:
    """The probes that give these kinds, and those that they build on, in their given order."""
    wanted = set(kinds)
    chosen: set[str] = set()
    grown = True
    while grown:
        grown = False
        for probe in probes:
            if probe.name not in chosen and wanted.intersection(probe.gives):
                chosen.add(probe.name)
                wanted.update(probe.builds_on)
                grown = True
    return tuple(probe for probe in probes if probe.name in chosen)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes brought: facts, and how each probe went."""

    facts: Facts
    runs: tuple[ProbeRun, ...]


def collect(
    host: Host, probes: Sequence[Probe], known: Facts, progress: Callable[[tuple[str, ...]], None] | None = None
) -> Collected:
    """Run the probes. A probe that is not done at the host's deadline is left behind and reported as timed out.

    Interrupting the host ends the collection early with what is there. No exception of a probe escapes. `progress` is
    called several times a second with the probes that are still out.
    """
    collection = _Collection(host, probes, known)
    collection.wait(progress)
    return collection.harvest()


class _Collection:
    def __init__(self, host: Host, probes: Sequence[Probe], known: Facts) -> None:
        self._host = host
        self._probes = probes
        self._changed = threading.Condition()
        self._facts = list(known)
        self._absents = list(known.absents)
        self._looked_for = set(known.looked_for)
        # by place in the list: two packs may give their probes the same name
        self._runs: dict[int, ProbeRun] = {}
        self._started: dict[int, float] = {}
        self._without_thread: list[tuple[int, Facts]] = []
        self._start_ready()

    def wait(self, progress: Callable[[tuple[str, ...]], None] | None) -> None:
        with self._changed:
            while len(self._runs) < len(self._probes):
                self._start_ready()
                self._take_without_thread()
                left = self._host.deadline.remaining()
                if not left or self._host.interrupted:
                    # workers end at the same moment; the probes that asked them still get to say so
                    give_up = time.monotonic() + GRACE_SECONDS
                    while len(self._runs) < len(self._started) and time.monotonic() < give_up:
                        self._changed.wait(give_up - time.monotonic())
                    return
                if progress:
                    progress(tuple(self._probes[place].name for place in self._started if place not in self._runs))
                # in slices: a signal handler that interrupts the host does not wake a waiting thread
                self._changed.wait(min(left, SLICE_SECONDS))

    def harvest(self) -> Collected:
        with self._changed:
            for place in range(len(self._probes)):
                if place not in self._runs:
                    why = self._host.interrupted or "not done when the time was up"
                    self._record(place, [], "timeout", why)
            return Collected(
                facts=Facts(self._facts, self._absents, self._looked_for),
                runs=tuple(run for _, run in sorted(self._runs.items())),
            )

    def _start_ready(self) -> None:
        waited_for = [probe for place, probe in enumerate(self._probes) if place not in self._runs]
        unfinished = {kind for probe in waited_for for kind in probe.gives}
        for place, probe in enumerate(self._probes):
            if place in self._started or unfinished.intersection(probe.builds_on):
                continue
            self._started[place] = time.monotonic()
            known = Facts(self._facts, self._absents, self._looked_for)
            thread = threading.Thread(target=self._take, args=(place, known), name=f"probe {probe.name}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # a limit of processes, threads or memory
                self._without_thread.append((place, known))

    def _take_without_thread(self) -> None:
        """Take what no thread could be started for one after the other, within the deadlines of the probes."""
        while self._without_thread and self._host.deadline and not self._host.interrupted:
            place, known = self._without_thread.pop(0)
            self._changed.release()
            try:
                self._take(place, known)
            finally:
                self._changed.acquire()
            self._start_ready()

    def _take(self, place: int, known: Facts) -> None:
        probe = self._probes[place]
        seen: list[Observation] = []
        status: ProbeStatus = "ok"
        reason = ""
        try:
            undead = self._host.undead
            if probe.risk == "gpu" and undead:
                pid, worker = next(iter(undead.items()))
                raise _Refused(f"not started: PID {pid} ({worker}) could not be killed, the driver may be stuck")
            for item in probe.take(self._host, known):
                # what a probe says once its worker was killed under it is about us, not about the host
                if self._host.interrupted:
                    raise _Refused(self._host.interrupted)
                seen.append(item)
        except _Refused as refusal:
            status, reason = "denied", str(refusal)
        except Exception as error:  # a defect of ours must not cost the rest of the report
            status, reason = "crashed", f"{type(error).__name__}: {error}"
        with self._changed:
            self._record(place, seen, status, reason)
            self._changed.notify_all()

    def _record(self, place: int, seen: list[Observation], status: ProbeStatus, reason: str) -> None:
        if place in self._runs:
            return
        probe = self._probes[place]
        absents = [item for item in seen if isinstance(item, Absent)]
        facts = [item for item in seen if isinstance(item, Fact)]
        told = {item.kind for item in absents} | {fact.kind() for fact in facts}
        if status == "ok":
            self._looked_for.update(kind.kind() for kind in probe.gives)
        else:
            absents += [
                Absent(kind=kind.kind(), about=Subject(host=self._host.name), status=status, reason=reason)
                for kind in probe.gives
                if kind.kind() not in told
            ]
        if absents and status == "ok":
            status, reason = absents[0].status, absents[0].reason
        silent = next((fact.silent for fact in facts if fact.silent), "")
        if silent and status == "ok":
            status, reason = "timeout", silent
        self._facts += facts
        self._absents += absents
        ms = int(1000 * (time.monotonic() - self._started.get(place, time.monotonic())))
        self._runs[place] = ProbeRun(name=probe.name, status=status, ms=ms, reason=reason)


class _Refused(Exception):
    pass
