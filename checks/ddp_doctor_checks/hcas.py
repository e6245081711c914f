"""The RDMA ports that NCCL would use on each host, to be compared between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.rdma import HcaPort, chosen
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.model import Facts

READS = (HcaPort, Variable, TorchInstall, Attendee)
Value = TypeVar("Value", bound=Hashable)


def setting(facts: Facts, host: str, name: str) -> Variable | None:
    """The variable that is in effect on a host."""
    return next(
        (each for each in facts.on(host)[Variable] if each.name == name and each.in_effect and each.value), None
    )


def by_host(facts: Facts) -> dict[str, dict[str, HcaPort]]:
    """For each host that was looked at the ports that NCCL may use, by name; empty where NCCL uses no RDMA, or is not there.

    A host without any adapter counts where others have one.
    """
    installs = facts[TorchInstall]
    if not facts[HcaPort] or (installs and not any(each.libnccl for each in installs)):
        return {}
    absent = {each.about.host for each in facts.lacking(HcaPort)}
    hosts = dict.fromkeys(
        [each.subject.host for each in facts[HcaPort]]
        + [each.subject.host for each in facts[Attendee]]
        + [each.subject.host for each in installs]
    )
    found = {}
    for host in hosts:
        if host in absent or _without(facts, host):
            continue
        wish = setting(facts, host, "NCCL_IB_HCA")
        ports = chosen(facts.on(host)[HcaPort], wish.value if wish else "")
        found[host] = {each.name: each for each in ports}
    return found


def usual(values: Mapping[str, Value]) -> Value | None:
    """What most hosts have; None where no value has a majority."""
    ((value, number), *_) = Counter(values.values()).most_common(1)
    return value if 2 * number > len(values) else None


def _without(facts: Facts, host: str) -> bool:
    """Whether NCCL is told to use no RDMA on this host."""
    disabled, net = setting(facts, host, "NCCL_IB_DISABLE"), setting(facts, host, "NCCL_NET")
    return (disabled is not None and disabled.value != "0") or (net is not None and net.value.lower() == "socket")
