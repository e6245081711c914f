"""What a meeting before init shows of DDP608: a rank that came, and whose process is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Confidence, Facts, Fix
from ddp_doctor_checks import paths
from ddp_doctor_checks.paths import of

READS = paths.READS


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RankStopped.finding`: the ranks whose state was seen, and those whose whole machine fell silent."""
    stopped = [each for each in facts[Attendee] if each.gone == "stopped"]
    if stopped:
        yield _stopped(stopped)
    silent = [each for each in facts[Attendee] if each.gone == "silent"]
    if silent:
        yield _silent(silent)
    mute = {found.root for found in of(facts, "silent")} - {each.subject.host for each in silent + stopped}
    if mute:
        yield _silent([each for each in facts[Attendee] if each.subject.host in mute])


def _stopped(stopped: list[Attendee]) -> dict[str, Any]:
    ranks = [each.rank for each in stopped if each.rank is not None]
    return {
        "summary": f"{numbers(ranks)} {'is' if len(stopped) == 1 else 'are'} stopped by a signal (SIGSTOP, Ctrl-Z, or a batch "
        f"system that suspends), PID {', '.join(str(each.subject.pid) for each in stopped[:4])}",
        "because": "a stopped process answers nobody: it came before init and will not join the others",
        "evidence": [each.evidence(f"PID {each.subject.pid} state T: {each.text()}") for each in stopped[:4]],
        "fixes": [
            Fix(
                title="let it go on",
                commands=tuple(f"kill -CONT {each.subject.pid}" for each in stopped[:8]),
                needs="its owner",
            )
        ],
        "confidence": Confidence.CERTAIN,
        "ranks": ranks,
    }


def _silent(silent: list[Attendee]) -> dict[str, Any]:
    ranks = [each.rank for each in silent if each.rank is not None]
    hosts = list(dict.fromkeys(each.subject.host for each in silent))
    return {
        "summary": f"{numbers(ranks)} on {', '.join(hosts[:4])} came and then fell silent: the processes there are stopped "
        "(SIGSTOP, a suspended job, a frozen container), or wait for ever for their disk",
        "because": "the kernel there takes what is sent to it, so host and network are up, and no process takes part any more",
        "evidence": [
            each.evidence(f"nothing more from PID {each.subject.pid}, what is sent is acknowledged: {each.text()}")
            for each in silent[:4]
        ],
        "fixes": [
            Fix(
                title="see their state (T is stopped, D waits for a disk), and let them go on",
                commands=tuple(
                    line
                    for each in silent[:4]
                    for line in (
                        f"grep State /proc/{each.subject.pid}/status   # on {each.subject.host}",
                        f"kill -CONT {each.subject.pid}   # on {each.subject.host}",
                    )
                ),
                needs="its owner",
            )
        ],
        "confidence": Confidence.LIKELY,
        "ranks": ranks,
    }
