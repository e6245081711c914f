"""The faults of the real-libnccl tests: for each, the ranks to start and what must be said about them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from ddp_doctor_checks.communicator import from_communicator
from fakes.nccl import Stage, healthy, with_rules
from fakes.node import Rule

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.interpret.nccl_phase import interpret
from ddp_doctor.model import Facts
from ddp_doctor.probes.communicator import Plan, form_and_compare

OTHER_VERSION = {
    "2.32.3": "2.31.2",
    "2.31.2": "2.30.7",
    "2.30.7": "2.27.5",
    "2.27.5": "2.30.7",
    "2.21.5": "2.27.5",
    "2.18.3": "2.21.5",
}


PARTNER = "2.27.5"
"""Of a version that OTHER_VERSION does not have."""


@dataclass(frozen=True)
class Fault:
    """The ranks to start for a version, and the finding's id and ranks. `since` is the first version that can have it."""

    name: str
    plans: Callable[[Stage, str], list[Plan]]
    id: str
    ranks: tuple[int, ...]
    root: bool = False
    since: str = ""

    def exists_in(self, version: str) -> bool:
        """Whether that version can have it."""
        return not self.since or numbers(version) >= numbers(self.since)

    @property
    def between_hosts(self) -> bool:
        """Whether its ranks are on two hosts."""
        return "address" in self.name or "loopback" in self.name


def numbers(version: str) -> tuple[int, ...]:
    """2.27.5 as numbers that compare."""
    return tuple(map(int, version.split(".")))


def named(fault: Fault, version: str, stage: Stage) -> list[tuple[str, dict[str, Any]]]:
    """What is said of the ranks of a fault: ids with the arguments of their findings."""
    with two_networks() if fault.between_hosts else nullcontext():
        return causes(form_and_compare(stage.host(), fault.plans(stage, version)))


def causes(ranks: Sequence[CommunicatorRank]) -> list[tuple[str, dict[str, Any]]]:
    """What is said of these ranks."""
    return list(from_communicator(Facts([*ranks, *interpret(Facts(ranks))])))


def two(stage: Stage, version: str, **one: object) -> list[Plan]:
    """Two ranks of which the second differs."""
    return [stage.plan(0, 2, version), stage.plan(1, 2, version, **one)]  # type: ignore[arg-type]


def hang_in(*calls: str, rank: int = 1) -> Callable[[Stage, str], list[Plan]]:
    def plans(stage: Stage, version: str) -> list[Plan]:
        hung = with_rules(healthy(2), *(Rule(call=call, hang=True) for call in calls))
        return [stage.plan(number, 2, version, node=hung if number == rank else None) for number in range(2)]

    return plans


def small_shm(stage: Stage, version: str) -> list[Plan]:
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"', "sh")
    both = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"}
    return [stage.plan(rank, 2, version, prefix=mount, environ=both) for rank in range(2)]


def separate_shm(stage: Stage, version: str) -> list[Plan]:
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
    return [stage.plan(rank, 2, version, prefix=mount) for rank in range(2)]


def nodes(*environs: dict[str, str]) -> Callable[[Stage, str], list[Plan]]:
    def plans(stage: Stage, version: str) -> list[Plan]:
        return [
            stage.plan(
                rank,
                2,
                version,
                prefix=("ip", "netns", "exec", f"ddp-test-{'ab'[rank]}"),
                environ={"NCCL_HOSTID": f"node-{rank}", **environ},
            )
            for rank, environ in enumerate(environs)
        ]

    return plans


@contextmanager
def two_networks() -> Iterator[None]:
    """Two namespaces joined by a wire (10.77.0.1 and .2), each with a bridge docker0 at the same 172.17.0.1."""
    commands = [
        "ip netns add ddp-test-a",
        "ip netns add ddp-test-b",
        "ip link add ddp-ta type veth peer name ddp-tb",
        "ip link set ddp-ta netns ddp-test-a",
        "ip link set ddp-tb netns ddp-test-b",
        "ip -n ddp-test-a link set ddp-ta name eth0",
        "ip -n ddp-test-b link set ddp-tb name eth0",
    ]
    for name, address in (("a", "10.77.0.1"), ("b", "10.77.0.2")):
        commands += [
            f"ip -n ddp-test-{name} link set lo up",
            f"ip -n ddp-test-{name} addr add {address}/24 dev eth0",
            f"ip -n ddp-test-{name} link set eth0 up",
            f"ip -n ddp-test-{name} link add docker0 type bridge",
            f"ip -n ddp-test-{name} link add bridged type veth peer name container",
            f"ip -n ddp-test-{name} link set bridged master docker0",
            f"ip -n ddp-test-{name} link set bridged up",
            f"ip -n ddp-test-{name} link set container up",
            f"ip -n ddp-test-{name} addr add 172.17.0.1/16 dev docker0",
            f"ip -n ddp-test-{name} link set docker0 up",
        ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        # NCCL 2.28 and later pass over an interface until its carrier is there
        give_up = time.monotonic() + 10
        while not all(_running(f"ddp-test-{name}", "docker0") for name in "ab"):
            assert time.monotonic() < give_up
            time.sleep(0.1)
        yield
    finally:
        for name in "ab":
            subprocess.run(["ip", "netns", "del", f"ddp-test-{name}"], check=False, stderr=subprocess.DEVNULL)


def _running(namespace: str, interface: str) -> bool:
    command = ["ip", "-n", namespace, "-br", "link", "show", interface]
    return " UP " in subprocess.run(command, check=True, capture_output=True, text=True).stdout


FAULTS = (
    Fault("wrong interface", lambda s, v: two(s, v, environ={"NCCL_SOCKET_IFNAME": "nonexistent"}), "DDP301", (1,)),
    Fault(
        "wrong interface on the root",
        lambda s, v: [s.plan(0, 2, v, environ={"NCCL_SOCKET_IFNAME": "nonexistent"}), s.plan(1, 2, v)],
        "DDP301",
        (0,),
    ),
    Fault("one of them wants ib", lambda s, v: two(s, v, environ={"NCCL_NET": "IB"}), "DDP118", (1,)),
    Fault("missing rank", lambda s, v: [s.plan(0, 3, v), s.plan(1, 3, v)], "DDP101", (2,)),
    Fault("duplicate gpu", lambda s, v: [s.plan(r, 2, v, node=healthy(2), device=0) for r in (0, 1)], "DDP106", (0, 1)),
    Fault("shm 1 MiB", small_shm, "DDP405", (0, 1), root=True),
    Fault("separate shm", separate_shm, "DDP404", (0, 1), root=True),
    Fault("net ib", lambda s, v: [s.plan(r, 2, v, environ={"NCCL_NET": "IB"}) for r in (0, 1)], "DDP305", (0, 1)),
    Fault("world sizes", lambda s, v: [s.plan(0, 2, v), s.plan(1, 3, v)], "DDP117", (0, 1)),
    Fault(
        "duplicate rank",
        lambda s, v: [
            s.plan(0, 3, v),
            s.plan(1, 3, v, name="one"),
            s.plan(1, 3, v, device=2, name="other"),
        ],
        "DDP116",
        (1,),
    ),
    Fault("other nccl", lambda s, v: [s.plan(0, 2, v), s.plan(1, 2, OTHER_VERSION.get(v, PARTNER))], "DDP501", (0, 1)),
    Fault(
        "nvml mismatch",
        lambda s, v: two(s, v, node=with_rules(healthy(2), Rule(call="nvmlInit_v2", fail=18))),
        "DDP501",
        (1,),
    ),
    Fault("hang in identity", hang_in("cudaGetDeviceProperties_v2"), "DDP407", (1,), since="2.27.5"),
    Fault("hang in topology", hang_in("cudaDeviceCanAccessPeer"), "DDP407", (1,)),
    Fault("hang in nvml", hang_in("nvmlDeviceGetP2PStatus"), "DDP407", (1,)),
    Fault("hang in connect", hang_in("cuMemImportFromShareableHandle", "cudaIpcOpenMemHandle"), "DDP402", (1,)),
    Fault(
        "hang in connect over shm",
        lambda s, v: [
            s.plan(
                rank,
                2,
                v,
                node=with_rules(healthy(2), *([Rule(call="cudaHostRegister", hang=True)] if rank else [])),
                environ={"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"},
            )
            for rank in range(2)
        ],
        "DDP407",
        (1,),
    ),
    Fault("hang at the first launch", hang_in("launch"), "DDP407", (1,)),
    Fault(
        "p2p data never arrives",
        lambda s, v: [
            s.plan(r, 2, v, node=with_rules(healthy(2), Rule(call="kernel_over_p2p", hang=True))) for r in (0, 1)
        ],
        "DDP401",
        (0, 1),
    ),
    Fault(
        "p2p data is wrong",
        lambda s, v: two(s, v, node=with_rules(healthy(2), Rule(call="kernel_over_p2p", fail=1))),
        "DDP401",
        (0, 1),
    ),
    Fault(
        "one docker0 address",
        nodes({"NCCL_SOCKET_IFNAME": "docker0"}, {"NCCL_SOCKET_IFNAME": "docker0"}),
        "DDP301",
        (0, 1),
        root=True,
    ),
    Fault("root on loopback", nodes({"NCCL_SOCKET_IFNAME": "lo"}, {}), "DDP301", (0,), root=True),
    Fault("other on loopback", nodes({}, {"NCCL_SOCKET_IFNAME": "lo"}), "DDP301", (1,), root=True),
)
