"""What the trial communicator proves, as findings of the checks whose causes it shows.

A check yields `communicator.findings(self, facts)` beside what its own evidence shows, and asks
`communicator.shows(self.id, facts)` before it says that it does not apply.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import Any

from ddp_doctor.facts.communicator import CommunicatorCause, CommunicatorRank, CommunicatorStop
from ddp_doctor.facts.gpu_views import without_gpu
from ddp_doctor.facts.p2p import PairCopy
from ddp_doctor.model import Check, Confidence, Evidence, Fact, Facts, Finding, Fix, Severity
from ddp_doctor_checks import pair_evidence

READS: tuple[type[Fact], ...] = (CommunicatorCause, CommunicatorRank, CommunicatorStop, *pair_evidence.READS)
Arguments = dict[str, Any]
MOST_STOPS = 4


def from_communicator(facts: Facts) -> Iterator[tuple[str, Arguments]]:
    """The id of each cause that a trial communicator showed, and the arguments of its finding."""
    for cause in facts[CommunicatorCause]:
        told = _TELL.get(cause.fault)
        if told is not None:
            finding_id, arguments = told(cause, facts)
            arguments.setdefault("confidence", Confidence.CERTAIN if cause.certain else Confidence.LIKELY)
            arguments.setdefault("ranks", cause.ranks)
            arguments["evidence"] = [*_evidence(cause, facts), *arguments.get("evidence", ())]
            yield finding_id, arguments


def findings(check: Check, facts: Facts) -> Iterator[Finding]:
    """The findings of this check that a trial communicator shows."""
    for finding_id, arguments in from_communicator(facts):
        if finding_id == check.id:
            yield check.finding(arguments.pop("summary"), **arguments)


def shows(finding_id: str, facts: Facts) -> bool:
    """Whether a trial communicator shows the cause with this id."""
    return any(shown == finding_id for shown, _ in from_communicator(facts))


def without_gpu_or_trial(finding_id: str, facts: Facts) -> str:
    """Why a check of GPUs does not apply: there are none here, and no trial shows its cause."""
    return "" if shows(finding_id, facts) else without_gpu(facts)


def not_tried(finding_id: str, facts: Facts) -> str:
    """Why a check that a trial alone can feed does not apply: there is nothing to form a communicator with."""
    absent = next((absent for absent in facts.lacking(CommunicatorStop) if absent.status == "absent"), None)
    return absent.reason if absent and not shows(finding_id, facts) else ""


def _evidence(cause: CommunicatorCause, facts: Facts) -> Iterator[Evidence]:
    yield cause.evidence()
    stops = sorted(facts[CommunicatorStop], key=lambda stop: stop.rank not in cause.ranks)
    for stop in stops[:MOST_STOPS]:
        if stop.line and stop.line != cause.line:
            yield stop.evidence()


def _ranks(cause: CommunicatorCause) -> str:
    numbers = ", ".join(map(str, cause.ranks))
    return f"rank {numbers}" if len(cause.ranks) == 1 else f"ranks {numbers}"


def _wait(cause: CommunicatorCause) -> str:
    if not cause.waiting:
        return ""
    return f"; rank {', '.join(map(str, cause.waiting))} waits for it, and NCCL has no time-out there"


def _first(facts: Facts, cause: CommunicatorCause) -> CommunicatorRank:
    """The trial rank that the cause is about (or that reported it)."""
    trial = facts[CommunicatorRank]
    return next((rank for rank in trial if rank.rank in cause.ranks), trial[0])


def _interface(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    value = cause.details.get("value", "")
    named = f"NCCL_SOCKET_IFNAME={value}" if value else "what NCCL looks for"
    return "DDP301", {
        "summary": f"{_ranks(cause)}: {named} matches no usable interface of this node",
        "because": "NCCL does not fall back to another interface when a name is set" + _wait(cause),
        "fixes": [
            Fix(
                title="let NCCL choose; if that is wrong, name an interface of `ip -br addr`, on every node its own",
                commands=("unset NCCL_SOCKET_IFNAME", "grep -s NCCL_SOCKET_IFNAME ~/.nccl.conf /etc/nccl.conf"),
            )
        ],
    }


def _unreachable(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    address, interface, error = (cause.details.get(name, "") for name in ("address", "interface", "error"))
    own = f"{_ranks(cause)} told the others to connect to {address} ({interface})"
    if cause.details.get("shared") or _local_only(address) or interface.startswith(("docker", "virbr", "lo")):
        why = (
            "every machine has that address itself, so each connects to itself"
            if cause.details.get("shared") or not address.startswith("127.")
            else "that is each machine's own loopback"
        )
        fix = Fix(
            title="let NCCL choose, or name the interface that reaches the other nodes (`ip -br addr`), on each node its own",
            commands=("unset NCCL_SOCKET_IFNAME",),
        )
        return "DDP301", {"summary": own, "because": f"{why}: {error.lower()}", "fixes": [fix]}
    return "DDP302", {
        "summary": f"{own}, and a rank there is answered: {error.lower()}",
        "because": "NCCL needs every rank to be reachable on ports that the kernel chooses, not on MASTER_PORT only",
        "fixes": [
            Fix(
                title="let the nodes of the job reach each other on all ports",
                commands=("sudo iptables -I INPUT -s NODE_SUBNET -j ACCEPT",),
                needs="root on every node",
            )
        ],
        "confidence": Confidence.LIKELY,
    }


def _local_only(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return False
    return found.is_loopback or found.is_link_local


def _missing(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    size = max(rank.world_size for rank in facts[CommunicatorRank])
    return "DDP101", {
        "summary": f"{_ranks(cause)} of {size} never came to NCCL's rendezvous",
        "because": "the bootstrap is complete only when every rank has checked in, and it waits without a time-out",
        "fixes": [
            Fix(title="see where that rank's process stands, or why it was not started", commands=("ddp-doctor attach --all",),
                needs="nothing")
        ],
    }  # fmt: skip


def _duplicate_gpu(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    first = _first(facts, cause)
    return "DDP106", {
        "summary": f"{_ranks(cause)} use one GPU, {first.pci or f'CUDA device {first.device}'}",
        "because": "NCCL refuses two ranks on one GPU",
        "fixes": [
            Fix(
                title="one GPU for each local rank: start no more ranks than GPUs, and choose before the first CUDA call",
                commands=("nvidia-smi -L", 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'),
                needs="code change, job restart",
            )
        ],
    }


def _duplicate_rank(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    return "DDP116", {
        "summary": f"two processes are {_ranks(cause)}",
        "because": "the second is refused, rank 0's rendezvous ends there, and no rank is told: all of them hang",
        "fixes": [
            Fix(
                title="let the launcher give each process its own RANK; set none by hand",
                commands=("unset RANK LOCAL_RANK",),
            )
        ],
    }


def _world_size(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    return "DDP117", {
        "summary": f"the ranks disagree on the world size: {cause.details.get('sizes', '')}",
        "because": "rank 0's rendezvous ends at the first that disagrees, and no rank is told: all of them hang",
        "fixes": [
            Fix(
                title="one value everywhere; torchrun computes it from --nnodes and --nproc-per-node, equal on every node",
                commands=("unset WORLD_SIZE",),
            )
        ],
    }


def _nccl_version(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    root = next((rank.version for rank in facts[CommunicatorRank] if rank.rank == 0), "")
    install = f"python -m pip install --no-deps --force-reinstall nvidia-nccl-cu12=={root}"
    return "DDP501", {
        "summary": f"the ranks have different NCCL versions: {cause.line.removeprefix('NCCL ')}",
        "because": "the messages of their rendezvous differ between versions; most pairs hang without an error code",
        "fixes": [Fix(title="the same wheel in every rank's environment (here rank 0's)", commands=(install,))],
    }


def _driver_version(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    return "DDP501", {
        "summary": f"{_ranks(cause)}: the driver's kernel module and its libraries have different versions",
        "because": "the driver was updated without a reboot, or a container brought another one" + _wait(cause),
        "fixes": [Fix(title="load the new kernel module", commands=("sudo reboot",), needs="root, reboot")],
    }


def _nvml_missing(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    return "DDP413", {
        "summary": f"{_ranks(cause)}: NCCL cannot use NVML",
        "because": "NCCL reads the topology of the GPUs through libnvidia-ml.so.1" + _wait(cause),
        "fixes": [
            Fix(
                title="in a container, ask for the capability that brings the library",
                commands=("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",),
                needs="container restart",
            )
        ],
    }


def _shm_full(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    size = cause.details.get("bytes", "")
    return "DDP405", {
        "summary": f"/dev/shm is too small for NCCL on {_ranks(cause)}"
        + (f": a segment of {int(size) / (1 << 20):.1f} MiB does not fit" if size else ""),
        "because": "each connection through shared memory takes some MiB there; NCCL 2.18 and older even die of a bus error",
        "fixes": [
            Fix(title="on this machine", commands=("mount -o remount,size=50% /dev/shm",), needs="root"),
            Fix(title="in a container, one of", commands=("docker run --shm-size=16g IMAGE", "docker run --ipc=host IMAGE"),
                needs="container restart"),
        ],
    }  # fmt: skip


def _shm_apart(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    devices = cause.details.get("devices", "")
    return "DDP404", {
        "summary": f"{_ranks(cause)} run on one machine, but NCCL takes them for ranks of several: "
        + (f"each has a /dev/shm of its own ({devices})" if devices else "NCCL_HOSTID or the host name differs"),
        "because": "neither P2P nor shared memory is then used between them, only the network"
        + (" (seen here: the trial went via NET)" if cause.details.get("via") == "NET" else ""),
        "fixes": [
            Fix(
                title="one /dev/shm for all ranks of a machine, and no NCCL_HOSTID",
                commands=("unset NCCL_HOSTID", "docker run --ipc=host IMAGE"),
                needs="container restart",
            )
        ],
        "severity": Severity.WARNING,
    }


def _net_absent(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    wanted = cause.details.get("net") or "another network"
    common = {
        "summary": f"{_ranks(cause)}: NCCL_NET={wanted}, and NCCL finds no such network here",
        "because": "a network that is asked for by name is not replaced by sockets: initialisation ends" + _wait(cause),
        "fixes": [
            Fix(title="let NCCL choose the network", commands=("unset NCCL_NET",)),
            Fix(
                title="or give the container the RDMA devices, where the machine has some (`ls /dev/infiniband`)",
                commands=("docker run --device=/dev/infiniband --ulimit memlock=-1 IMAGE",),
                needs="container restart",
            ),
        ],
    }
    return "DDP118" if cause.waiting else "DDP305", common


def _no_transport(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    return "DDP404", {
        "summary": f"{_ranks(cause)}: no transport is left between two GPUs",
        "because": "P2P, shared memory and the network are each switched off or impossible",
        "fixes": [Fix(title="switch none of them off", commands=("unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_NET",))],
    }


LOOK_AT_LINKS = Fix(
    title="look at the links, and start the fabric manager (machines with NVSwitch)",
    commands=("nvidia-smi nvlink --status", "sudo systemctl restart nvidia-fabricmanager"),
    needs="root",
)


def _nvlink(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    return "DDP406", {
        "summary": f"{_ranks(cause)}: the driver refuses P2P between GPUs that NVLink connects",
        "because": "NCCL takes this for a fault and ends; the fabric manager or a link is down",
        "fixes": [LOOK_AT_LINKS],
        "confidence": Confidence.LIKELY,
    }


LOOK_AT_GPU = Fix(
    title="look for an Xid of that GPU, then reset it with no process on it (a lost GPU needs a reboot)",
    commands=(
        "sudo dmesg -T | grep -iE 'NVRM|Xid' | tail",
        "nvidia-smi --query-gpu=index,pci.bus_id,uuid --format=csv",
    ),
    needs="root",
)
WITHOUT_P2P = Fix(
    title="as a work-around, not a cure: keep NCCL from using P2P",
    commands=("export NCCL_P2P_DISABLE=1",),
)


_WHERE = {
    "driver": "while NCCL starts the driver",
    "network": "while NCCL starts NVML",
    "bootstrap": "while NCCL starts NVML",
    "exchange": "while NCCL reads the GPU's identity",
    "topology": "while NCCL reads what connects the GPUs",
    "rings": "while NCCL prepares the connections",
    "connect": "while NCCL joins the connections",
    "connected": "after NCCL joined the connections",
    "first-connect": "while NCCL joins the connections",
}


def _stuck_in_driver(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    first = _first(facts, cause)
    call = cause.details.get("call", "")
    where = _WHERE.get(cause.details.get("phase", ""), "before the others")
    seen = (
        f"a thread of it stands in system call {call} that is no wait for a peer"
        if call
        else "it stands behind all others"
    )
    return "DDP407", {
        "summary": f"{_ranks(cause)} stopped {where}, on GPU {first.pci or first.device}",
        "because": f"in {first.call or 'NCCL'} {seen}: most often a driver call on a sick GPU that does not return"
        + _wait(cause),
        "fixes": [LOOK_AT_GPU],
    }


def _late_in_device(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    first = _first(facts, cause)
    if first.outcome != "failed":
        return "DDP407", {
            "summary": f"{_ranks(cause)}: {first.call or 'the CUDA driver'} does not return on device {first.device}",
            "because": "a driver that does not answer stops the rank, and NCCL has no part in it" + _wait(cause),
            "fixes": [LOOK_AT_GPU],
            "confidence": Confidence.LIKELY,
        }
    memory = first.code == 2 or first.call == "cuMemGetInfo"
    fix = Fix(title="see which processes hold the GPU", commands=("nvidia-smi",), needs="nothing")
    return ("DDP409" if memory else "DDP408" if first.code == 46 else "DDP407"), {
        "summary": f"{_ranks(cause)}: {first.call} on device {first.device}: {first.error}",
        "because": "the rank ends there, and NCCL has no part in it" + _wait(cause),
        "fixes": [fix],
    }


def _stuck_in_connect(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    first = _first(facts, cause)
    return "DDP402", {
        "summary": f"{_ranks(cause)} stopped while it joined the other GPU's memory (P2P)",
        "because": f"opening a peer's memory is a driver call, and here ({first.call or 'NCCL'}) it does not return"
        + _wait(cause),
        "fixes": [_proven(WITHOUT_P2P, cause), LOOK_AT_GPU],
    }


def _data(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    wrong = cause.fault == "wrong-values"
    what = "arrived wrong" if wrong else "never arrived"
    if cause.details.get("via") != "P2P":
        return "DDP407", {
            "summary": f"{_ranks(cause)}: the data of the first all-reduce {what}",
            "because": "the ranks were connected, so it is the GPUs or what lies between them",
            "fixes": [LOOK_AT_GPU],
            "confidence": Confidence.POSSIBLE,
        }
    passed = cause.details.get("without_p2p") == "passed"
    copied = bool(facts[PairCopy]) and all(copy.arrived is not False for copy in facts[PairCopy])
    return "DDP402" if pair_evidence.clean(facts) else "DDP401", {
        "summary": f"{_ranks(cause)}: the data of the first all-reduce {what} over P2P"
        + ("; with NCCL_P2P_DISABLE=1 the same all-reduce is right" if passed else ""),
        "because": "the driver promises P2P between these GPUs. "
        + pair_evidence.reasons(facts)
        + ("; copies of the doctor's own between them arrived unharmed" if copied else ""),
        "evidence": pair_evidence.surroundings(facts),
        "fixes": [
            *(fix for fix in pair_evidence.fixes(facts) if fix.commands != WITHOUT_P2P.commands),
            _proven(WITHOUT_P2P, cause),
        ],
        "confidence": Confidence.LIKELY if passed and not copied else Confidence.POSSIBLE,
    }


def _proven(fix: Fix, cause: CommunicatorCause) -> Fix:
    if cause.details.get("without_p2p") != "passed":
        return fix
    proof = {"probe": "communicator", "runs": 1, "passed": 1}
    return Fix(title=fix.title, commands=fix.commands, needs=fix.needs, proven=proof)


def _absent_from_collective(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    first = _first(facts, cause)
    return "DDP407", {
        "summary": f"{_ranks(cause)} never launched the first all-reduce on GPU {first.pci or first.device}"
        + (f": {first.call} does not return" if first.call else ""),
        "because": "the communicator was complete on every rank, so its own GPU or driver keeps it" + _wait(cause),
        "fixes": [LOOK_AT_GPU],
    }


_PROGRAM = (
    "import os, torch, torch.distributed as d; torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); "
    "d.init_process_group('nccl'); x = torch.ones(1).cuda(); d.all_reduce(x); print(x)"
)


def _unnamed(cause: CommunicatorCause, facts: Facts) -> tuple[str, Arguments]:
    first = _first(facts, cause)
    failed = first.outcome in ("failed", "crashed")
    size = f"{first.world_size} trial ranks (NCCL {first.version or 'of torch'})"
    error = cause.details.get("error") or first.error
    launch = (
        f"NCCL_DEBUG=INFO python -m torch.distributed.run --standalone --nproc-per-node={first.world_size} --no-python"
    )
    return "DDP508", {
        "summary": f"{size} did not form a communicator: "
        + (f"rank {first.rank} failed in {first.call or first.step}: {error}" if failed else cause.line),
        "because": "they are alone on this node and on GPUs that nobody uses: a job on these GPUs fails too"
        if failed
        else "none of them moved for some seconds, and their lines do not tell which one the others wait for",
        "fixes": [
            Fix(
                title="do the same without ddp-doctor, with all that NCCL has to say",
                commands=(f'{launch} python -c "{_PROGRAM}"',),
                needs="nothing",
            )
        ],
        "severity": Severity.ERROR if failed else Severity.WARNING,
        "confidence": Confidence.LIKELY,
    }


_TELL: dict[str, Callable[[CommunicatorCause, Facts], tuple[str, Arguments]]] = {
    "interface": _interface,
    "unreachable": _unreachable,
    "missing": _missing,
    "duplicate-gpu": _duplicate_gpu,
    "duplicate-rank": _duplicate_rank,
    "world-size": _world_size,
    "nccl-version": _nccl_version,
    "driver-version": _driver_version,
    "nvml-missing": _nvml_missing,
    "shm-full": _shm_full,
    "shm-apart": _shm_apart,
    "net-absent": _net_absent,
    "no-transport": _no_transport,
    "nvlink-without-p2p": _nvlink,
    "late-in-device": _late_in_device,
    "stuck-in-driver": _stuck_in_driver,
    "stuck-in-connect": _stuck_in_connect,
    "stuck-in-collective": _data,
    "wrong-values": _data,
    "absent-from-collective": _absent_from_collective,
    "late-in-library": _unnamed,
    "unnamed": _unnamed,
}
