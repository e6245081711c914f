"""All that is known of the GPUs of one node, side by side, for checks that compare the views."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState, GpuNode
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.facts.software import TorchCuda, TorchInstall, TorchRuntime, TrialRank
from ddp_doctor.model import Evidence, Fact, Facts

ROCM = "this torch is a ROCm build"

SEEN: tuple[type[Fact], ...] = (GpuNode, DriverState, DriverGpu, CudaView, TorchInstall)
"""What is behind a GpuViews without asking torch or a launcher."""
READS: tuple[type[Fact], ...] = (*SEEN, TorchCuda, TorchRuntime, Launcher, TrialRank)
"""Every kind that a GpuViews shows."""

F = TypeVar("F", bound=Fact)


class GpuViews(msgspec.Struct, frozen=True, kw_only=True):
    """One node. `cuda` is CUDA's view under the mask and `whole` the one without it (the same where no mask is set)."""

    host: str
    node: GpuNode | None = None
    driver: DriverState | None = None
    gpus: tuple[DriverGpu, ...] = ()
    cuda: CudaView | None = None
    whole: CudaView | None = None
    torch: TorchCuda | None = None
    build: TorchInstall | TorchRuntime | None = None
    launchers: tuple[Launcher, ...] = ()
    trial: TrialRank | None = None

    @property
    def torch_cuda(self) -> str:
        """The CUDA version torch was built with, empty for a CPU or ROCm build or where it is not known."""
        return self.build.cuda if self.build else ""

    @property
    def visible(self) -> tuple[DriverGpu, ...]:
        """The GPUs that CUDA sees under the mask; all of them where CUDA does not say."""
        if self.cuda is None or not self.cuda.works:
            return self.gpus
        seen = {device.gpu_uuid for device in self.cuda.devices}
        return tuple(gpu for gpu in self.gpus if gpu.uuid in seen)

    @property
    def hidden(self) -> tuple[DriverGpu, ...]:
        """The GPUs outside the mask."""
        return tuple(gpu for gpu in self.gpus if gpu not in self.visible)

    @property
    def ranks(self) -> tuple[int, Evidence] | None:
        """How many ranks share this node, and where that is said: a live launcher's variables, or NCCL trial ranks."""
        for launcher in self.launchers:
            if launcher.local_world_size and launcher.alive is not False:
                said = f"{launcher.name}: {launcher.local_world_size} ranks on this node"
                return launcher.local_world_size, launcher.evidence(said)
        if self.trial is not None and self.trial.backend == "nccl":
            return self.trial.world_size, self.trial.evidence(f"--nproc {self.trial.world_size}")
        return None

    def evidence(self, *facts: Fact | None) -> list[Evidence]:
        """Those of the facts that are there, as quotations."""
        return [fact.evidence() for fact in facts if fact is not None]


def gpu_views(facts: Facts) -> tuple[GpuViews, ...]:
    """One per node that any fact about GPUs names. Ranks of one node see the same GPUs: the first rank's view counts."""
    kinds: tuple[type[Fact], ...] = (GpuNode, DriverState, DriverGpu, CudaView)
    hosts = dict.fromkeys(fact.subject.host for kind in kinds for fact in facts[kind])
    return tuple(_views(facts, host) for host in hosts)


def _views(facts: Facts, host: str) -> GpuViews:
    here = facts.on(host)
    gpus = {gpu.index: gpu for gpu in reversed(here[DriverGpu])}
    masked = first(view for view in here[CudaView] if view.masked)
    unmasked = first(view for view in here[CudaView] if not view.masked)
    return GpuViews(
        host=host,
        node=first(here[GpuNode]),
        driver=first(here[DriverState]),
        gpus=tuple(gpus[index] for index in sorted(gpus)),
        cuda=masked,
        whole=unmasked or (masked if masked is not None and masked.mask is None else None),
        torch=first(here[TorchCuda]),
        build=first(found for found in here[TorchInstall] if found.path) or first(here[TorchRuntime]),
        launchers=here[Launcher],
        trial=first(here[TrialRank]),
    )


def first(found: Iterable[F]) -> F | None:
    """The first, or None."""
    return next(iter(found), None)


def why_not_nvidia(facts: Facts) -> str:
    """Why NVIDIA's checks say nothing here, or an empty string."""
    builds: tuple[TorchInstall | TorchRuntime, ...] = (*facts[TorchInstall], *facts[TorchRuntime])
    return ROCM if any(build.hip for build in builds) else ""


def without_gpu(facts: Facts) -> str:
    """Why a check about GPUs says nothing here: a ROCm build, or no NVIDIA GPU that anything shows."""
    seen = gpu_views(facts)
    if seen and all(
        not view.gpus
        and (view.node is not None and not view.node.has_gpu and view.node.pci is not None)
        and not (view.cuda and (view.cuda.works or view.cuda.unanswered))
        for view in seen
    ):
        return why_not_nvidia(facts) or "no NVIDIA GPU here"
    return why_not_nvidia(facts)
