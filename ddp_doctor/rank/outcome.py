"""From a rank's own facts to the report that all ranks share, and what is done with it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import ddp_doctor
from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.interpret.launcher import number
from ddp_doctor.meeting.attend import Attended, attend
from ddp_doctor.meeting.identity import identity
from ddp_doctor.meeting.venue import PortVenue
from ddp_doctor.model import Finding, Report, Target, Tool, Verdict
from ddp_doctor.rank.examination import Examination

if TYPE_CHECKING:
    from ddp_doctor.render.text import Style

WRITE_SECONDS = 2.0
ALONE_SECONDS = 5.0
"""The time for the probes where there is nobody to meet."""


def nothing(why: str) -> Report:
    """The report of a call that examined nothing."""
    return Report(
        tool=Tool(version=ddp_doctor.__version__, command="preflight", seconds=0.0),
        target=Target(),
        verdict=Verdict(status="nothing", summary=why),
    )


def examined(me: Attendee, started: float, timeout: float) -> tuple[Report, bool]:
    """The report, the same for all ranks that met, and whether this rank is the one to print it."""
    end = started + timeout
    work = Examination(os.environ, started, end)
    if me.rank is None or me.world_size is None or me.world_size < 2:
        seen = Examination(os.environ, started, started + min(timeout, ALONE_SECONDS)).observe(me)
        return work.report((me,), None, (seen,)), True
    who = identity(
        os.environ,
        spawned=bool(me.started_by),
        script=os.path.join(me.cwd, me.script),
        meet_port=number(os.environ.get("DDP_DOCTOR_MEET_PORT")),
    )
    attended = attend(me, who, work, lambda: elsewhere(me, who.port), started, end)
    if attended.verdict is not None:
        report = msgspec.msgpack.decode(attended.verdict.judgement, type=Report)
        return report, attended.verdict.speaker == me.key
    return work.report((me,), last_known(me, attended, started), ()), True


def last_known(me: Attendee, attended: Attended, started: float) -> Attendance:
    """Who was here, as the host last said; without a word of it everybody else is missing."""
    size = me.world_size or 1
    missing = attended.pulse.missing if attended.pulse else tuple(each for each in range(size) if each != me.rank)
    present = (set(range(size)) - set(missing)) | ({me.rank} if me.rank is not None else set())
    return Attendance(
        subject=me.subject,
        source="the ranks before init",
        world_size=size,
        present=tuple(sorted(present)),
        missing=tuple(each for each in missing if each != me.rank),
        waited_s=round(time.monotonic() - started, 2),
        by="alone",
        lost=attended.reason,
    )


def elsewhere(me: Attendee, port: int) -> PortVenue | None:
    """Where hosts meet: the doctor's port at the address of rank 0. The name is looked up in a child, it may block."""
    from ddp_doctor.host import Host
    from ddp_doctor.probes.names import is_address

    if not me.address or any(letter.isspace() for letter in me.address):
        return None
    if is_address(me.address):
        return PortVenue([me.address], port)
    host = Host(ALONE_SECONDS)
    try:
        answer = host.ask("resolve", {"names": [me.address]})
    finally:
        host.close()
    found = answer.first.get("addresses", [])
    return PortVenue(found, port) if found else None


def text(report: Report) -> str:
    """The report for a person."""
    from ddp_doctor.render.text import render

    return render(report, _style())


def text_of_findings(report: Report, findings: Sequence[Finding]) -> str:
    """These findings of the report with their evidence and fixes, without what is fine."""
    from ddp_doctor.render import printable
    from ddp_doctor.render.text import finding_lines

    shown = printable(msgspec.structs.replace(report, findings=tuple(findings))).findings
    style = _style()
    lines = [line.rstrip() for finding in shown for line in (*finding_lines(finding, style), "")]
    said = "\n".join(lines)
    return said if style.unicode else said.encode("ascii", "replace").decode()


def _style() -> Style:
    from ddp_doctor.render.text import Style

    encoding = (getattr(sys.stderr, "encoding", None) or "ascii").lower().replace("-", "")
    return Style(unicode=encoding == "utf8")


def keep(report: Report) -> None:
    """Put the report into the folder that DDP_DOCTOR_REPORT_DIR names; a folder that does not answer is not waited for."""
    folder = os.environ.get("DDP_DOCTOR_REPORT_DIR")
    if not folder:
        return
    name = f"preflight-{os.uname().nodename}-{os.getpid()}-{threading.get_native_id()}-{time.time_ns()}.json"

    def write() -> None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_text(report.to_json(), encoding="utf-8")
        except OSError as error:
            if sys.stderr is not None:
                sys.stderr.write(f"ddp-doctor: cannot write to DDP_DOCTOR_REPORT_DIR {folder}: {error.strerror}\n")

    thread = threading.Thread(target=write, name="ddp-doctor report", daemon=True)
    thread.start()
    thread.join(WRITE_SECONDS)
