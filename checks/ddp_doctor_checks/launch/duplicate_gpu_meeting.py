"""What a meeting before init shows of DDP106: ranks of one host whose masks leave each the same single GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.gpu import DriverGpu
from ddp_doctor.facts.job import numbers
from ddp_doctor.model import Confidence, Facts, Fix


def from_meeting(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `DuplicateGpu.finding`, one set per GPU that several ranks are masked to."""
    by_name = {(gpu.subject.host, key): gpu for gpu in facts[DriverGpu] for key in (str(gpu.index), gpu.uuid) if key}
    only: dict[tuple[str, str], list[Attendee]] = defaultdict(list)
    for each in facts[Attendee]:
        mask = each.variables.get("CUDA_VISIBLE_DEVICES", "").strip()
        gpu = by_name.get((each.subject.host, mask))
        if gpu is not None and each.rank is not None and each.cuda_build:
            only[each.subject.host, gpu.uuid or mask].append(each)
    for (_, uuid), same in only.items():
        if len({each.rank for each in same}) < 2:
            continue
        yield {
            "summary": f"{numbers(each.rank for each in same if each.rank is not None)} of {same[0].subject.host} each see "
            f"one GPU, and it is the same: {uuid}",
            "because": "NCCL refuses two ranks on one GPU (`Duplicate GPU detected`), and ranks elsewhere wait for them",
            "evidence": [
                each.evidence(f"CUDA_VISIBLE_DEVICES={each.variables['CUDA_VISIBLE_DEVICES']}: {each.text()}")
                for each in same[:8]
            ],
            "fixes": [
                Fix(
                    title="give every rank all GPUs and let it choose its own",
                    commands=("unset CUDA_VISIBLE_DEVICES", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'),
                    needs="code change, job restart",
                )
            ],
            "confidence": Confidence.LIKELY,
            "ranks": [each.rank for each in same if each.rank is not None],
        }
