"""DDP207 service-mesh: a proxy beside the job, and what the store answers through it."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.rendezvous.service_mesh import ServiceMesh

from ddp_doctor.facts.rendezvous import Meeting, SideCar, StoreAnswer
from ddp_doctor.model import Absent, Confidence, Severity

ISTIO = SideCar(mesh="Istio", ports=(15001, 15006), user=1337)
WORKER = Meeting(address="job-0", address_variable="MASTER_ADDR", port=29500, hosts=False, nodes=2)


def test_a_store_that_is_silent_behind_the_proxy_is_a_hit() -> None:
    answer = StoreAnswer(name="job-0", address="10.1.0.7", port=29500, verdict="silent", seconds=1.8)
    judgement = run_check(ServiceMesh, WORKER, ISTIO, answer)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert finding.explains == ("DDP209",)


def test_a_proxy_alone_is_no_claim() -> None:
    answer = StoreAnswer(name="job-0", address="10.1.0.7", port=29500, verdict="store")
    (finding,) = run_check(ServiceMesh, Meeting(nodes=1), ISTIO, answer).findings
    assert finding.severity is Severity.NOTE
    (finding,) = run_check(ServiceMesh, WORKER, ISTIO, answer).findings
    assert finding.confidence is Confidence.POSSIBLE


def test_no_proxy_is_not_applicable_and_never_clear_of_a_fault() -> None:
    assert run_check(ServiceMesh, WORKER).outcome.status != "clear"
    assert run_check(ServiceMesh, WORKER).outcome.status == "not-applicable"


def test_listeners_that_could_not_be_read_are_unknown() -> None:
    assert run_check(ServiceMesh, WORKER, Absent(kind="SideCar", status="denied")).outcome.status == "unknown"
