"""What a meeting before init shows of DDP101: ranks that did not come, or whose process ended while others waited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Confidence, Facts, Fix, Severity

SEE = Fix(
    title="see whether they live and where they stand, on the node they belong to",
    commands=("ddp-doctor attach --all",),
    needs="nothing",
)


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `MissingRanks.finding`: one set for those that ended, one for those that did not come."""
    for attendance in facts[Attendance]:
        if attendance.gone:
            yield _ended(attendance, [each for each in facts[Attendee] if each.gone == "ended"])
        cut_off = [each for each in facts[Attendee] if each.gone == "cut-off"]
        if cut_off:
            yield _cut_off(cut_off)
        late = set(attendance.missing) - {each.rank for each in cut_off}
        if late:
            # one on another host that was told another port waits there, and is not seen here
            all_here = {each.local_world_size == each.world_size for each in facts[Attendee]} == {True}
            yield _late(
                msgspec.structs.replace(attendance, missing=tuple(sorted(late))),
                Confidence.CERTAIN if all_here else Confidence.LIKELY,
            )


def _ended(attendance: Attendance, ended: list[Attendee]) -> dict[str, Any]:
    who = numbers(attendance.gone)
    return {
        "summary": f"{who} of world size {attendance.world_size} came and ended before init",
        "because": "a job cannot start without every rank; look at what that process wrote last: it is the first failure, "
        "and what the other ranks say later is its echo",
        "evidence": [
            each.evidence(f"PID {each.subject.pid} came, and its process ended {each.stayed_s:.1f} s later")
            for each in ended[:8]
        ],
        "fixes": [
            Fix(
                title=f"read the output of {who}, mend what ended it, and start the job again; torchrun keeps each rank's with",
                commands=("torchrun --standalone --nproc-per-node=2 --redirects=3 --log-dir=logs train.py",),
                needs="job restart",
            )
        ],
        "confidence": Confidence.CERTAIN,
        "ranks": attendance.gone,
    }


def _cut_off(cut_off: list[Attendee]) -> dict[str, Any]:
    ranks = [each.rank for each in cut_off if each.rank is not None]
    hosts = list(dict.fromkeys(each.subject.host for each in cut_off))
    return {
        "summary": f"{numbers(ranks)} on {', '.join(hosts[:4])} came, and then the network lost the host: what is sent there "
        "is not acknowledged any more",
        "because": "the host went down, its link did, or a firewall began to drop the connection; init_process_group waits for "
        "every rank",
        "evidence": [each.evidence(f"no acknowledgement from the host of {each.text()}") for each in cut_off[:4]],
        "fixes": [
            Fix(
                title="see whether the host and its link are up",
                commands=tuple(f"ping -c 3 {host}" for host in hosts[:4]),
                needs="nothing",
            )
        ],
        "confidence": Confidence.LIKELY,
        "ranks": ranks,
    }


def _late(attendance: Attendance, confidence: Confidence) -> dict[str, Any]:
    if attendance.ahead:
        return {
            "summary": f"{numbers(attendance.present)} of world size {attendance.world_size} came after the others had met: "
            "rank 0 has opened its store already",
            "because": "whoever came in time has gone on into init_process_group, and waits there",
            "evidence": [attendance.evidence()],
            "fixes": [SEE],
            "severity": Severity.NOTE,
            "confidence": Confidence.LIKELY,
            "ranks": attendance.missing,
        }
    missing, here = attendance.missing, len(attendance.present)
    lost = f"; {attendance.lost}" if attendance.lost else ""
    return {
        "summary": f"{numbers(missing)} of world size {attendance.world_size} did not come in {attendance.waited_s:.0f} s; "
        f"{'one rank is' if here == 1 else f'{here} ranks are'} here{lost}",
        "because": "they may merely be late: nodes of one job often start a minute apart. init_process_group goes on waiting "
        "for them, 10 or 30 minutes by default",
        "evidence": [attendance.evidence()],
        "fixes": [SEE],
        "severity": Severity.WARNING,
        "confidence": confidence,
        "ranks": missing,
    }
