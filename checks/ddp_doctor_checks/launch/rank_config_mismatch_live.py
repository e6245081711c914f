"""What a running job shows of DDP118: a setting that makes ranks take different steps, set on some of them only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, jobs, minority, named
from ddp_doctor.model import Confidence, Facts, Fix

STEPS = {
    "TORCH_DISTRIBUTED_DEBUG": (
        "OFF",
        "with DETAIL a rank builds one more Gloo group, in which the others take no part",
    ),
    "TORCH_DIST_INIT_BARRIER": ("0", "with 1 a rank waits at the end of init for a count that the others never raise"),
    "TORCH_NCCL_BCAST_UNIQUEID": ("1", "the ranks exchange the NCCL id in different ways"),
}
STEP_OF = {
    ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"): "_create_process_group_wrapper",
    ("TORCH_DIST_INIT_BARRIER", "1"): "_store_based_barrier",
}
"""The function of torch's that a rank enters with this value only."""


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `RankConfigMismatch.finding`, one set per job and setting."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        if not view.waiting:
            continue
        known = [(rank, processes[rank.subject.process]) for rank in view.ranks if rank.subject.process in processes]
        for name, (default, why) in STEPS.items():
            values = [
                (rank, meant(name, process.variables.get(name, default)))
                for rank, process in known
                if process.variables
            ]
            if len({value for _, value in values}) > 1:
                yield _finding(name, why, values)


def _finding(name: str, why: str, values: list[tuple[JobRank, str]]) -> dict[str, Any]:
    odd = [rank for rank, _ in minority(values, lambda each: each[1]) or values]
    shown = ", ".join(
        f"{named([rank for rank, value in values if value == each])} {each}"
        for each in dict.fromkeys(value for _, value in values)
    )
    return {
        "summary": f"{name} is not the same on all ranks: {shown}",
        "because": why,
        "evidence": [rank.evidence(f"{name}={value}, {rank.text()}") for rank, value in values[:6]],
        "fixes": [Fix(title="set it on every rank or on none", commands=(f"unset {name}   # on {named(odd)}",))],
        "confidence": Confidence.CERTAIN if _stand_in_it(name, values) else Confidence.LIKELY,
        "ranks": [rank.rank for rank in odd if rank.rank is not None],
    }


def _stand_in_it(name: str, values: list[tuple[JobRank, str]]) -> bool:
    """Whether the ranks with a value stand in the step that only it brings, and the others do not."""
    steps = {STEP_OF.get((name, value)) for _, value in values} - {None}
    return len(steps) == 1 and all(
        rank.has_stack and (STEP_OF.get((name, value)) in rank.functions) == ((name, value) in STEP_OF)
        for rank, value in values
    )


def meant(name: str, value: str) -> str:
    """INFO and OFF take the same steps; only DETAIL differs."""
    return value if name != "TORCH_DISTRIBUTED_DEBUG" else "DETAIL" if value.upper() == "DETAIL" else "OFF"
