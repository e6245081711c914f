"""The first lines of a report on values: who started this shell, and whose port MASTER_PORT is."""

from __future__ import annotations

import pytest
from ddp_doctor_checks.headlines import launch_environment, store_port

from ddp_doctor.facts.launch import Ancestor, Variable
from ddp_doctor.facts.rendezvous import Meeting, Port, StoreAnswer
from ddp_doctor.model import Facts, Report, Target, Tool, Verdict
from ddp_doctor.render.text import render

BY_HAND = (Variable(name="RANK", value="0"), Variable(name="WORLD_SIZE", value="2"))
SHELL = Ancestor(depth=0, command="bash")
RANK_1 = Meeting(address="10.0.0.5", address_variable="MASTER_ADDR", port=29511, hosts=False)
FREE = Port(port=29511, named=True, bindable=True)


def test_a_rank_by_hand_is_called_so_once() -> None:
    assert launch_environment(Facts([*BY_HAND, SHELL])) == "rank 0 of 2, set by hand"


def test_variables_that_make_no_rank_are_not_said_to_be_absent() -> None:
    assert "not set" not in launch_environment(Facts([Variable(name="RANK", value="x"), SHELL]))
    assert launch_environment(Facts([SHELL])).startswith("RANK and WORLD_SIZE are not set")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (Target(launcher="by hand", rank_variables=True), "rank variables set by hand"),
        (Target(launcher="torchrun", rank_variables=True), "launched by torchrun"),
        (Target(rank_variables=True), "started by no launcher"),
        (Target(), "no rank variables in this shell"),
    ],
)
def test_the_header_agrees(target: Target, says: str) -> None:
    tool = Tool(version="1", command="run", seconds=0.1)
    report = Report(tool=tool, target=target, verdict=Verdict(status="healthy"))
    assert render(report).splitlines()[0].endswith(says)


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ("refused", "29511 (MASTER_PORT) is rank 0's; 10.0.0.5:29511 connection refused: nothing listens, as is normal "
                    "before rank 0 has started"),
        ("store", "29511 (MASTER_PORT) is rank 0's; 10.0.0.5:29511 a TCPStore"),
        ("dropped", ""),
    ],
)  # fmt: skip
def test_a_port_of_another_rank_is_never_called_free(verdict: str, says: str) -> None:
    answer = StoreAnswer(name="10.0.0.5", address="10.0.0.5", port=29511, verdict=verdict)  # type: ignore[arg-type]
    assert store_port(Facts([RANK_1, FREE, answer])) == says


def test_rank_0_needs_the_port_free() -> None:
    rank_0 = Meeting(address="10.0.0.5", port=29511, hosts=True)
    assert store_port(Facts([rank_0, FREE])) == "29511 (MASTER_PORT) is free on all addresses"
