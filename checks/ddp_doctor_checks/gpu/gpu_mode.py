"""DDP408: a mode of the GPU keeps ranks out: exclusive, prohibited, MIG; MPS and a slow start are mentioned."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState, GpuNode
from ddp_doctor.facts.gpu_views import READS, GpuViews, gpu_views
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks import communicator

SLOW_SECONDS = 2.0


class GpuMode(Check):
    id, name = "DDP408", "gpu-mode"
    title = "Compute mode, MIG, MPS and persistence mode"
    needs = (DriverGpu, CudaView, GpuNode)
    also_reads = (*READS, *communicator.READS)
    told = Told(
        because="with an exclusive compute mode one process may use a GPU, and NCCL supports MIG and MPS in few versions "
        "only",
        fixes=(
            Fix(
                title="see the mode, set the default, and choose the GPU before any CUDA call",
                commands=(
                    "nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv",
                    "sudo nvidia-smi -c DEFAULT",
                    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
                ),
                needs="root, code change",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return communicator.without_gpu_or_trial(self.id, facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for seen in gpu_views(facts):
            found = [finding for gpu in seen.visible for finding in self._closed(gpu)]
            yield from found or self._exclusive(seen)
            yield from self._mig(seen)
            if seen.node is not None and seen.node.mps:
                yield self.finding(
                    "an MPS daemon serves this environment: ranks share its contexts",
                    because="NCCL works under MPS with one rank per GPU; a crash of one client takes the others along",
                    evidence=[seen.node.evidence("CUDA_MPS_PIPE_DIRECTORY has a control pipe")],
                    fixes=[Fix(title="stop it to rule it out", commands=("echo quit | nvidia-cuda-mps-control",))],
                    severity=Severity.NOTE,
                )
            yield from self._slow(seen)

    def _closed(self, gpu: DriverGpu) -> Iterator[Finding]:
        others = [process for process in gpu.processes if process.use == "compute"]
        held = "; ".join(process.text() for process in others)
        if gpu.compute_mode == "prohibited":
            summary = f"{gpu.label} is in compute mode prohibited: no process may use it"
        elif gpu.compute_mode not in (None, "default") and others:
            summary = f"{gpu.label} is in compute mode {gpu.compute_mode} and in use: {held}"
        else:
            return
        wait = (
            [Fix(title="wait for that process to end, or end it", commands=(f"ps -fp {others[0].pid}",))]
            if others
            else []
        )
        yield self.finding(
            summary,
            because="a rank that comes to it fails with `all CUDA-capable devices are busy or unavailable`, and the "
            "other ranks wait for that one",
            evidence=[gpu.evidence(f"{gpu.label}: compute mode {gpu.compute_mode}, {held or 'no process on it'}")],
            fixes=[*wait, _default_mode(gpu)],
        )

    def _exclusive(self, seen: GpuViews) -> Iterator[Finding]:
        alone = [gpu for gpu in seen.visible if gpu.compute_mode not in (None, "default")]
        if alone:
            yield self.finding(
                f"{len(alone)} GPUs are in compute mode {alone[0].compute_mode}: one process each may use them",
                because="a rank that does not call set_device(LOCAL_RANK) first lands on GPU 0 and fails there",
                evidence=[gpu.evidence(f"{gpu.label}: compute mode {gpu.compute_mode}") for gpu in alone[:2]],
                fixes=[_default_mode(gpu) for gpu in alone[:1]],
                severity=Severity.NOTE,
            )

    def _mig(self, seen: GpuViews) -> Iterator[Finding]:
        cut = [gpu for gpu in seen.visible if gpu.mig]
        if not cut:
            return
        several = seen.ranks is not None and seen.ranks[0] > 1
        yield self.finding(
            f"{cut[0].label} is cut into MIG instances, and {seen.ranks[0] if seen.ranks else 1} "
            f"{'ranks are' if several else 'rank is'} to run on this node",
            because="a process sees one MIG instance, whatever the mask lists, and NCCL does not connect two "
            "instances: multi-rank jobs end in `invalid usage` or a duplicate GPU",
            evidence=[gpu.evidence(f"{gpu.label}: MIG on, {len(gpu.mig_uuids)} instances") for gpu in cut[:2]]
            + ([seen.ranks[1]] if seen.ranks else []),
            fixes=[
                Fix(
                    title="use whole GPUs for multi-rank jobs",
                    commands=(f"sudo nvidia-smi -i {cut[0].index} --multi-instance-gpu=0",),
                    needs="root, an idle GPU",
                )
            ],
            severity=Severity.ERROR if several else Severity.NOTE,
            confidence=Confidence.LIKELY,
        )

    def _slow(self, seen: GpuViews) -> Iterator[Finding]:
        cold = [gpu for gpu in seen.gpus if gpu.persistence is False]
        driver: DriverState | None = seen.driver
        if driver is None or driver.unanswered or driver.seconds < SLOW_SECONDS or not cold:
            return
        yield self.finding(
            f"the driver took {driver.seconds:.0f} s to answer, most of it in {driver.slowest}: persistence mode is off",
            because="without it the driver is loaded anew for each first user; every rank pays this at its start",
            evidence=[driver.evidence(), cold[0].evidence(f"{cold[0].label}: persistence mode off")],
            fixes=[Fix(title="keep the driver loaded", commands=("sudo nvidia-smi -pm 1",), needs="root")],
            severity=Severity.NOTE,
        )


def _default_mode(gpu: DriverGpu) -> Fix:
    return Fix(
        title="let several processes use it",
        commands=(f"sudo nvidia-smi -i {gpu.index} --compute-mode=DEFAULT",),
        needs="root",
    )
