"""DDP208 store-scale: the queue of rank 0's listener against the world size."""

from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.rendezvous.store_scale import StoreScale

from ddp_doctor.facts.rendezvous import Backlog, Meeting
from ddp_doctor.model import Absent, Severity

MANY = Meeting(world_size=512, hosts=True)


def test_a_queue_shorter_than_the_world_is_a_hit() -> None:
    judgement = run_check(StoreScale, MANY, Backlog(connections=128))
    assert judgement.outcome.status == "hit"
    assert judgement.findings[0].severity is Severity.NOTE


def test_a_long_queue_a_small_world_or_another_rank_stays_clear() -> None:
    assert run_check(StoreScale, MANY, Backlog(connections=4096)).outcome.status == "clear"
    assert run_check(StoreScale, Meeting(world_size=32, hosts=True), Backlog(connections=16)).outcome.status == "clear"
    assert (
        run_check(StoreScale, Meeting(world_size=512, hosts=False), Backlog(connections=128)).outcome.status == "clear"
    )


def test_an_unread_limit_is_unknown() -> None:
    assert run_check(StoreScale, MANY, Absent(kind="Backlog", status="denied")).outcome.status == "unknown"
