"""The lines of a healthy report: what each group of checks looked at, in one sentence of facts."""

from __future__ import annotations

from collections import Counter

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState, GpuNode
from ddp_doctor.facts.host import Limit, ShmSpace, size
from ddp_doctor.facts.launch import Ancestor, Launcher, Variable
from ddp_doctor.facts.names import GlooInterface, NcclInterface, Resolution
from ddp_doctor.facts.p2p import PairRoute
from ddp_doctor.facts.rendezvous import Meeting, Port, StoreAnswer
from ddp_doctor.facts.script import ScriptRead
from ddp_doctor.facts.software import TorchCuda, TorchRuntime, TrialRank
from ddp_doctor.interpret.launcher import OWN_RANKS, started_by
from ddp_doctor.model import Facts, Headline


def launch_environment(facts: Facts) -> str:
    """Who started this process as which rank, or that nobody did."""
    launcher = started_by(facts)
    if launcher is not None:
        how = "set by hand" if launcher.name == "by hand" else f"started by {launcher.name}"
        return f"rank {launcher.rank} of {launcher.world_size}, {how}"
    names = [found.name for found in facts[Launcher] if found.alive]
    if names:
        return f"inside {names[0]}, not one of its ranks"
    if any(found.name in OWN_RANKS for found in facts[Variable]):
        return "rank variables are set, but they make no rank"
    # without ancestors this shell was not looked at, but somebody else's processes
    return "RANK and WORLD_SIZE are not set; torchrun will set them" if facts[Ancestor] else ""


def name_and_address(facts: Facts) -> str:
    """What this node's name resolves to, and MASTER_ADDR where it is set."""
    return ", ".join(f"{found.name} -> {_addresses(found)}" for found in facts[Resolution] if found.addresses)


def _addresses(found: Resolution) -> str:
    shown = ", ".join(found.addresses)
    own = found.role == "hostname" and all(address.startswith(("127.", "::1")) for address in found.addresses)
    return f"{shown} (loopback: fine on one node)" if own else shown


def store_port(facts: Facts) -> str:
    """Whether the port of the store is free."""
    port, meeting = facts.first(Port), facts.first(Meeting)
    if port is None:
        return ""
    which = "MASTER_PORT" if port.named else "torchrun's default"
    if port.named and meeting is not None and meeting.hosts is False:
        answers = {answer.verdict: answer for answer in facts[StoreAnswer] if answer.name == meeting.address}
        said = f"{port.port} ({which}) is rank 0's"
        if "store" in answers:
            return f"{said}; {answers['store'].text()}"
        if "refused" in answers:
            return f"{said}; {answers['refused'].text()}, as is normal before rank 0 has started"
        return "" if answers else said
    return f"{port.port} ({which}) is free on all addresses" if port.bindable else ""


def interfaces(facts: Facts) -> str:
    """The interfaces that NCCL and Gloo choose."""
    nccl, gloo = facts.first(NcclInterface), facts.first(GlooInterface)
    said = []
    if nccl is not None and nccl.interface:
        said.append(f"NCCL will choose {nccl.interface} (asked libnccl {nccl.version})")
    if gloo is not None and gloo.interface:
        said.append(f"Gloo {'will choose ' if not said else ''}{gloo.interface} (by {gloo.chosen_by})")
    return ", ".join(said)


def gpus_and_driver(facts: Facts) -> str:
    """How many GPUs the driver, CUDA and torch see."""
    node, driver, cuda, torch = (
        facts.first(GpuNode),
        facts.first(DriverState),
        facts.first(CudaView),
        facts.first(TorchCuda),
    )
    if node is not None and not node.has_gpu and not (driver and driver.works):
        return "no NVIDIA GPU on this machine; ranks use Gloo"
    counts = {
        "the driver": driver.gpus if driver and driver.works else None,
        "CUDA": cuda.count if cuda and cuda.works else None,
        "torch": torch.device_count if torch and torch.available else None,
    }
    known = {who: count for who, count in counts.items() if count is not None}
    if len(known) < 2:
        return ", ".join(f"{who} sees {count}" for who, count in known.items())
    busy = sum(bool(gpu.processes) for gpu in facts[DriverGpu])
    used = f"; {busy} in use" if busy else "; idle"
    if len(set(known.values())) == 1:
        return f"{', '.join(known)} agree on {next(iter(known.values()))} GPUs{used}"
    return ", ".join(f"{who} sees {count}" for who, count in known.items()) + used


def pairs_of_gpus(facts: Facts) -> str:
    """How NCCL will join the GPUs of this node."""
    routes = facts[PairRoute]
    if not routes:
        return ""
    ways = Counter(route.route for route in routes if route.first < route.second)
    if set(ways) == {"p2p"}:
        links = {route.link for route in routes}
        over = "NVLink" if links == {"nvlink"} else "PCIe" if "nvlink" not in links else "NVLink or PCIe"
        said = f"P2P over {over} for every pair"
    else:
        names = {"p2p": "by P2P", "shm": "through shared memory", "net": "over the network", "fails": "not at all"}
        said = ", ".join(f"{count} {names[way]}" for way, count in sorted(ways.items()))
        said = f"of {ways.total()} pairs {said}" if ways.total() > 1 else said.removeprefix("1 ")
    return f"NCCL {routes[0].version} joins them: {said}"


def trial_communicator(facts: Facts) -> str:
    """The doctor's own communicator on NCCL."""
    ranks = [rank for rank in facts[CommunicatorRank] if not rank.without_p2p]
    if not ranks or any(rank.outcome != "passed" for rank in ranks):
        return ""
    slowest = max(rank.seconds for rank in ranks)
    return f"{len(ranks)} ranks on NCCL {ranks[0].version} initialised and all-reduced right values in {slowest:.2f} s"


def trial_ranks(facts: Facts) -> str:
    """Ranks of the doctor's own that went through init and a checked all-reduce."""
    ranks = facts[TrialRank]
    if not ranks or any(rank.outcome != "passed" for rank in ranks):
        return ""
    slowest = max(rank.seconds for rank in ranks)
    runtime = facts.first(TorchRuntime)
    version = f" with torch {runtime.version}" if runtime else ""
    backends = " and ".join(sorted({rank.backend for rank in ranks}))
    return (
        f"{ranks[0].world_size} {backends} ranks initialised and all-reduced right values in {slowest:.2f} s{version}"
    )


def room_and_limits(facts: Facts) -> str:
    """Shared memory and open files."""
    shm = facts.first(ShmSpace)
    files = next((limit for limit in facts[Limit] if limit.name == "nofile"), None)
    said = []
    if shm is not None and not shm.error:
        said.append(f"/dev/shm {size(shm.free)} free")
    if files is not None:
        said.append(f"{files.soft or 'unlimited'} open files")
    return ", ".join(said)


def script(facts: Facts) -> str:
    """Which scripts were read."""
    read = [found for found in facts[ScriptRead] if not found.error]
    if len(read) == 1:
        return f"{read[0].path}: {read[0].lines} lines read"
    return f"{len(read)} files, {sum(found.lines for found in read)} lines read" if read else ""


HEADLINES = (
    Headline(
        title="launch environment", ids=("DDP102", "DDP109", "DDP110", "DDP117", "DDP118"), say=launch_environment
    ),
    Headline(title="name and address", ids=("DDP201", "DDP204"), say=name_and_address),
    Headline(title="port", ids=("DDP112", "DDP209"), say=store_port),
    Headline(title="interfaces", ids=("DDP301", "DDP303"), say=interfaces),
    Headline(title="GPUs and driver", ids=("DDP403", "DDP407", "DDP408", "DDP413", "DDP501"), say=gpus_and_driver),
    Headline(title="pairs of GPUs", ids=("DDP406",), say=pairs_of_gpus),
    Headline(title="trial communicator", ids=("DDP401", "DDP402", "DDP508"), say=trial_communicator),
    Headline(title="trial ranks", ids=("DDP507", "DDP508"), say=trial_ranks),
    Headline(title="room and limits", ids=("DDP405", "DDP503"), say=room_and_limits),
    Headline(title="script", ids=("DDP103", "DDP104", "DDP107", "DDP115", "DDP601", "DDP605"), say=script),
)
