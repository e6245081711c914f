"""`run` as one rank of several: all meet, each host is looked at once, one rank reports, and all end alike."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_doctor.cli.elastic import Attempt
from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import Ending
from ddp_doctor.cli.wish import Wish
from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.communicator import CommunicatorStop
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.meeting.attend import attend
from ddp_doctor.meeting.doors import Place
from ddp_doctor.meeting.identity import Identity, identity
from ddp_doctor.meeting.messages import Verdict
from ddp_doctor.meeting.terms import Terms
from ddp_doctor.model import Absent, Fact, Facts, LeftBehind, ProbeRun, Report
from ddp_doctor.probes.interpreter import Choice
from ddp_doctor.rank.outcome import elsewhere, last_known
from ddp_doctor.rank.own_facts import own_facts
from ddp_doctor.rank.who import first_node

WAIT_SECONDS = 18.0
MOST_WAIT_SECONDS = 120.0
SECONDS_PER_RANK = 0.02
"""Launchers start ranks one after another, and images are pulled by each node for itself."""
GATHER_SECONDS = 3.0
"""The ranks of one host have come by then, or it is looked at as those see it that are here."""


COMMON_SCRIPT = "ddp-doctor run"
"""What ranks that merely share a shell have in common."""


def default_wait(launcher: Launcher) -> float:
    """For how long the other ranks are waited for, in seconds."""
    if launcher.name == "by hand":
        return GATHER_SECONDS
    return min(MOST_WAIT_SECONDS, WAIT_SECONDS + SECONDS_PER_RANK * (launcher.world_size or 1))


def examine_rank(out: Output, wish: Wish, launcher: Launcher, *, wait: float | None, meet_port: int | None) -> int:
    """Take part in the examination of all ranks; returns the exit code, the same in all that met."""
    attempt = Attempt(os.environ)
    told = attempt.told_before()
    if told is not None:
        if launcher.local_rank == 0:
            out.say(
                f"torchrun starts this again after {told.text}; the report stands above (--max-restarts=0 spares this)"
            )
        return told.code
    ending = Ending()
    me = _attendee(launcher)
    who = identity(os.environ, spawned=False, script=COMMON_SCRIPT, meet_port=meet_port)
    by_hand = launcher.name == "by hand"
    examination = Examination(out, wish, ending, expects=wait is not None or not by_hand)
    rank = _Rank(out, examination, me, who, ending, attempt, by_hand, wish)
    return rank.take_part(wait or default_wait(launcher), wish.timeout)


class _Rank:
    """This rank's part in it."""

    def __init__(
        self,
        out: Output,
        examination: Examination,
        me: Attendee,
        who: Identity,
        ending: Ending,
        attempt: Attempt,
        by_hand: bool,
        wish: Wish,
    ) -> None:
        self._wish = wish
        self._out, self._examination, self._me, self._who = out, examination, me, who
        self._ending, self._attempt, self._by_hand = ending, attempt, by_hand
        self._own_code: int | None = None

    def take_part(self, wait: float, timeout: float) -> int:
        end = time.monotonic() + wait
        terms = Terms(
            observed_s=max(0.5, self._out.started + timeout - end),
            observe_after_s=min(GATHER_SECONDS, wait / 2),
            thorough=True,
            speak=lambda verdict: self._speak(_report(verdict)),
            missed=self._missed,
            survey=self._examination.survey,
            share=self._wish.share,
            stopped=lambda: bool(self._ending.how),
        )
        attended = attend(
            self._me,
            self._who,
            self._examination,
            lambda: elsewhere(self._me, self._who.port),
            self._out.started,
            end,
            terms,
        )
        if attended.verdict is not None:
            report = _report(attended.verdict)
        else:
            attendance = last_known(self._me, attended, self._out.started)
            report = self._examination.report((self._me,), attendance, ())
            self._speak(report)
        code = self._out.code(report) if self._own_code is None else self._own_code
        self._attempt.tell(report, code)
        self._ending.no_more()
        return code

    def _missed(self, ranks: Sequence[int]) -> None:
        from ddp_doctor.facts.job import numbers

        if ranks and self._examination.expects and not self._ending.how:
            self._out.say(f"{numbers(ranks)} did not come in time; probes of this host are still out")

    def _speak(self, report: Report) -> None:
        if report.target.merged or not self._examination.expects:
            self._own_code = self._out.write(report)
            return
        self._out.of_rank(self._me.rank or 0)
        # a person in a shell wants all of it; of a large job each node that is cut off would print its own
        line = _line(self._me, report)
        self._own_code = self._out.write(report) if self._by_hand else self._out.write_line(line, report)


class Examination:
    """What the host of the meeting does with it: the probes of `run` once for its machine, and one judgement on all."""

    def __init__(self, out: Output, wish: Wish, ending: Ending, *, expects: bool) -> None:
        self._out, self._wish, self._ending = out, wish, ending
        self.expects = expects
        """Whether other ranks are surely on their way; variables in a shell may merely have been set for a look at it."""
        self._choice: Choice | None = None
        self._runs: tuple[ProbeRun, ...] = ()
        self._undead: dict[int, str] = {}
        self._seen_here: tuple[list[dict[str, Any]], Facts] = ([], Facts())

    def prepare(self) -> None:
        """Import what judging takes."""
        from ddp_doctor.packs import load_packs

        load_packs()

    def survey(self, leader: Attendee) -> tuple[Place, ...]:
        """Where NCCL and Gloo will listen on this machine, and where it is known."""
        from ddp_doctor.cli.run import open_host
        from ddp_doctor.rank.survey import survey

        _, host = open_host(self._out, self._wish, self._environ(leader))
        self._ending.interrupts(host)
        try:
            return survey(host)
        finally:
            host.close()

    def observe(self, leader: Attendee) -> list[dict[str, Any]]:
        """What the probes of this machine bring, in the environment of the first of its ranks."""
        from ddp_doctor.cli.run import open_host, probes_of
        from ddp_doctor.examine import observe
        from ddp_doctor.packs import load_packs
        from ddp_doctor.saved import to_tables

        self._choice, host = open_host(self._out, self._wish, self._environ(leader))
        self._ending.interrupts(host)
        collected = observe(load_packs(), host, probes_of(self._wish), self._wish.selection, self._out.waiting)
        host.close()
        self._runs, self._undead = collected.runs, host.undead
        self._seen_here = (to_tables(collected.facts), collected.facts)
        return self._seen_here[0]

    def _environ(self, leader: Attendee) -> dict[str, str]:
        from ddp_doctor.probes.variables import is_examined

        if leader.subject.pid == os.getpid():
            return dict(os.environ)
        return {name: value for name, value in os.environ.items() if not is_examined(name)} | leader.variables

    def ahead(self, leader: Attendee, tables: Sequence[dict[str, Any]]) -> bool:
        """Nobody goes on into init from here."""
        return False

    def judge(
        self, party: Sequence[Attendee], attendance: Attendance, seen: Sequence[Sequence[dict[str, Any]]]
    ) -> bytes:
        """The report on all of it, as msgpack."""
        return msgspec.msgpack.encode(self.report(party, attendance, seen))

    def report(
        self, party: Sequence[Attendee], attendance: Attendance, seen: Sequence[Sequence[dict[str, Any]]]
    ) -> Report:
        """The report on these ranks and machines."""
        from ddp_doctor.cli.run import pairs, target
        from ddp_doctor.examine import examine
        from ddp_doctor.packs import load_packs
        from ddp_doctor.rank.examination import rows
        from ddp_doctor.saved import from_tables

        untried = CommunicatorStop.kind()
        alone = len(party) == 1 and not self.expects
        found: list[Fact] = [] if alone else [*party, attendance]
        absents: list[Absent] = []
        looked_for: set[str] = set() if alone else {Attendee.kind()}
        for tables in seen:
            here, facts_here = self._seen_here
            observed = facts_here if tables is here else from_tables(enumerate(tables, 1))
            # that no trial was made, for want of an NCCL, leaves nothing open where the ranks themselves have met
            absents += [each for each in observed.absents if alone or each.kind != untried or each.status != "absent"]
            found += observed
            looked_for |= observed.looked_for
        hosts = tuple(dict.fromkeys(each.subject.host for each in party))
        report = examine(
            "run",
            load_packs(),
            known=Facts(found, absents, looked_for),
            selection=self._wish.selection,
            describe=lambda facts: target(facts, hosts, self._choice),
            rows=rows,
            pairs=pairs,
            started=self._out.started,
            keep=self._out.keep,
            interrupted=self._ending.how,
        )
        merged = _merged(party, attendance, self._wish.share)
        return msgspec.structs.replace(
            report,
            target=report.target
            if alone
            else msgspec.structs.replace(report.target, world_size=attendance.world_size, merged=merged),
            probes=self._runs,
            left_behind=tuple(LeftBehind(pid=pid, worker=worker) for pid, worker in self._undead.items()),
        )


def _attendee(launcher: Launcher) -> Attendee:
    """This process as an attendee, with the numbers that its launcher gave it."""
    found = own_facts(os.environ, launcher.rank, launcher.world_size, None)
    return msgspec.structs.replace(
        found,
        local_world_size=launcher.local_world_size or found.local_world_size,
        address=found.address or first_node(os.environ),
        where="",
        script="",
    )


def _report(verdict: Verdict) -> Report:
    return msgspec.msgpack.decode(verdict.judgement, type=Report)


def _merged(party: Sequence[Attendee], attendance: Attendance, share: Path | None) -> str | None:
    """How the ranks were merged; None where rank 0 is on a host that these could not reach."""
    here = len(party)
    if attendance.by == "folder":
        return f"{here} of {attendance.world_size} ranks merged over the shared folder {share}"
    if attendance.by == "alone" or (attendance.lost and 0 in (*attendance.missing, *attendance.stopped)):
        return None if attendance.lost else f"{here} of {attendance.world_size} ranks here"
    if here == 1:
        return f"1 of {attendance.world_size} ranks came"
    hosts = len({each.subject.host for each in party})
    way = (
        "over a TCP port of the doctor's own" if attendance.by == "port" and hosts > 1 else "over a socket of this host"
    )
    return f"{here} of {attendance.world_size} ranks merged {way}"


def _line(me: Attendee, report: Report) -> str:
    """The one-line verdict of a rank that could not be merged."""
    worst = report.findings[:1]
    said = (
        f"{worst[0].id} {worst[0].name}: {worst[0].summary}" if worst else report.verdict.summary or "no problem found"
    )
    return f"rank {me.rank} of {me.world_size} on {me.subject.host}, not merged with rank 0: {said}"
