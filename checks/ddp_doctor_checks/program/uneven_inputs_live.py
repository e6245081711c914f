"""What a running job shows of DDP602."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import named
from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.program.divergence_live import calls, common, parted


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `UnevenInputs.finding`, one set per job."""
    for view, found, odd in parted(facts, "uneven"):
        yield {
            "summary": f"{named(odd)} left the training loop that others are still in: {calls(view)}",
            "because": "each step of DistributedDataParallel is a collective; a rank with fewer batches stops taking part",
            "fixes": [
                Fix(
                    title="let ranks that run out of batches answer for the rest of the epoch",
                    commands=("with model.join():", "    for batch in loader:", "        ..."),
                    needs="code change, job restart",
                ),
                Fix(
                    title="or give all ranks the same number of batches",
                    commands=("DistributedSampler(dataset, drop_last=True)",),
                    needs="code change, job restart",
                ),
            ],
            **common(view, found, odd),
        }
