"""Asks HOST:PORT as a TCPStore client asks, without torch and without writing a key.

The protocol: a query byte, then u64 little-endian lengths before strings; answers are raw. Since torch 2.2 the first query
has to be VALIDATE, and the ping is known since 2.5. Up to torch 2.1 the numbers of all queries are one less, so VALIDATE is
taken for SET there, and what follows it for the length of a key. After each VALIDATE stands what makes that length one that
no machine can allocate: such a store closes the connection without writing a key or taking memory.
A query always leaves in one piece, since a legacy store serves nobody else until a half-sent one is complete.
"""

import select
import socket
import struct
import time

VALIDATE, GET, CHECK, COUNT, PING = 0, 3, 5, 7, 13
MAGIC, NONCE = 0x3C85F7CE, 0x0DD0C70A
COUNTS = 4
READY, NOT_READY = 0, 1
SESSION_SECONDS = 0.2
SILENT_TRIES = 3
MOST_RANKS = 64


def main(request, say, hear):
    deadline = time.monotonic() + request["seconds"]
    if request.get("listen"):
        say(reach_self(request["address"], request["port"], deadline))
        return
    say(ask(request["address"], request["port"], deadline, request.get("keys", ())))


def ask(address, port, deadline, more=()):
    """One session; a silent one is tried again, because a store under load answers late. The last answer counts."""
    started = time.monotonic()
    answer = {}
    dialects, silent = [PingFirst, CountFirst, Unvalidated], 0
    while dialects and silent < SILENT_TRIES:
        if silent:
            if time.monotonic() + 0.5 > deadline:
                break
            time.sleep(0.2 * silent)
        answer = session(address, port, deadline, more, dialects[0])
        if answer["verdict"] == "silent":
            silent += 1
        elif answer["verdict"] == "closes":
            dialects.pop(0)
        else:
            break
    answer["seconds"] = round(time.monotonic() - started, 3)
    return answer


def connect(address, port, deadline):
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(max(0.05, deadline - time.monotonic()))
    try:
        sock.connect((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def not_connected(error):
    if isinstance(error, socket.timeout):
        return {"outcome": "dropped"}
    if isinstance(error, ConnectionRefusedError):
        return {"outcome": "refused", "errno": error.errno}
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return {"outcome": "elsewhere"}
    return {"outcome": "unreachable", "errno": error.errno, "error": error.strerror or str(error)}


class PingFirst:
    """Torch 2.5 and later."""

    shift = 0
    hello = struct.pack("<BIBI", VALIDATE, MAGIC, PING, NONCE)
    greeting = 4

    @staticmethod
    def known(answer):
        return answer == struct.pack("<I", NONCE)


class CountFirst(PingFirst):
    """Torch 2.2 to 2.4, where a ping closes the connection."""

    hello = struct.pack("<BI", VALIDATE, MAGIC) + bytes([COUNT]) * COUNTS
    greeting = 8 * COUNTS

    @staticmethod
    def known(answer):
        return len(answer) == 8 * COUNTS and len(set(struct.unpack("<%dq" % COUNTS, answer))) == 1


class Unvalidated(PingFirst):
    """Torch 2.1 and earlier; asked only where both others made the store close the connection."""

    shift = -1
    hello = b""
    greeting = 1

    @staticmethod
    def known(answer):
        return answer in (bytes([READY]), bytes([NOT_READY]))


def session(address, port, deadline, more=(), dialect=PingFirst):
    started = time.monotonic()
    try:
        sock = connect(address, port, deadline)
    except OSError as error:
        if isinstance(error, (ConnectionResetError, BrokenPipeError)):
            # it was accepted, and reset before the kernel had told this end
            return {"verdict": "closes"}
        answer = not_connected(error)
        answer["verdict"] = answer.pop("outcome")
        return answer
    with sock:
        end = min(deadline, time.monotonic() + max(SESSION_SECONDS, 4 * (time.monotonic() - started)))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(dialect.hello + check("init/", dialect.shift))
            first = receive(sock, dialect.greeting, end)
            if not dialect.known(first):
                return not_a_store(first + rest(sock))
        except ConnectionError:
            return {"verdict": "closes"}
        except Silent as silence:
            return not_a_store(silence.got) if silence.got else {"verdict": "silent"}
        found = {"verdict": "store"}
        try:
            if (receive(sock, 1, end) if dialect.hello else first) == bytes([READY]):
                found.update(members(sock, end, more, dialect.shift))
        except (OSError, Silent, ValueError, struct.error):
            pass
        return found


def members(sock, end, more=(), shift=0):
    """What the keys say; every key read here is known to exist, as reading an absent one makes a store close."""
    sock.sendall(struct.pack("<B", GET + shift) + text("init/"))
    (size,) = struct.unpack("<Q", receive(sock, 8, end))
    joined = int(receive(sock, min(size, 32), end))
    ranks = range(min(joined, MOST_RANKS))
    keys = ["/default_pg/0//cuda//0"] + ["/default_pg/0//cpu//0/%d" % rank for rank in ranks]
    keys += more
    sock.sendall(b"".join(check(key, shift) for key in keys))
    there = receive(sock, len(keys), end)
    asked = there[len(keys) - len(more) :]
    return {
        "present": [key for key, answer in zip(more, asked) if answer == READY],
        "joined": joined,
        "nccl_id": there[0] == READY,
        "ranks": [rank for rank in ranks if len(there) > rank + 1 and there[rank + 1] == READY],
    }


def check(key, shift=0):
    return struct.pack("<BQ", CHECK + shift, 1) + text(key)


def text(key):
    data = key.encode()
    return struct.pack("<Q", len(data)) + data


def not_a_store(got):
    if not got:
        return {"verdict": "closes"}
    shown = "".join(chr(byte) if 32 <= byte < 127 else "\\x%02x" % byte for byte in got[:32])
    return {"verdict": "http" if got.startswith(b"HTTP/") else "other", "got": shown}


class Silent(Exception):
    def __init__(self, got):
        self.got = got


def receive(sock, size, end):
    """Exactly that many bytes, fewer if the peer closes; raises Silent with what came when the time is up."""
    got = b""
    while len(got) < size:
        left = end - time.monotonic()
        if left <= 0 or not select.select([sock], [], [], left)[0]:
            raise Silent(got)
        data = sock.recv(size - len(got))
        if not data:
            break
        got += data
    return got


def rest(sock):
    """What else came with an answer that is no store's."""
    try:
        return receive(sock, 60, time.monotonic() + 0.05)
    except Silent as silence:
        return silence.got
    except OSError:
        return b""


def reach_self(address, port, deadline):
    """Listen on the port as the store would, connect to the address, and see whether the connection arrives here."""
    family, wildcard = (socket.AF_INET6, "::") if ":" in address else (socket.AF_INET, "0.0.0.0")
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((wildcard, port))
            listener.listen(16)
        except OSError as error:
            return {"errno": error.errno, "error": error.strerror}
        try:
            sock = connect(address, port, deadline)
        except OSError as error:
            return not_connected(error)
        with sock:
            end = min(deadline, time.monotonic() + 0.5)
            while time.monotonic() < end and select.select([listener], [], [], max(0.0, end - time.monotonic()))[0]:
                accepted, peer = listener.accept()
                accepted.close()
                # translated sources differ, so the proof is that the far end closes when this end does
                if peer[1] == sock.getsockname()[1] or select.select([sock], [], [], 0.05)[0]:
                    return {"outcome": "arrived"}
            return {"outcome": "elsewhere"}
