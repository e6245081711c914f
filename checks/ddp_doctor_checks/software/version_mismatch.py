"""DDP501: versions of driver, CUDA, NCCL and torch that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.gpu import CudaView, DriverClash, DriverState
from ddp_doctor.facts.gpu_views import READS, GpuViews, gpu_views, why_not_nvidia
from ddp_doctor.facts.software import TorchInstall, TorchRuntime
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Told
from ddp_doctor_checks import communicator
from ddp_doctor_checks.software import nccl_version_live
from ddp_doctor_checks.software.nccl_version import wrong_nccl
from ddp_doctor_checks.software.version_mismatch_meeting import from_meeting


class VersionMismatch(Check):
    id, name = "DDP501", "version-mismatch"
    title = "Versions that do not belong together"
    needs = (CudaView, DriverState, (TorchInstall, TorchRuntime))
    also_reads = (*READS, Attendee, DriverClash, *communicator.READS, *nccl_version_live.READS)
    explains = ("DDP507",)
    told = Told(
        because="parts that were built or released for each other are not the ones that are loaded: driver, CUDA, NCCL "
        "and torch, here or between nodes",
        fixes=(
            Fix(
                title="see what is loaded on every node",
                commands=(
                    'python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())"',
                    'pip list | grep -iE "nccl|torch|cupy"; nvidia-smi | head -n4',
                ),
                needs="nothing",
            ),
            Fix(
                title="install one set everywhere, and keep a system NCCL out of the way",
                commands=(
                    "env -u LD_LIBRARY_PATH -u LD_PRELOAD python train.py",
                    "pip install --force-reinstall torch",
                ),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        if communicator.shows(self.id, facts) or any(nccl_version_live.from_job(facts)) or any(from_meeting(facts)):
            return ""
        # a library that lacks a function ends the import on any machine
        return "" if any(wrong_nccl(self, facts)) else why_not_nvidia(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for each in nccl_version_live.from_job(facts):
            yield self.finding(**each)
        yield from wrong_nccl(self, facts)
        for met in from_meeting(facts):
            yield self.finding(**met)
        for seen in gpu_views(facts):
            for clash in facts[DriverClash]:
                if clash.subject.host == seen.host:
                    yield self.finding(
                        clash.meaning,
                        because=clash.because,
                        evidence=seen.evidence(clash, seen.node, seen.driver, seen.cuda, seen.build, seen.torch),
                        fixes=driver_fixes(seen, clash),
                        confidence=Confidence.CERTAIN if clash.measured else Confidence.LIKELY,
                    )


def driver_fixes(seen: GpuViews, clash: DriverClash) -> list[Fix]:
    """What mends each clash between the kernel module, the driver's libraries and torch."""
    if clash.between == "compat-driver":
        return [
            Fix(
                title="take the compatibility libraries out of the way",
                commands=(
                    "export LD_LIBRARY_PATH=$(echo $LD_LIBRARY_PATH | tr : '\\n' | grep -v compat | paste -sd:)",
                ),
            )
        ]
    if clash.between == "module-library":
        if seen.node and seen.node.container:
            return [
                Fix(
                    title="restart the container, so that it gets the host's libraries anew",
                    commands=("docker restart CONTAINER",),
                    needs="container restart",
                )
            ]
        return [
            Fix(
                title="load the new kernel module with no process on a GPU; a reboot does the same",
                commands=(
                    "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia && nvidia-smi -L",
                ),
                needs="root, idle GPUs",
            )
        ]
    runs = (
        seen.cuda.cuda_version
        if seen.cuda and seen.cuda.cuda_version
        else seen.driver.cuda_version
        if seen.driver
        else ""
    )
    tag = {"11": "cu118", "12": "cu126"}.get(runs.split(".")[0])
    fixes = [
        Fix(
            title="install a newer driver (here by Ubuntu's tool), then reboot",
            commands=("sudo ubuntu-drivers install --gpgpu",),
            needs="root, reboot",
        )
    ]
    python = seen.build.python if isinstance(seen.build, TorchInstall) else "python"
    if tag:
        fixes.append(
            Fix(
                title=f"or a torch built with the CUDA {runs.split('.')[0]} that this driver runs",
                commands=(
                    f"{python} -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{tag}",
                ),
                needs="a change of the environment",
            )
        )
    return fixes
