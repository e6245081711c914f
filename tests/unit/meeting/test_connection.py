"""Messages arrive whole or the connection ends; nothing that a peer sends is trusted."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator

import msgspec
import pytest
from attendees import attendee

from ddp_doctor.meeting.connection import Connection
from ddp_doctor.meeting.messages import VERSION, Came, Message, Pulse, Saw, Verdict, framed


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Connection]]:
    ours, theirs = socket.socketpair()
    connection = Connection(theirs, most=1 << 16)
    yield ours, connection
    ours.close()
    connection.close()


MESSAGES: list[Message] = [
    Came(VERSION, "job", attendee(3, 8, variables={"NCCL_DEBUG": "INFO"})),
    Saw("node-a", [{"kind": "Port", "port": 29500}]),
    Pulse(3, 8, (1, 2)),
    Verdict(b"report", ("node-a", 1, 2, 3)),
]


def test_messages_in_pieces(pair: tuple[socket.socket, Connection]) -> None:
    ours, connection = pair
    data = b"".join(map(framed, MESSAGES))
    heard: list[Message] = []
    for place in range(0, len(data), 7):
        ours.sendall(data[place : place + 7])
        heard += connection.receive()
    assert heard == MESSAGES and not connection.closed


@pytest.mark.parametrize(
    "data",
    [
        (1 << 30).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        len(pickle.dumps({})).to_bytes(4, "big") + pickle.dumps({}),
        framed(Pulse(1, 2))[:4] + b"\xc1" * (len(framed(Pulse(1, 2))) - 4),
        (6).to_bytes(4, "big") + msgspec.msgpack.encode([99, 1, 2, 3, 4]),
    ],
    ids=["too long", "http", "pickle", "no msgpack", "unknown tag"],
)
def test_what_is_no_message_ends_the_connection(pair: tuple[socket.socket, Connection], data: bytes) -> None:
    ours, connection = pair
    ours.sendall(data)
    assert connection.receive() == []
    assert connection.closed


def test_a_peer_that_does_not_read_blocks_nobody(pair: tuple[socket.socket, Connection]) -> None:
    _, connection = pair
    for _ in range(200):
        connection.send(b"x" * (1 << 20))
    assert connection.closed == "does not read"


def test_an_end_is_noticed_after_what_came_before_it(pair: tuple[socket.socket, Connection]) -> None:
    ours, connection = pair
    ours.sendall(framed(Pulse(1, 2)))
    ours.close()
    heard = connection.receive() + connection.receive()
    assert heard == [Pulse(1, 2)]
    assert connection.closed == "closed by the peer"
