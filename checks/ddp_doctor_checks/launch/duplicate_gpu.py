"""DDP106: two ranks of one node have the same single GPU."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.gpu import CudaView
from ddp_doctor.facts.gpu_views import SEEN, without_gpu
from ddp_doctor.model import Check, Facts, Finding, Fix, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.launch import duplicate_gpu_live as live
from ddp_doctor_checks.launch.duplicate_gpu_meeting import from_meeting


class DuplicateGpu(Check):
    id, name = "DDP106", "duplicate-gpu"
    title = "Two ranks on one GPU"
    needs = ((CudaView, Attendee),)
    also_reads = (*SEEN, *communicator.READS, *live.READS)
    told = Told(
        because="NCCL needs a GPU of its own for each rank; two ranks chose the same one, mostly because set_device is "
        "missing or every rank has the same mask",
        fixes=(
            Fix(
                title="choose the GPU before anything else uses CUDA",
                commands=('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',),
                needs="code change, job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if communicator.shows(self.id, facts) or any(live.from_job(facts)) or any(from_meeting(facts)):
            return ""
        if len({view.subject.rank for view in facts[CudaView] if view.subject.rank is not None}) < 2:
            return "the views of two ranks are needed to compare them"
        return without_gpu(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for each in (*live.from_job(facts), *from_meeting(facts)):
            yield self.finding(**each)
        only: dict[tuple[str, str], dict[int, CudaView]] = {}
        for view in facts[CudaView]:
            if view.masked and view.subject.rank is not None and len(view.devices) == 1:
                only.setdefault((view.subject.host, view.devices[0].uuid), {})[view.subject.rank] = view
        for (_, uuid), views in only.items():
            if not uuid or len(views) < 2:
                continue
            ranks = sorted(views)
            yield self.finding(
                f"ranks {', '.join(map(str, ranks))} each see one GPU, and it is the same: {views[ranks[0]].devices[0].name}",
                because="NCCL refuses two ranks on one GPU (`Duplicate GPU detected`), and ranks elsewhere wait for them",
                evidence=[views[rank].evidence(f"{views[rank].text()}: {uuid}") for rank in ranks],
                fixes=[
                    Fix(
                        title="give every rank all GPUs and let it choose its own",
                        commands=("unset CUDA_VISIBLE_DEVICES", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'),
                        needs="code change, job restart",
                    )
                ],
            )
