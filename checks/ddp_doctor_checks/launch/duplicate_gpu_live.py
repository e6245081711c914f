"""What a running job shows of DDP106: two of its ranks hold one and the same GPU, and no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, jobs, named
from ddp_doctor.facts.nccl_live import GpuUse
from ddp_doctor.model import Confidence, Facts, Fix, Severity

READS = (JobRank, Process, GpuUse)


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `DuplicateGpu.finding`, one set per job and GPU."""
    pids = {each.subject.process: {each.pid, each.inner_pid or each.pid} for each in facts[Process]}
    threads = {each.subject.process: each.threads for each in facts[Process]}
    for view in jobs(facts):
        if not view.waiting:
            continue
        held: dict[int, list[GpuUse]] = defaultdict(list)
        for rank in view.ranks:
            for use in facts[GpuUse]:
                if any(
                    each.pid in pids.get(rank.subject.process, ()) for each in use.processes if each.use == "compute"
                ):
                    held[rank.subject.pid or 0].append(use)
        alone: dict[str, list[JobRank]] = defaultdict(list)
        for rank in view.ranks:
            own = held[rank.subject.pid or 0]
            if len(own) == 1 and own[0].uuid:
                alone[own[0].uuid].append(rank)
        for uuid, ranks in alone.items():
            if len(ranks) > 1:
                use = next(each for each in facts[GpuUse] if each.uuid == uuid)
                nccl = any(
                    rank.doing in ("communicator", "driver")
                    or any(name.startswith("pt_nccl") for name in threads.get(rank.subject.process, ()))
                    for rank in ranks
                )
                yield _finding(ranks, use, nccl)


def _finding(ranks: list[JobRank], use: GpuUse, nccl: bool) -> dict[str, Any]:
    return {
        "summary": f"{named(ranks)} hold one GPU, {use.label}",
        "because": "NCCL refuses two ranks on one GPU (`Duplicate GPU detected`) as soon as all ranks have met, and until "
        "then they wait"
        if nccl
        else "with NCCL that is an error as soon as all ranks have met; with Gloo it only makes them share the GPU",
        "evidence": [use.evidence(), *(rank.evidence() for rank in ranks[:4])],
        "fixes": [
            Fix(
                title="choose the GPU of this rank before anything else uses CUDA",
                commands=('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',),
                needs="code change, job restart",
            )
        ],
        "severity": Severity.ERROR if nccl else Severity.WARNING,
        "confidence": Confidence.LIKELY,
        "ranks": [rank.rank for rank in ranks if rank.rank is not None],
    }
