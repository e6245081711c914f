"""What a running job shows of DDP115: a spawned child that runs the script's top level, and hangs there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import jobs
from ddp_doctor.model import Confidence, Facts, Fix

BOOTSTRAP = ("_fixup_main_from_path", "_fixup_main_from_name")


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `SpawnGuard.finding`, one set per job."""
    for view in jobs(facts):
        importing = [rank for rank in view.ranks if set(rank.functions).intersection(BOOTSTRAP) and rank.call]
        if not importing:
            continue
        where = importing[0].where
        yield {
            "summary": f"{len(importing)} spawned processes stand in {importing[0].call} while they import the script "
            f"({where})",
            "because": "a spawned process imports the script before it runs its function, so what stands outside the main "
            "guard runs in every child, each time anew",
            "evidence": [rank.evidence(f"PID {rank.subject.pid}: {rank.text()}") for rank in importing[:4]],
            "fixes": [
                Fix(
                    title=f"move {importing[0].call} ({where}) into the function that is spawned, or under the main guard",
                    commands=('if __name__ == "__main__":', "    main()"),
                    needs="code change, job restart",
                )
            ],
            "confidence": Confidence.CERTAIN,
            "ranks": [rank.rank for rank in importing if rank.rank is not None],
        }
