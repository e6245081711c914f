"""DDP113: this build of torch lacks what a process group needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ddp_doctor.facts.gpu import CudaView
from ddp_doctor.facts.software import TorchRuntime
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

INDEX = {"11": "cu118", "12": "cu126", "13": "cu130"}


class PlatformBuild(Check):
    id, name = "DDP113", "platform-build"
    title = "This build of torch lacks a part that process groups need"
    needs = (TorchRuntime,)
    also_reads = (CudaView,)
    acts_at = INIT | {Stage.PYTHON}
    told = Told(
        because="torch for Windows and macOS has no NCCL, and some of its builds no libuv, which the store asks for since "
        "2.4",
        fixes=(
            Fix(
                title="use Gloo there, and the store without libuv",
                commands=('dist.init_process_group("gloo")', "USE_LIBUV=0   # set for the job"),
                needs="code change, job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        runtime = facts.first(TorchRuntime)
        return "torch could not be imported" if runtime and runtime.outcome != "imported" else ""

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for runtime in facts[TorchRuntime]:
            if not runtime.distributed:
                yield self.finding(
                    f"torch {runtime.version} was built without torch.distributed",
                    because="there is no init_process_group in it, with any backend",
                    evidence=[runtime.evidence("torch.distributed.is_available() False")],
                    fixes=[_official(runtime)],
                )
                continue
            if not runtime.gloo:
                yield self.finding(
                    f"torch {runtime.version} was built without Gloo",
                    because="CPU tensors cannot be reduced, and whatever asks for a Gloo group of its own fails: "
                    "monitored_barrier, asynchronous checkpoints, TORCH_DISTRIBUTED_DEBUG=DETAIL",
                    evidence=[runtime.evidence("torch.distributed.is_gloo_available() False")],
                    fixes=[_official(runtime)],
                    severity=Severity.WARNING if runtime.nccl_backend else Severity.ERROR,
                )
            view = next((view for view in facts[CudaView] if view.masked and view.works and view.count), None)
            if view is not None and not runtime.cuda and not runtime.hip:
                yield self.finding(
                    f"torch {runtime.version} is a CPU build, and this node has {view.count} GPUs for it",
                    because='it has neither CUDA nor NCCL: init_process_group("nccl") fails at once on this node',
                    evidence=[runtime.evidence("torch.version.cuda None"), view.evidence()],
                    fixes=[_with_cuda(runtime, view)],
                    severity=Severity.WARNING,
                    confidence=Confidence.LIKELY,
                )
            if runtime.libuv is False:
                yield self.finding(
                    f"torch {runtime.version} was built without libuv, which its store asks for by default",
                    because="from torch 2.4 on env:// and torchrun open the store with libuv unless USE_LIBUV is 0",
                    evidence=[runtime.evidence("use_libuv was requested but PyTorch was built without libuv support")],
                    fixes=[
                        Fix(title="use the store that needs no libuv, on every node", commands=("export USE_LIBUV=0",))
                    ],
                )


def _python(runtime: TorchRuntime) -> str:
    return shlex.quote(runtime.source.rpartition(" -c ")[0] or "python")


def _with_cuda(runtime: TorchRuntime, view: CudaView) -> Fix:
    """A build for a CUDA that this driver runs; any minor version of the same major does."""
    build = INDEX.get(view.cuda_version.partition(".")[0])
    where = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
    return Fix(
        title=f"install a build with CUDA {view.cuda_version.partition('.')[0]}, if these ranks are to use the GPUs",
        commands=(f"{_python(runtime)} -m pip install --force-reinstall torch{where}",),
    )


def _official(runtime: TorchRuntime) -> Fix:
    return Fix(
        title="install a build that has it; the published Linux wheels do",
        commands=(f"{_python(runtime)} -m pip install --force-reinstall torch",),
    )
