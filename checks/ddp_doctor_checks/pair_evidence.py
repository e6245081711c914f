"""What the doctor's own copies between GPUs prove, and what the PCI bus, the IOMMU and the machine have to do with it.

`blamed(facts)` is the id of the check that the copies point to; the others then leave the pairs to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_doctor.facts.gpu import DriverGpu, GpuNode
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.p2p import WAYS, P2pPair, PairCopy, PairRoute
from ddp_doctor.facts.pcie import Between, Machine, PciPath, between, pci_address
from ddp_doctor.model import Check, Confidence, Evidence, Fact, Facts, Finding, Fix

READS: tuple[type[Fact], ...] = (PairCopy, P2pPair, PairRoute, PciPath, Machine, DriverGpu, GpuNode, Variable)
MOST_PAIRS = 4
WITHOUT_P2P = Fix(
    title="until then keep NCCL from using P2P (slower, a work-around)", commands=("export NCCL_P2P_DISABLE=1",)
)
PASS_THROUGH = Fix(
    title="let the IOMMU pass DMA through unchanged (add to GRUB_CMDLINE_LINUX), or switch ACS off in the BIOS",
    commands=(
        "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub",
        "sudo update-grub",
        "sudo reboot",
    ),
    needs="root, reboot",
)
OTHER_HOST = Fix(
    title="in a virtual machine only its host can change ACS and the IOMMU: ask for a machine type with P2P, or go without",
    commands=("export NCCL_P2P_DISABLE=1",),
)


def blamed(facts: Facts) -> str:
    """DDP401, DDP402 or DDP403, or empty where no copy failed."""
    if damaged(facts):
        return "DDP402" if clean(facts, damaged(facts)) else "DDP401"
    if refused(facts):
        return "DDP403" if virtual(facts) else "DDP402"
    return ""


def findings(check: Check, facts: Facts) -> Iterator[Finding]:
    """The finding of the check that the copies point to."""
    if blamed(facts) != check.id:
        return
    harmed = damaged(facts)
    if harmed:
        wrong = any(copy.outcome == "wrong-data" for copy in harmed)
        yield check.finding(
            f"data between {_named(harmed)} {'arrives wrong' if wrong else 'never arrives'}: {harmed[0].text()}",
            because="driver and CUDA promise P2P between them, so NCCL uses it, and its kernels wait for this data. "
            + reasons(facts, harmed),
            evidence=[*_evidence(harmed), *surroundings(facts, harmed)],
            fixes=list(fixes(facts, harmed)),
            confidence=Confidence.CERTAIN if wrong and check.id == "DDP401" else Confidence.LIKELY,
        )
        return
    stopped = refused(facts)
    first = stopped[0]
    other = [copy for copy in facts[PairCopy] if copy.outcome == "passed" and copy.mechanism != first.mechanism]
    means = Fix(title="let NCCL use CUDA IPC, which works here", commands=("export NCCL_CUMEM_ENABLE=0",))
    yield check.finding(
        f"no process can use the memory of another one's GPU between {_named(stopped)}: {first.text()}",
        because="driver and CUDA promise P2P between them, and NCCL does not go on where joining that memory fails"
        + ("; this is a virtual machine, which need not offer it" if virtual(facts) else ""),
        evidence=[*_evidence(stopped), *surroundings(facts, stopped)],
        fixes=[*([means] if other and first.mechanism == "cumem" else []), WITHOUT_P2P],
        confidence=Confidence.LIKELY,
    )


def damaged(facts: Facts) -> list[PairCopy]:
    """The copies that set out and did not arrive unharmed."""
    return [copy for copy in facts[PairCopy] if copy.arrived is False]


def refused(facts: Facts) -> list[PairCopy]:
    """The copies that could not set out, by the mechanism that this NCCL uses for the pair."""
    stopped = [copy for copy in facts[PairCopy] if copy.outcome in ("failed", "no-answer")]
    return [copy for copy in stopped if copy.step in ("open", "map") and copy.mechanism == _used(copy, facts)]


def _used(copy: PairCopy, facts: Facts) -> str:
    """Which mechanism NCCL takes: cuMem from 2.19 on where the GPU has it and nobody switched it off."""
    off = any(each.name == "NCCL_CUMEM_ENABLE" and each.value == "0" and each.in_effect for each in facts[Variable])
    old = any(tuple(map(int, each.version.split(".")[:2])) < (2, 19) for each in facts[PairRoute] if each.version)
    has = [each for each in facts[PairCopy] if each.mechanism == "cumem" and each.outcome != "unsupported"]
    return "cumem" if not off and not old and (has or copy.mechanism == "cumem") else "ipc"


def clean(facts: Facts, copies: Sequence[PairCopy] = ()) -> bool:
    """Whether it is known that neither ACS nor an IOMMU nor a virtual machine can be what harms data between these pairs
    (all pairs without any)."""
    known = _concerned(facts, copies)
    over_pci = bool(known) and facts.first(Machine) is not None and not virtual(facts)
    return by_nvlink(facts, copies) or (over_pci and all(way.clean for way in known))


def by_nvlink(facts: Facts, copies: Sequence[PairCopy] = ()) -> bool:
    """Whether NVLink joins each of these pairs (all pairs without any): it knows neither ACS nor an IOMMU."""
    pairs = {_pair(copy) for copy in copies}
    links = {pair.link for pair in facts[P2pPair] if not pairs or _pair(pair) in pairs}
    return links == {"nvlink"}


def virtual(facts: Facts) -> bool:
    """Whether these GPUs are a virtual machine's."""
    machine, node = facts.first(Machine), facts.first(GpuNode)
    vgpu = any(gpu.virtualization in ("vgpu", "passthrough") for gpu in facts[DriverGpu])
    return bool(machine and machine.hypervisor) or bool(node and node.wsl) or vgpu


def ways(facts: Facts) -> dict[tuple[int, int], Between]:
    """What lies on the PCI bus between two GPUs, for each pair whose places are known."""
    paths = {path.address: path for path in facts[PciPath]}
    places = {gpu.index: paths.get(pci_address(gpu.pci)) for gpu in facts[DriverGpu] if gpu.pci}
    return {
        (first, second): between(one, other)
        for first, one in places.items()
        for second, other in places.items()
        if one and other and first < second
    }


def reasons(facts: Facts, copies: Sequence[PairCopy] = ()) -> str:
    """What is known to stand between these pairs (all pairs without any), as a sentence."""
    if by_nvlink(facts, copies):
        return "NVLink joins them, where neither ACS nor an IOMMU is in the way, so it is the driver or a card"
    if virtual(facts):
        return (
            "this is a virtual machine, where the host decides about IOMMU and ACS, and they cannot be seen from here"
        )
    known = _concerned(facts, copies)
    told = [text for way in known if (text := way.text())]
    if told:
        return told[0]
    if clean(facts, copies):
        return "neither ACS nor an IOMMU redirects it here, so it is the driver or the card"
    return "what lies between the GPUs (IOMMU, PCIe ACS) does not keep the promise"


def surroundings(facts: Facts, copies: Sequence[PairCopy] = ()) -> list[Evidence]:
    """The machine and the GPUs' ways on the bus, as quotations."""
    numbers = {number for copy in copies for number in (copy.first, copy.second)}
    wanted = {pci_address(gpu.pci) for gpu in facts[DriverGpu] if gpu.index in numbers or not numbers}
    paths = [path.evidence() for path in facts[PciPath] if path.address in wanted]
    return [*(machine.evidence() for machine in facts[Machine][:1]), *paths[:MOST_PAIRS]]


def fixes(facts: Facts, copies: Sequence[PairCopy] = ()) -> Iterator[Fix]:
    """What mends it on this machine."""
    if virtual(facts) and not by_nvlink(facts, copies):
        yield OTHER_HOST
        return
    bridges = sorted({bridge for way in _concerned(facts, copies) for bridge in way.redirecting})
    if bridges and not by_nvlink(facts, copies):
        yield Fix(
            title="switch ACS off on the bridges between the GPUs, until the next boot; for good in the BIOS",
            commands=tuple(f"sudo setpci -s {bridge} ECAP_ACS+6.w=0000" for bridge in bridges),
            needs="root",
        )
    if not clean(facts, copies):
        yield PASS_THROUGH
    else:
        yield Fix(
            title="update the driver",
            commands=("nvidia-smi --query-gpu=name,driver_version --format=csv",),
            needs="root, reboot",
        )
    yield WITHOUT_P2P


def _concerned(facts: Facts, copies: Sequence[PairCopy]) -> list[Between]:
    pairs = {_pair(copy) for copy in copies}
    return [way for pair, way in ways(facts).items() if not pairs or pair in pairs]


def _pair(of: PairCopy | P2pPair) -> tuple[int, int]:
    return min(of.first, of.second), max(of.first, of.second)


def _named(copies: Sequence[PairCopy]) -> str:
    pairs = sorted({_pair(copy) for copy in copies})
    text = ", ".join(f"{first}-{second}" for first, second in pairs[:MOST_PAIRS])
    return f"GPUs {text}" + (" ..." if len(pairs) > MOST_PAIRS else "")


def _evidence(copies: Sequence[PairCopy]) -> list[Evidence]:
    """One line per pair and mechanism: the other direction says the same."""
    shown: dict[tuple[tuple[int, int], str], PairCopy] = {}
    for copy in copies:
        shown.setdefault((_pair(copy), WAYS[copy.mechanism]), copy)
    return [copy.evidence() for copy in list(shown.values())[:MOST_PAIRS]]
