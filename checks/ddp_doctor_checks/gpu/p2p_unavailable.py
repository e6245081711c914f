"""DDP412: the driver denies P2P to a pair of GPUs, and NCCL takes another way."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.host import ShmSpace, size
from ddp_doctor.facts.p2p import P2pPair, PairRoute
from ddp_doctor.model import Check, Facts, Finding, Fix, Severity, Told

FIRST_THAT_ONLY_SILENCES = (2, 19, 1)
WAYS = {"shm": "through shared memory of the host", "net": "over the network", "p2p": "by P2P all the same"}


class P2pUnavailable(Check):
    """Pairs between which NCCL falls back. An NVLink pair is no note: NCCL ends there (DDP406)."""

    id, name = "DDP412", "p2p-unavailable"
    title = "GPUs without P2P to each other"
    needs = (P2pPair,)
    also_reads = (PairRoute, ShmSpace)
    told = Told(
        because="this is no reason to hang. With NCCL 2.19.1 and newer NCCL_IGNORE_DISABLED_P2P=1 only silences the line; "
        "2.12 to 2.18 (which print 'Could not enable P2P' beside it) really stop using P2P for the pair; on an "
        "NVLink pair it would hide an error and fall back to host memory, so leave it unset there",
        fixes=(
            Fix(
                title="nothing to mend; shared memory is used now, so see that it is large enough",
                commands=("df -h /dev/shm",),
                needs="nothing",
            ),
        ),
        severity=Severity.NOTE,
    )

    def not_applicable(self, facts: Facts) -> str:
        absent = next((absent for absent in facts.lacking(P2pPair) if absent.status == "absent"), None)
        return absent.reason if absent else ""

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        routes = {(route.first, route.second): route for route in facts[PairRoute]}
        failing = {pair for pair, route in routes.items() if route.route == "fails"}
        denied = [pair for pair in facts[P2pPair] if pair.first < pair.second and pair.ok is False]
        denied = [pair for pair in denied if (pair.first, pair.second) not in failing]
        if not denied:
            return
        known = [routes[pair.first, pair.second] for pair in denied if (pair.first, pair.second) in routes]
        version = known[0].version if known else ""
        ways = sorted({WAYS[route.route] for route in known if route.route in WAYS})
        named = ", ".join(f"{pair.first}-{pair.second}" for pair in denied[:6]) + (" ..." if len(denied) > 6 else "")
        evidence = [pair.evidence() for pair in denied[:3]]
        shm = facts.first(ShmSpace)
        if shm is not None and any(route.route == "shm" for route in known):
            room = f"one connection takes {size(known[0].segment or 9_637_888)} of /dev/shm, {size(shm.free)} are free"
            evidence.append(shm.evidence(room))
        yield self.finding(
            f"no P2P between GPUs {named}: {denied[0].read if denied[0].read != 'ok' else denied[0].write}"
            + (f"; NCCL {version} connects them {' or '.join(ways)}" if ways else ""),
            because="NCCL's line `P2P is disabled between connected GPUs` says this; it costs bandwidth and stops nothing. "
            + truth_about_ignoring(version, any(pair.link == "nvlink" for pair in denied))
            + ". Of a job that hangs, look elsewhere for what stops it: `ddp-doctor attach --all` while it hangs, or "
            "`ddp-doctor run --script train.py` for how it starts its ranks",
            evidence=evidence,
            fixes=[
                Fix(
                    title="nothing needs mending; to see which pairs have P2P",
                    commands=("nvidia-smi topo -p2p r",),
                    needs="nothing",
                )
            ],
            severity=Severity.NOTE,
            ranks=(),
        )


def truth_about_ignoring(version: str, nvlink: bool) -> str:
    """What NCCL_IGNORE_DISABLED_P2P=1 does in that version of NCCL (all of them where it is not known)."""
    if nvlink:
        return (
            "Leave NCCL_IGNORE_DISABLED_P2P unset: on an NVLink pair it turns an error of initialisation into a silent "
            "detour through host memory"
        )
    number = tuple(int(part) for part in version.split(".")) if version else ()
    new = "NCCL_IGNORE_DISABLED_P2P=1 only silences the line"
    old = (
        "NCCL_IGNORE_DISABLED_P2P=1 really switches P2P off for the pair: without it this version tries P2P against the "
        "driver's word (`Could not enable P2P` next to the line)"
    )
    if not number:
        return f"From NCCL 2.19.1 on, {new}; from 2.12 to 2.18, {old}"
    return f"In NCCL {version}, {new if number >= FIRST_THAT_ONLY_SILENCES else old}"
