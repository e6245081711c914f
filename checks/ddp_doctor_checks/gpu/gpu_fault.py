"""DDP407: a GPU is lost, or its memory has faults that were not corrected."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import DriverGpu, DriverState
from ddp_doctor.facts.gpu_views import SEEN, GpuViews, gpu_views
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.gpu import gpu_fault_live as live


class GpuFault(Check):
    id, name = "DDP407", "gpu-fault"
    title = "A GPU with a hardware fault"
    needs = (DriverState, DriverGpu)
    also_reads = (*SEEN, *communicator.READS, *live.READS)
    told = Told(
        because="a GPU that is lost or has faults breaks every communicator it is in, and NCCL's start even where it is "
        "outside the mask",
        fixes=(
            Fix(
                title="see which one, take it out of service, and reset or replace it",
                commands=(
                    "sudo dmesg -T | grep -E 'Xid|AER'; nvidia-smi -q | grep -E 'Xid|ECC|Remapped|Retired'",
                    "sudo nvidia-smi --gpu-reset -i GPU   # while nothing uses it",
                ),
                needs="root",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if any(live.stuck_ranks(facts, joining=False)):
            return ""
        return communicator.without_gpu_or_trial(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for each in live.stuck_ranks(facts, joining=False):
            yield self.finding(**each)
        for seen in gpu_views(facts):
            for gpu in seen.gpus:
                yield from self._look_at(gpu, seen)

    def _look_at(self, gpu: DriverGpu, seen: GpuViews) -> Iterator[Finding]:
        outside = gpu in seen.hidden and not gpu.lost
        where = " (outside CUDA_VISIBLE_DEVICES)" if outside else ""
        if gpu.lost:
            what = f"GPU {gpu.index} does not answer: {gpu.lost.text}"
            severity, confidence = Severity.ERROR, Confidence.CERTAIN
        elif gpu.unanswered:
            what = f"{gpu.label} gives no answer: {gpu.unanswered} hangs"
            severity, confidence = Severity.ERROR, Confidence.LIKELY
        elif gpu.remap_failure:
            what = f"{gpu.label} has faulty memory that could not be remapped{where}"
            severity, confidence = Severity.WARNING if outside else Severity.ERROR, Confidence.LIKELY
        elif gpu.ecc_uncorrected:
            what = (
                f"{gpu.label} had {gpu.ecc_uncorrected} uncorrectable memory errors since the driver was loaded{where}"
            )
            severity, confidence = Severity.WARNING, Confidence.LIKELY
        else:
            return
        quoted = f"{gpu.text()}, uncorrected ECC errors {gpu.ecc_uncorrected}, remapping failed {gpu.remap_failure}"
        yield self.finding(
            what,
            because="NCCL asks the driver about every GPU of the node, masked or not, so one that is broken can stop "
            "ranks that do not use it",
            evidence=[gpu.evidence(quoted)],
            fixes=[
                Fix(
                    title="look for its Xid, then reset it with no process on it (a lost GPU needs a reboot)",
                    commands=(
                        "sudo dmesg -T | grep -iE 'NVRM|Xid' | tail",
                        f"sudo nvidia-smi --gpu-reset -i {gpu.index}",
                    ),
                    needs="root, an idle GPU",
                )
            ],
            severity=severity,
            confidence=confidence,
        )
