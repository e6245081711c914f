"""DDP209 foreign-listener: what a store's client got from servers that are none."""

from __future__ import annotations

import msgspec
import pytest
from checking import run_check
from ddp_doctor_checks.rendezvous.foreign_listener import ForeignListener

from ddp_doctor.facts.rendezvous import Meeting, Port, PortOwner, StoreAnswer
from ddp_doctor.model import Absent, Confidence

RANK_1 = Meeting(address="127.0.0.1", address_variable="MASTER_ADDR", port=29500, hosts=False, launched=True)
SILENT = StoreAnswer(name="127.0.0.1", address="127.0.0.1", port=29500, verdict="silent", seconds=1.8, local=True)
NGINX = PortOwner(
    port=29500,
    address="0.0.0.0",
    listening=True,
    user="www",
    pid=41,
    command="nginx",
    arguments=("nginx",),
    nccl_loaded=False,
)
PORT = Port(port=29500, named=True, bindable=False, next_free=29501)


@pytest.mark.parametrize(
    ("verdict", "says", "confidence"),
    [
        ("silent", "says nothing", Confidence.LIKELY),
        ("closes", "closes connections", Confidence.LIKELY),
        ("http", "speaks HTTP", Confidence.CERTAIN),
        ("other", "answers SSH-2.0", Confidence.CERTAIN),
    ],
)
def test_each_wrong_answer_is_a_hit(verdict: str, says: str, confidence: Confidence) -> None:
    answer = msgspec.structs.replace(SILENT, verdict=verdict, got="SSH-2.0", local=False, name="node1")
    judgement = run_check(ForeignListener, RANK_1, answer)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert says in finding.summary and "node1" in finding.summary
    assert finding.confidence is confidence


def test_a_local_owner_is_named_with_its_pid() -> None:
    (finding,) = run_check(ForeignListener, RANK_1, SILENT, NGINX, PORT).findings
    assert "PID 41 (nginx)" in finding.summary
    assert finding.confidence is Confidence.CERTAIN
    assert [fix.commands for fix in finding.fixes] == [("export MASTER_PORT=29501",), ("kill 41",)]


def test_a_stopped_owner_may_be_the_store_itself() -> None:
    stopped = msgspec.structs.replace(NGINX, command="python", arguments=("python", "train.py"), state="T")
    (finding,) = run_check(ForeignListener, RANK_1, SILENT, stopped).findings
    assert "is stopped" in finding.summary
    assert finding.confidence is Confidence.LIKELY
    assert finding.fixes[0].commands == ("kill -CONT 41",)


def test_a_full_queue_on_this_node_is_a_hit_and_a_dropped_packet_elsewhere_is_not() -> None:
    dropped = msgspec.structs.replace(SILENT, verdict="dropped")
    assert run_check(ForeignListener, RANK_1, dropped, NGINX).outcome.status == "hit"
    far = msgspec.structs.replace(dropped, local=False, address="10.0.0.9")
    assert run_check(ForeignListener, RANK_1, far).outcome.status == "clear"


def test_a_store_stays_clear() -> None:
    store = msgspec.structs.replace(SILENT, verdict="store", joined=1)
    assert run_check(ForeignListener, RANK_1, store).outcome.status == "clear"


def test_rank_0_has_another_name_for_it() -> None:
    rank_0 = msgspec.structs.replace(RANK_1, hosts=True)
    assert run_check(ForeignListener, rank_0, SILENT, NGINX).findings == ()


def test_a_probe_without_an_answer_is_unknown() -> None:
    absent = Absent(kind="StoreAnswer", status="timeout", reason="no answer in 5.0 s")
    assert run_check(ForeignListener, RANK_1, absent).outcome.status == "unknown"
