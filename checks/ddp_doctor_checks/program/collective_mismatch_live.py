"""What a running job shows of DDP603."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.interpret.waits import all_receive
from ddp_doctor.model import Facts, Fix
from ddp_doctor_checks.program.divergence_live import calls, common, parted


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `CollectiveMismatch.finding`, one set per job."""
    for view, found, odd in parted(facts, "collective"):
        if all_receive(view.ranks):
            yield {
                "summary": f"all {len(view.ranks)} ranks wait in a receive and none sends: {calls(view)}",
                "because": "a receive returns once its peer sends; here every peer waits to be sent something first",
                "fixes": [
                    Fix(
                        title="let one side of each pair send first",
                        commands=(
                            "if dist.get_rank() < peer:",
                            "    dist.send(mine, peer); dist.recv(theirs, peer)",
                            "else:",
                            "    dist.recv(theirs, peer); dist.send(mine, peer)",
                        ),
                        needs="code change, job restart",
                    )
                ],
                **common(view, found, odd),
            }
            continue
        yield {
            "summary": f"the ranks stand in different collectives: {calls(view)}",
            "because": "collectives are matched by their order alone: each rank's n-th has to be every rank's n-th, of one "
            "kind "
            "and size",
            "fixes": [
                Fix(
                    title="let all ranks make the same calls in the same order; this names the first that differs",
                    commands=("TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun --standalone --nproc-per-node="
                              f"{len(view.ranks)} {view.ranks[0].file or 'train.py'}",),
                    needs="code change, job restart",
                )
            ],
            **common(view, found, odd),
        }  # fmt: skip
