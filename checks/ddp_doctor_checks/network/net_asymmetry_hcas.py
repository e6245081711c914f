"""What the RDMA adapters of several hosts show of DDP306: another set of them, or InfiniBand here and RoCE there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.rdma import HcaPort
from ddp_doctor.model import Confidence, Evidence, Facts, Fix, Severity
from ddp_doctor_checks.hcas import by_host, usual

LOOK = Fix(
    title="see what each host has",
    commands=("grep . /sys/class/infiniband/*/ports/*/{state,link_layer,rate}   # on every node",),
    needs="nothing",
)
KINDS = {"Ethernet": "RoCE", "InfiniBand": "InfiniBand"}


def from_hcas(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `NetAsymmetry.finding`."""
    hosts = by_host(facts)
    if len(hosts) < 2:
        return
    yield from _mixed(hosts)
    yield from _sets(hosts)


def _mixed(hosts: dict[str, dict[str, HcaPort]]) -> Iterator[dict[str, Any]]:
    layers = {
        host: tuple(sorted({each.link_layer for each in ports.values() if each.active}))
        for host, ports in hosts.items()
    }
    layers = {host: kinds for host, kinds in layers.items() if kinds}
    if len(set(layers.values())) < 2:
        return
    common = usual(layers)
    odd = [host for host in layers if layers[host] != common]
    shown = [
        next(
            each
            for each in hosts[host].values()
            if (each.active and each.link_layer not in (common or ())) or len(kinds) > 1
        )
        for host, kinds in layers.items()
        if host in odd
    ]
    said = "; ".join(
        f"{host}: {' and '.join(KINDS.get(each, each) for each in kinds)}" for host, kinds in list(layers.items())[:6]
    )
    yield {
        "summary": f"InfiniBand and RoCE are mixed between the hosts ({said}); odd: "
        + ", ".join(f"{each.name} of {each.subject.host}" for each in shown[:4]),
        "because": "the two do not speak with each other: NCCL takes whatever adapters are ACTIVE, and a connection from one "
        "kind to the other is never made",
        "evidence": [each.evidence() for each in shown[:6]] + _of_others(hosts, odd),
        "fixes": [
            Fix(
                title="name the adapters of one kind, on every node its own",
                commands=(f"export NCCL_IB_HCA='={','.join(_common_names(hosts)) or 'mlx5_0'}'",),
            ),
            LOOK,
        ],
        "confidence": Confidence.LIKELY,
    }


def _sets(hosts: dict[str, dict[str, HcaPort]]) -> Iterator[dict[str, Any]]:
    sets = {host: frozenset(ports) for host, ports in hosts.items()}
    if len(set(sets.values())) < 2:
        return
    largest = usual(sets) or max(sets.values(), key=len)
    for host, names in sets.items():
        lacking, more = sorted(largest - names), sorted(names - largest)
        if not lacking and not more:
            continue
        what = [f"lacks {', '.join(lacking[:6])}"] if lacking else []
        what += [f"has {', '.join(more[:6])} besides"] if more else []
        none = not any(each.active for each in hosts[host].values())
        yield {
            "summary": f"the RDMA adapters of {host} are not those of the other hosts: it {' and '.join(what)}",
            "because": "NCCL finds no RDMA here and uses sockets, while the other hosts use RDMA: the two never connect"
            if none
            else "every host pairs its GPUs with its own adapters; with another set the rings of two hosts do not fit",
            "evidence": [each.evidence() for each in list(hosts[host].values())[:4]]
            + ([] if hosts[host] else [_nothing(host)])
            + _of_others(hosts, [host]),
            "fixes": [
                LOOK,
                Fix(
                    title="use those that every host has, on every node",
                    commands=(f"export NCCL_IB_HCA='={','.join(_common_names(hosts))}'",)
                    if _common_names(hosts)
                    else ("export NCCL_IB_DISABLE=1   # sockets everywhere: slower, and it works",),
                ),
            ],
            "severity": Severity.ERROR if none else Severity.WARNING,
            "confidence": Confidence.LIKELY,
        }


def _common_names(hosts: dict[str, dict[str, HcaPort]]) -> list[str]:
    return sorted(set.intersection(*(set(ports) for ports in hosts.values()))) if hosts else []


def _of_others(hosts: dict[str, dict[str, HcaPort]], odd: list[str]) -> list[Evidence]:
    other = next((host for host in hosts if host not in odd and hosts[host]), None)
    return [each.evidence() for each in list(hosts[other].values())[:4]] if other else []


def _nothing(host: str) -> Evidence:
    return Evidence(fact=HcaPort.kind(), source="/sys/class/infiniband", value="no RDMA adapter", host=host)
