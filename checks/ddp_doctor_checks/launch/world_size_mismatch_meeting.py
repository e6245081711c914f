"""What a meeting before init shows of DDP117: ranks that count their job differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.disagreement import confidence, disagreement, met


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `WorldSizeMismatch.finding`, at most one set."""
    attendees = met(facts)
    found = disagreement(attendees, lambda each: str(each.world_size))
    if found is None:
        return
    yield {
        "summary": f"the ranks of one job disagree about the world size: {found.words()}",
        "because": "each waits for as many ranks as it counts; those that count more wait for ranks that nobody starts",
        "evidence": found.evidence("world size "),
        "fixes": [
            Fix(
                title="give all ranks one WORLD_SIZE; a launcher does",
                commands=(
                    f"torchrun --standalone --nproc-per-node={len(attendees)} {attendees[0].script or 'train.py'}",
                ),
            )
        ],
        "confidence": confidence(facts, attendees),
        "ranks": found.ranks,
    }
