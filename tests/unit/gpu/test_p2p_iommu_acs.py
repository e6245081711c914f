"""DDP401 on values."""

from __future__ import annotations

from typing import Any

from checking import run_check
from ddp_doctor_checks.gpu.p2p_iommu_acs import P2pIommuAcs
from pairs import REDIRECTING, bus, copy
from trial import REFUSED, STARTED, meaning, passed, rank

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.model import Absent, Confidence, Severity


def lost(number: int, **changes: Any) -> CommunicatorRank:
    """A rank whose all-reduce over P2P was launched and never ended."""
    via = f"Channel 00/0 : {number}[{number}] -> {1 - number}[{1 - number}] via P2P/CUMEM"
    return rank(number, STARTED, via, "Connected all rings", **{"step": "all-reduce on the GPU"} | changes)


def test_hit_the_data_arrives_without_p2p_only() -> None:
    again = [passed(number, without_p2p=True) for number in range(2)]
    judged = run_check(P2pIommuAcs, *meaning(lost(0), lost(1), *again))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit" and finding.confidence is Confidence.LIKELY
    assert finding.fixes[-1].commands == ("export NCCL_P2P_DISABLE=1",) and finding.fixes[-1].proven


def test_hit_wrong_values_are_at_most_likely() -> None:
    wrong = [lost(number, outcome="failed", value_ok=False) for number in range(2)]
    again = [passed(number, without_p2p=True) for number in range(2)]
    (finding,) = run_check(P2pIommuAcs, *meaning(*wrong, *again)).findings
    assert finding.confidence is Confidence.LIKELY and "wrong" in finding.summary


def test_only_possible_where_it_fails_without_p2p_too() -> None:
    again = [lost(number, without_p2p=True) for number in range(2)]
    (finding,) = run_check(P2pIommuAcs, *meaning(lost(0), lost(1), *again)).findings
    assert finding.confidence is Confidence.POSSIBLE


def test_clear_when_the_trial_passed() -> None:
    assert run_check(P2pIommuAcs, *meaning(passed(0), passed(1))).outcome.status == "clear"


def test_clear_when_a_rank_never_launched() -> None:
    late = lost(1, step="all-reduce")
    assert run_check(P2pIommuAcs, *meaning(lost(0), late)).outcome.status == "clear"


def test_unknown_where_no_trial_was_allowed() -> None:
    outcome = run_check(P2pIommuAcs, REFUSED).outcome
    assert (outcome.status, outcome.reason) == ("unknown", "GPU 0 used by PID 7")


def test_not_applicable_without_a_libnccl() -> None:
    absent = Absent(kind="CommunicatorStop", reason="torch here loads no libnccl.so.2")
    assert run_check(P2pIommuAcs, absent).outcome.status == "not-applicable"


def test_hit_a_copy_arrives_wrong() -> None:
    judged = run_check(P2pIommuAcs, copy("wrong-data"), copy("wrong-data", "ipc"), *bus(REDIRECTING))
    (finding,) = judged.findings
    assert finding.confidence is Confidence.CERTAIN and finding.severity is Severity.ERROR
    assert "data between GPUs 0-1 arrives wrong: GPU 0 -> 1 by cuMem: wrong data read" in finding.summary
    assert "ACS of 0000:00:01.0, 0000:00:02.0 redirects their traffic" in finding.because
    assert finding.fixes[0].commands == (
        "sudo setpci -s 0000:00:01.0 ECAP_ACS+6.w=0000",
        "sudo setpci -s 0000:00:02.0 ECAP_ACS+6.w=0000",
    )
    assert any("ReqRedir" in evidence.value for evidence in finding.evidence)


def test_hit_a_kernel_that_never_ends_is_likely() -> None:
    (finding,) = run_check(P2pIommuAcs, copy("no-answer", step="run"), *bus(None)).findings
    assert finding.confidence is Confidence.LIKELY and "never arrives" in finding.summary
    assert "cannot be read without root" in finding.because


def test_the_copies_and_the_trial_make_one_finding() -> None:
    seen = [copy("wrong-data"), *bus((), "DMA"), *meaning(lost(0), lost(1))]
    (finding,) = run_check(P2pIommuAcs, *seen).findings
    assert finding.confidence is Confidence.CERTAIN and "an IOMMU translates" in finding.because


def test_clear_where_neither_acs_nor_an_iommu_is_there() -> None:
    """Then it is the driver or the card, DDP402."""
    for harmed in (copy("wrong-data"), copy("no-answer", step="run")):
        assert run_check(P2pIommuAcs, harmed, *bus(), *meaning(lost(0), lost(1))).outcome.status == "clear"


def test_in_a_virtual_machine_the_fix_is_the_hosts() -> None:
    (finding,) = run_check(P2pIommuAcs, copy("wrong-data"), *bus(hypervisor=True)).findings
    assert "virtual machine" in finding.because
    assert [fix.commands for fix in finding.fixes] == [("export NCCL_P2P_DISABLE=1",)]


def test_only_possible_where_copies_arrive_and_the_all_reduce_does_not() -> None:
    again = [passed(number, without_p2p=True) for number in range(2)]
    seen = [copy(), copy(mechanism="ipc"), *bus(REDIRECTING), *meaning(lost(0), lost(1), *again)]
    (finding,) = run_check(P2pIommuAcs, *seen).findings
    assert finding.confidence is Confidence.POSSIBLE and "arrived unharmed" in finding.because


def test_a_note_where_acs_is_on_and_nobody_may_try() -> None:
    (finding,) = run_check(P2pIommuAcs, REFUSED, *bus(REDIRECTING)).findings
    assert (finding.severity, finding.confidence) == (Severity.NOTE, Confidence.POSSIBLE)
    assert run_check(P2pIommuAcs, REFUSED, *bus(REDIRECTING, link="nvlink")).outcome.status == "unknown"
    assert run_check(P2pIommuAcs, REFUSED, *bus()).outcome.status == "unknown"


def test_acs_alone_is_clear_when_the_trial_passed() -> None:
    assert run_check(P2pIommuAcs, *bus(REDIRECTING), *meaning(passed(0), passed(1))).outcome.status == "clear"
