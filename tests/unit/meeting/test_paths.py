"""Who tries to reach whom, and what listeners and callers tell: plans on values, sockets on loopback."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from ddp_doctor.meeting.calls import Target, call
from ddp_doctor.meeting.doors import Door, Doors, Place
from ddp_doctor.meeting.messages import Listens, Tried, Tries
from ddp_doctor.meeting.paths import Paths, further, planned


def names(count: int) -> tuple[str, ...]:
    return tuple(f"m{number}" for number in range(count))


def test_few_machines_try_all_others() -> None:
    assert len(planned(names(4))) == 12


@pytest.mark.parametrize("count", [9, 100, 1000])
def test_of_many_machines_rank_zeros_meets_all_and_each_its_neighbours(count: int) -> None:
    pairs = planned(names(count))
    assert {("m0", each) for each in names(count)[1:]} | {(each, "m0") for each in names(count)[1:]} <= pairs
    assert {("m4", "m5"), ("m5", "m4"), (f"m{count - 1}", "m0")} <= pairs
    assert len(pairs) <= 9 * count


def test_after_a_failure_the_same_again_the_way_back_and_three_witnesses() -> None:
    failed = {("m0", "m9")}
    assert further(failed, failed, names(12)) == {("m0", "m9"), ("m9", "m0"), ("m1", "m9"), ("m2", "m9"), ("m3", "m9")}


class Network:
    """Machines that answer at once; `broken` are the pairs that fail, `mute` the machines that never answer."""

    def __init__(self, count: int, broken: set[tuple[str, str]] | None = None, mute: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[str, str]] = []
        self.machines, self.broken, self.mute = names(count), broken or set(), mute
        self.out: list[tuple[str, Tries]] = []
        self.paths = Paths(lambda machine, tries: self.out.append((machine, tries)))
        for rank, machine in enumerate(self.machines):
            self.paths.listens(Listens(machine, machine, rank, (door(machine),)), 0.0)

    def run(self, seconds: float = 60.0) -> float:
        """Until nothing is pending; the seconds it took."""
        now = 0.0
        while self.paths.pending(now, set(self.machines), False) and now < seconds:
            self.paths.step(now, set(self.machines), True)
            out, self.out = self.out, []
            for machine, tries in out:
                self.asked += [(machine, target.host) for target in tries.targets]
                if machine not in self.mute:
                    tried = [self._table(machine, target) for target in tries.targets]
                    self.paths.tried(Tried(tries.turn, machine, tried, []))
            now += 0.1
        return now

    def _table(self, machine: str, target: Target) -> dict[str, Any]:
        outcome = "dropped" if (machine, target.host) in self.broken else "reached"
        return {"to": target.host, "address": target.door.address, "port": target.door.port, "outcome": outcome}


def door(machine: str) -> Door:
    return Door(address=f"10.0.0.{machine[1:]}", port=40000, uses=("host",), nonce=machine)


def test_a_healthy_network_is_tried_once() -> None:
    network = Network(3)
    assert network.run() < 1.0
    assert len(network.asked) == 6 == len(network.paths.tables)


def test_a_broken_pair_is_tried_twice_and_said_once() -> None:
    network = Network(3, {("m0", "m2")})
    assert network.run() < 1.0
    assert network.asked.count(("m0", "m2")) == 2
    assert [each["outcome"] for each in network.paths.tables].count("dropped") == 1


def test_a_machine_that_stops_in_a_turn_ends_it_all_the_same() -> None:
    network = Network(3, mute=("m1",))
    assert network.run() < 15.0
    assert {each["to"] for each in network.paths.tables} == {"m0", "m1", "m2"}


def test_a_machine_that_never_listens_is_not_waited_for() -> None:
    paths = Paths(lambda machine, tries: None)
    paths.step(0.1, {"m0", "m1"}, True)
    assert paths.pending(1.0, {"m0", "m1"}, False)
    assert not paths.pending(10.0, {"m0", "m1"}, False)
    assert not paths.pending(0.1, {"m0"}, False)


def tries(targets: list[Target], seconds: float = 0.5) -> list[dict[str, Any]]:
    return call(targets, {}, "here", seconds)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is everybody's own; here it stands for another host's address."""
    monkeypatch.setattr("ddp_doctor.meeting.calls._is_own", lambda family, address: False)


def test_a_listener_says_who_it_is_and_whom_it_sees(elsewhere: None) -> None:
    doors = Doors()
    try:
        opened = doors.open(
            [Place(address="127.0.0.1", uses=("gloo",), interface="lo"), Place(address="::1", uses=("nccl",))]
        )
        tables = tries([Target(host="there", door=each) for each in opened])
        time.sleep(0.3)
        seen = doors.seen("there")
    finally:
        doors.close()
    assert [each["outcome"] for each in tables] == ["reached"] * len(opened)
    assert tables[0]["seen_as"] == tables[0]["local"] == "127.0.0.1"
    assert [(each["accepted"], each["queued"] < each["backlog"]) for each in seen] == [(1, True)] * len(opened)
    assert [each["outcome"] for each in tries([Target(host="there", door=each) for each in opened])] == [
        "refused"
    ] * len(opened)


def test_what_answers_with_something_else_is_another_host(elsewhere: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = Door(address="127.0.0.1", port=server.getsockname()[1], uses=("host",), nonce="right")
        server.settimeout(2.0)
        import threading

        def answer() -> None:
            server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        (table,) = tries([Target(host="there", door=there)])
        thread.join()
    assert table["outcome"] == "wrong-host"


def test_a_process_that_is_stopped_is_silent(elsewhere: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # the kernel accepts, and nobody speaks
        there = Door(address="127.0.0.1", port=server.getsockname()[1], uses=("host",), nonce="right")
        (table,) = tries([Target(host="there", door=there)])
    assert table["outcome"] == "silent"


def test_an_address_of_ones_own_is_not_called() -> None:
    (table,) = tries([Target(host="there", door=Door(address="127.0.0.1", port=9, uses=("gloo",), nonce="x"))])
    assert table["outcome"] == "wrong-host" and table["own"]


def test_a_port_that_somebody_holds_is_left_alone() -> None:
    doors = Doors()
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert doors.open([Place(address="127.0.0.1", uses=("store",), port=port)]) == ()
        assert [each.port for each in doors.open([Place(address="127.0.0.1", uses=("store",), port=port)])] == [port]
    finally:
        doors.close()
    socket.create_server(("127.0.0.1", port)).close()
