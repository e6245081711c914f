"""What a script shows of DDP105: a mask, and a device number that it does not reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.script import MaskAssignment
from ddp_doctor.model import Confidence, Facts, Fix, Severity

NEEDS = "code change, job restart"


def from_script(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `NprocGtGpus.finding`, one set for each mask."""
    for mask in facts[MaskAssignment]:
        if mask.index is None or mask.after is not None:
            continue
        if mask.same_value:
            summary = (
                f"CUDA_VISIBLE_DEVICES and the device number are both the rank ({mask.at.source}, {mask.index.source})"
            )
            because = (
                "with a mask of one GPU only cuda:0 exists, so device 1 of rank 1 is an invalid device ordinal; the other "
                "ranks wait for it. (Had something used CUDA before, the mask would be ignored: that is late-visible-devices.)"
            )
            fix = Fix(title="choose the GPU by its number alone: delete the mask", diff=mask.rewrite, needs=NEEDS)
            if not mask.rewrite:
                fix = Fix(
                    title="keep one of the two: no mask, and",
                    commands=("torch.cuda.set_device(local_rank)",),
                    needs=NEEDS,
                )
        else:
            summary = (
                f"CUDA_VISIBLE_DEVICES={mask.value} ({mask.at.source}) shows {mask.devices} GPUs, and a rank asks for a number "
                f"beyond them ({mask.index.source})"
            )
            because = "CUDA numbers the visible GPUs from 0, so the last one here is smaller than the number asked for"
            fix = Fix(
                title="count the visible GPUs, and start as many ranks",
                commands=("world_size = torch.cuda.device_count()",),
                needs=NEEDS,
            )
        yield {
            "summary": summary,
            "because": because,
            "evidence": [mask.evidence(), mask.index.evidence(mask.kind(), mask.index_text)],
            "fixes": [fix],
            "severity": Severity.ERROR,
            "confidence": Confidence.LIKELY,
        }
