"""DDP412 on values, and what NCCL makes of a pair by its version."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.gpu.p2p_unavailable import P2pUnavailable

from ddp_doctor.facts.host import ShmSpace
from ddp_doctor.facts.p2p import P2pPair, PairRoute
from ddp_doctor.interpret.p2p_route import route_of
from ddp_doctor.model import Absent, Severity

DENIED = "chipset not supported"


def pair(first: int = 0, second: int = 1, **changes: Any) -> P2pPair:
    """Two cards without P2P in two slots."""
    values: dict[str, Any] = {"first": first, "second": second, "read": DENIED, "write": DENIED, "link": "host-bridge",
                              "peer": False, "cpu": "AuthenticAMD"}  # fmt: skip
    return P2pPair(**(values | changes))


def routed(found: P2pPair, version: tuple[int, ...] = (2, 27, 5), **variables: str) -> PairRoute:
    return route_of(found, version, variables, gpus=2)


def test_hit_is_a_note_that_says_what_is_used_instead() -> None:
    shm = ShmSpace(size=1 << 30, free=1 << 29)
    judged = run_check(P2pUnavailable, pair(), pair(1, 0), routed(pair()), shm)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit" and finding.severity is Severity.NOTE
    assert (
        finding.summary
        == f"no P2P between GPUs 0-1: {DENIED}; NCCL 2.27.5 connects them through shared memory of the host"
    )
    assert "NCCL_IGNORE_DISABLED_P2P=1 only silences the line" in finding.because
    assert "512.0 MiB are free" in finding.evidence[-1].value


def test_the_truth_about_ignoring_it_in_old_versions() -> None:
    (finding,) = run_check(P2pUnavailable, pair(), routed(pair(), (2, 18, 3))).findings
    assert "really switches P2P off" in finding.because


def test_never_advised_for_nvlink() -> None:
    linked = pair(link="nvlink")
    assert run_check(P2pUnavailable, linked, routed(linked)).outcome.status == "clear"  # NCCL fails there: DDP406
    silenced = routed(linked, NCCL_IGNORE_DISABLED_P2P="1")
    (finding,) = run_check(P2pUnavailable, linked, silenced).findings
    assert "Leave NCCL_IGNORE_DISABLED_P2P unset" in finding.because


def test_clear_when_the_driver_allows_it() -> None:
    allowed = pair(read="ok", write="ok", peer=True)
    assert run_check(P2pUnavailable, allowed, routed(allowed)).outcome.status == "clear"


def test_unknown_where_nvml_does_not_answer() -> None:
    absent = Absent(kind="P2pPair", status="timeout", reason="nvmlDeviceGetP2PStatus: no answer in 10.0 s")
    assert run_check(P2pUnavailable, absent).outcome.status == "unknown"


@pytest.mark.parametrize(
    ("changes", "version", "variables", "route"),
    [
        ({}, (2, 27, 5), {}, "shm"),
        ({}, (2, 27, 5), {"NCCL_IGNORE_DISABLED_P2P": "1"}, "shm"),
        ({"peer": None}, (2, 27, 5), {"NCCL_IGNORE_DISABLED_P2P": "2"}, "p2p"),
        ({"peer": None}, (2, 18, 3), {}, "p2p"),
        ({"peer": None}, (2, 18, 3), {"NCCL_IGNORE_DISABLED_P2P": "1"}, "shm"),
        ({}, (2, 18, 3), {}, "shm"),
        ({"link": "nvlink"}, (2, 27, 5), {}, "fails"),
        ({"link": "nvlink"}, (2, 27, 5), {"NCCL_IGNORE_DISABLED_P2P": "1"}, "shm"),
        ({}, (2, 27, 5), {"NCCL_SHM_DISABLE": "1"}, "net"),
    ],
)
def test_what_nccl_does_with_a_denied_pair(
    changes: dict[str, Any], version: tuple[int, ...], variables: dict[str, str], route: str
) -> None:
    assert routed(pair(**changes), version, **variables).route == route


@pytest.mark.parametrize(
    ("link", "cpu", "version", "variables", "route"),
    [
        ("host-bridge", "AuthenticAMD", (2, 27, 5), {}, "p2p"),
        ("host-bridge", "GenuineIntel", (2, 27, 5), {}, "shm"),
        ("host-bridge", "GenuineIntel", (2, 27, 5), {"NCCL_P2P_LEVEL": "SYS"}, "p2p"),
        ("system", "AuthenticAMD", (2, 21, 5), {}, "p2p"),
        ("system", "arm", (2, 21, 5), {}, "shm"),
        ("switch", "GenuineIntel", (2, 27, 5), {}, "p2p"),
        ("switch", "GenuineIntel", (2, 27, 5), {"NCCL_P2P_DISABLE": "1"}, "shm"),
        ("nvlink", "GenuineIntel", (2, 27, 5), {"NCCL_P2P_LEVEL": "LOC"}, "shm"),
    ],
)
def test_how_far_apart_a_pair_may_be(
    link: str, cpu: str, version: tuple[int, ...], variables: dict[str, str], route: str
) -> None:
    allowed = pair(read="ok", write="ok", peer=True, link=link, cpu=cpu)
    assert routed(allowed, version, **variables).route == route
