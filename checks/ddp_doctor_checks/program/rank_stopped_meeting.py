"""What a meeting before init shows of DDP608: a rank that came, and whose process is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Confidence, Facts, Fix


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RankStopped.finding`, at most one set."""
    stopped = [each for each in facts[Attendee] if each.gone == "stopped"]
    if not stopped:
        return
    ranks = [each.rank for each in stopped if each.rank is not None]
    yield {
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
