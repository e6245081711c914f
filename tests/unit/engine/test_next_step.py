"""What an undecided verdict says to do next."""

from __future__ import annotations

from typing import Any

import pytest
from job_facts import collective, job

from ddp_doctor.examine import examine
from ddp_doctor.model import Facts
from ddp_doctor.packs import load_packs
from ddp_doctor.running_job import all_here


@pytest.mark.parametrize(
    ("changes", "others_too"),
    [
        ({}, False),
        ({"missing": (1,), "complete_here": False}, True),
        ({"world_size": None}, True),
    ],
)
def test_other_nodes_are_spoken_of_only_where_ranks_may_be_there(changes: dict[str, Any], others_too: bool) -> None:
    facts = Facts(job(collective(0, "all_reduce"), collective(1, "all_reduce"), **changes))
    verdict = examine("attach", load_packs(), known=facts, waiting=lambda facts: True, all_here=all_here).verdict
    assert (verdict.status, verdict.candidates) == ("unknown", ())
    assert verdict.separate is not None
    assert ("the other nodes" in verdict.separate.title) is others_too
    assert "logs of all ranks" in verdict.separate.title
