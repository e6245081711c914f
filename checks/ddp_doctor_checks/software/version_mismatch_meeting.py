"""What a meeting before init shows of DDP501: ranks with different releases of torch or NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.model import Confidence, Facts, Fix, Severity
from ddp_doctor_checks.disagreement import disagreement, met

RELEASES: dict[str, Callable[[Attendee], str]] = {"torch": lambda each: each.torch, "NCCL": lambda each: each.nccl}


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `VersionMismatch.finding`, at most one set for torch and one for NCCL."""
    for what, version in RELEASES.items():
        found = disagreement([each for each in met(facts) if version(each)], version)
        if found is None:
            continue
        yield {
            "summary": f"the ranks have different releases of {what}: {found.words()}",
            "because": "releases change what ranks say to each other while they start: they then wait for messages that the "
            "other release never sends, or end with a text about a mismatch",
            "evidence": found.evidence(f"{what} "),
            "fixes": [
                Fix(
                    title="install one release everywhere; see what each node has",
                    commands=("python -m pip list 2>/dev/null | grep -iE '^(torch|nvidia-nccl)'   # on every node",),
                    needs="a change of the environment",
                )
            ],
            "severity": Severity.WARNING,
            "confidence": Confidence.LIKELY,
            "ranks": found.ranks,
        }
