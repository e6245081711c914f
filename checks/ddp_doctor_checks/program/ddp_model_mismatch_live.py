"""What a running job shows of DDP607."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.program.divergence_live import calls, common, parted


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `DdpModelMismatch.finding`, one set per job."""
    for view, found, odd in parted(facts, "model"):
        yield {
            "summary": f"DistributedDataParallel communicates about different models: {calls(view)}",
            "because": "one rank sends its buffers while another is past that step: the models differ in buffers, which the "
            "constructor does not compare",
            "fixes": [
                Fix(
                    title="build one model on all ranks; print this on each and compare",
                    commands=("print(dist.get_rank(), [(n, tuple(b.shape)) for n, b in model.named_buffers()])",),
                    needs="code change, job restart",
                )
            ],
            **common(view, found, odd),
        }
