"""DDP402 on values."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.gpu.p2p_driver import P2pDriver
from pairs import REDIRECTING, bus, copy
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.model import Absent, Confidence


def connecting(number: int, via: str = "P2P/CUMEM", **changes: Any) -> CommunicatorRank:
    """A rank in the connection phase."""
    return rank(
        number, STARTED, f"Channel 00/0 : {number}[{number}] -> {1 - number}[{1 - number}] via {via}", **changes
    )


def test_hit_one_rank_stands_in_a_call_of_the_driver() -> None:
    stuck = connecting(1, threads={"101": "sleep", "109": "ioctl"})
    judged = run_check(P2pDriver, *meaning(connecting(0, threads={"100": "polls"}), stuck))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.ranks == (1,) and finding.confidence is Confidence.LIKELY


def test_clear_when_the_trial_passed() -> None:
    assert run_check(P2pDriver, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_the_transport_is_shared_memory() -> None:
    """That is the GPU or the driver at large, DDP407."""
    stuck = connecting(1, "SHM/direct/direct", threads={"109": "ioctl"})
    assert run_check(P2pDriver, *meaning(connecting(0, "SHM/direct/direct"), stuck)).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(P2pDriver, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(P2pDriver, absent).outcome.status == "not-applicable"


def test_hit_data_is_harmed_where_neither_acs_nor_an_iommu_can_do_it() -> None:
    (finding,) = run_check(P2pDriver, copy("wrong-data"), *bus(iommu="identity")).findings
    assert finding.confidence is Confidence.LIKELY and "so it is the driver or the card" in finding.because
    assert finding.fixes[-1].commands == ("export NCCL_P2P_DISABLE=1",)


def test_hit_data_is_harmed_over_nvlink() -> None:
    """ACS and the IOMMU are on, and not in its way."""
    (finding,) = run_check(P2pDriver, copy("wrong-data"), *bus(REDIRECTING, "DMA", link="nvlink")).findings
    assert finding.confidence is Confidence.LIKELY and "NVLink joins them" in finding.because


def test_hit_an_all_reduce_that_never_ends_on_a_clean_way() -> None:
    said = [
        rank(number, STARTED, "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", step="all-reduce on the GPU")
        for number in (0, 1)
    ]
    again = [passed(number, without_p2p=True) for number in (0, 1)]
    (finding,) = run_check(P2pDriver, *bus(), *meaning(*said, *again)).findings
    assert finding.confidence is Confidence.LIKELY


def test_hit_the_memory_of_a_peer_cannot_be_joined() -> None:
    refused = copy("failed", step="map", call="cuMemMap", code=801, error="operation not supported")
    (finding,) = run_check(P2pDriver, refused, copy(mechanism="ipc"), *bus(REDIRECTING)).findings
    assert "cuMemMap (map): operation not supported" in finding.summary
    assert [fix.commands for fix in finding.fixes] == [("export NCCL_CUMEM_ENABLE=0",), ("export NCCL_P2P_DISABLE=1",)]


def test_clear_where_nccl_uses_the_mechanism_that_works() -> None:
    refused = copy("failed", "ipc", step="open", call="cuIpcOpenMemHandle_v2", error="operation not supported")
    assert run_check(P2pDriver, refused, copy(), *bus(), *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_in_a_virtual_machine() -> None:
    """That is DDP403."""
    refused = copy("failed", step="open", call="cuMemImportFromShareableHandle", error="operation not supported")
    assert run_check(P2pDriver, refused, *bus(hypervisor=True)).findings == ()
