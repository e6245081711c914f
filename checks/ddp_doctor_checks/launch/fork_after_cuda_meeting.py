"""What a rank says of itself before init that shows DDP104: it was forked after CUDA, or is about to fork after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Confidence, Facts, Fix, Severity


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `ForkAfterCuda.finding`, at most one set for ranks and one for a notebook that will start them."""
    forked = [each for each in facts[Attendee] if each.cuda == "bad-fork"]
    if forked:
        ranks = [each.rank for each in forked if each.rank is not None]
        yield {
            "summary": f"{numbers(ranks) if ranks else 'this process'} {'were' if len(ranks) > 1 else 'was'} forked from a "
            "process that had used CUDA",
            "because": "a CUDA context does not survive a fork: the first use of CUDA here raises `Cannot re-initialize CUDA "
            "in forked subprocess`, and the other ranks wait",
            "evidence": [each.evidence(f"torch.cuda._is_in_bad_fork() is True: {each.text()}") for each in forked[:4]],
            "fixes": [
                Fix(
                    title="start the children afresh instead of forking, under the main guard",
                    commands=(
                        'if __name__ == "__main__":',
                        "    torch.multiprocessing.spawn(worker, nprocs=world_size)",
                    ),
                    needs="code change, job restart",
                )
            ],
            "confidence": Confidence.CERTAIN,
            "ranks": ranks,
        }
    for each in facts[Attendee]:
        if each.notebook and each.rank is None and each.cuda == "initialised":
            yield {
                "summary": "this notebook's kernel has used CUDA, and notebook launchers fork it",
                "because": "a CUDA context does not survive a fork; notebook_launcher refuses or its ranks fail, each in its "
                "first use of CUDA",
                "evidence": [each.evidence(f"torch.cuda.is_initialized() is True in a notebook: {each.text()}")],
                "fixes": [
                    Fix(
                        title="restart the kernel, and use CUDA inside the launched function only",
                        commands=("def train():", "    model = model.cuda()"),
                        needs="code change, kernel restart",
                    )
                ],
                "severity": Severity.WARNING,
                "confidence": Confidence.LIKELY,
            }
