"""When there is nothing left to wait for, and who is judged together."""

from __future__ import annotations

from typing import Any

import pytest
from attendees import attendee

from ddp_doctor.meeting.roll import QUIET_BY_HAND, QUIET_IN_DISPUTE, QUIET_SECONDS, Roll


def roll(*attendees: Any, sure: bool = True) -> Roll:
    filled = Roll(sure)
    for each in attendees:
        filled.came(each, now=0.0)
    return filled


def test_a_whole_world_is_settled_at_once() -> None:
    assert roll(attendee(1), attendee(0)).settled(0.0)


def test_a_missing_rank_is_waited_for() -> None:
    waiting = roll(attendee(0, 3), attendee(2, 3))
    assert not waiting.settled(1000.0)
    assert waiting.missing() == (1,)
    assert waiting.attendance(waiting.party(), 20.0, "socket", "").missing == (1,)


@pytest.mark.parametrize(
    ("second", "quiet"),
    [
        (attendee(0, pid=9), QUIET_SECONDS),
        (attendee(1, 3), QUIET_IN_DISPUTE),
        (attendee(1, port="29501"), QUIET_SECONDS),
        (attendee(1, pid=4100, thread=9), QUIET_SECONDS),
    ],
    ids=["same rank", "another world size", "another port", "another thread"],
)
def test_ranks_that_contradict_each_other_are_given_a_moment(second: Any, quiet: float) -> None:
    disputed = roll(attendee(0), second)
    assert not disputed.settled(quiet - 0.1)
    assert disputed.settled(quiet + 0.1)


def test_two_jobs_of_one_shell_are_judged_apart() -> None:
    both = roll(attendee(0), attendee(1, port="29501"), attendee(0, pid=7, port="29501"), sure=False)
    assert both.settled(0.0)
    assert {each.subject.pid for each in both.party()} == {4101, 7}
    both.forget(both.party())
    assert [each.rank for each in both.entered] == [0]


def test_one_job_started_by_hand_may_disagree_about_the_port() -> None:
    one = roll(attendee(0), attendee(1, port="29501"), sure=False)
    assert not one.settled(QUIET_BY_HAND - 0.1)
    assert one.settled(QUIET_BY_HAND + 0.1)
    assert len(one.party(over=True)) == 2


def test_what_is_left_of_several_jobs_is_judged_store_by_store() -> None:
    left = roll(attendee(0, 4), attendee(0, 4, pid=7, port="29501"), sure=False)
    assert len(left.party()) == 2
    assert [each.subject.pid for each in left.party(over=True)] == [4100]


def test_a_rank_whose_process_ended_is_named_apart_from_those_that_never_came() -> None:
    waiting = roll(*(attendee(rank, 4) for rank in range(3)))
    waiting.went(attendee(1, 4).key, "ended", 0.5)
    waiting.went(attendee(2, 4).key, "left", 0.5)
    outcome = waiting.attendance(waiting.party(), 20.0, "socket", "")
    assert (outcome.present, outcome.gone, outcome.missing) == ((0,), (1,), (2, 3))


def test_one_that_comes_again_is_here_again() -> None:
    back = roll(attendee(0), attendee(1))
    back.went(attendee(1).key, "left", 0.5)
    assert not back.settled(0.0)
    back.came(attendee(1), now=1.0)
    assert back.settled(1.0) and back.missing() == ()
