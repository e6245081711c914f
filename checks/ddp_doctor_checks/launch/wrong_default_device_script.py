"""What a script shows of DDP108: a GPU chosen by the global rank, or by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.script import DeviceChoice, GroupStart
from ddp_doctor.model import Confidence, Facts, Fix, Severity

NEEDS = "code change, job restart"
SET_DEVICE = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'


def from_script(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `WrongDefaultDevice.finding`, one set for each file that chooses by rank, and for each group start."""
    files: set[str] = set()
    for choice in facts[DeviceChoice]:
        if choice.origin == "global-rank" and choice.at.path not in files:
            files.add(choice.at.path)
            yield _global_rank(choice)
    for start in facts[GroupStart]:
        speaks_nccl = start.backend == "" or "nccl" in start.backend
        if speaks_nccl and not start.device_chosen and start.default_device is not None:
            yield _nobody(start)


def _global_rank(choice: DeviceChoice) -> dict[str, Any]:
    title = "take the rank within the node"
    fix = Fix(title=title, diff=choice.rewrite, needs=NEEDS)
    if not choice.rewrite:
        fix = Fix(title=title, commands=('local_rank = int(os.environ["LOCAL_RANK"])',), needs=NEEDS)
    return {
        "summary": f"the GPU is chosen by the global rank ({choice.call}, {choice.at.source})",
        "because": "it works on one node only: the first rank of the second node asks for a GPU number that its node does "
        "not have, and all others wait for it",
        "evidence": [choice.evidence()],
        "fixes": [fix],
        "severity": Severity.WARNING,
        "confidence": Confidence.LIKELY,
    }


def _nobody(start: GroupStart) -> dict[str, Any]:
    assert start.default_device is not None
    title = "give each rank its GPU before the group starts"
    fix = Fix(title=title, diff=start.device_rewrite, needs=NEEDS)
    if not start.device_rewrite:
        line = (
            "torch.cuda.set_device(rank)  # the worker's first argument"
            if start.started_by != "launcher"
            else SET_DEVICE
        )
        fix = Fix(title=title, commands=(line,), needs=NEEDS)
    return {
        "summary": f"the ranks of this group choose no GPU ({start.at.source}), so all use cuda:0 "
        f"({start.default_device.source})",
        "because": "two ranks on one GPU are refused by NCCL as a duplicate, or run out of memory; nothing here sets a "
        "device for the rank (set_device, device_id or a numbered device)",
        "evidence": [start.evidence(), start.default_device.evidence(start.kind(), "uses the default device")],
        "fixes": [fix],
        "severity": Severity.WARNING,
        "confidence": Confidence.LIKELY,
    }
