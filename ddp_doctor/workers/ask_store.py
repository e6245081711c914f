"""Asks HOST:PORT as a TCPStore client asks, without torch and without writing a key.

The protocol (torch 2.1 to 2.13; the ping since 2.5): a query byte, then u64 little-endian lengths before strings;
answers are raw.
A query always leaves in one piece, since a legacy store serves nobody else until a half-sent one is complete.
"""

import select
import socket
import struct
import time

VALIDATE, GET, CHECK, PING = 0, 3, 5, 13
MAGIC, NONCE = 0x3C85F7CE, 0x0DD0C70A
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
    for attempt in range(SILENT_TRIES):
        if attempt:
            if time.monotonic() + 0.5 > deadline:
                break
            time.sleep(0.2 * attempt)
        # a store of torch 2.1 to 2.4 knows no ping and closes
        answer = session(address, port, deadline, more, ping=answer.get("verdict") != "closes")
        if answer["verdict"] not in ("silent", "closes"):
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


def session(address, port, deadline, more=(), ping=True):
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
        hello = struct.pack("<BI", VALIDATE, MAGIC) + (struct.pack("<BI", PING, NONCE) if ping else b"")
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(hello + check("init/"))
            first = receive(sock, 4 if ping else 1, end)
            if first != struct.pack("<I", NONCE) and (ping or first not in (bytes([READY]), bytes([NOT_READY]))):
                return not_a_store(first + rest(sock))
        except ConnectionError:
            return {"verdict": "closes"}
        except Silent as silence:
            return not_a_store(silence.got) if silence.got else {"verdict": "silent"}
        found = {"verdict": "store"}
        try:
            if (receive(sock, 1, end) if ping else first) == bytes([READY]):
                found.update(members(sock, end, more))
        except (OSError, Silent, ValueError, struct.error):
            pass
        return found


def members(sock, end, more=()):
    """What the keys say; every key read here is known to exist, as reading an absent one makes a store close."""
    sock.sendall(struct.pack("<B", GET) + text("init/"))
    (size,) = struct.unpack("<Q", receive(sock, 8, end))
    joined = int(receive(sock, min(size, 32), end))
    ranks = range(min(joined, MOST_RANKS))
    keys = ["/default_pg/0//cuda//0"] + ["/default_pg/0//cpu//0/%d" % rank for rank in ranks]
    keys += more
    sock.sendall(b"".join(check(key) for key in keys))
    there = receive(sock, len(keys), end)
    asked = there[len(keys) - len(more) :]
    return {
        "present": [key for key, answer in zip(more, asked) if answer == READY],
        "joined": joined,
        "nccl_id": there[0] == READY,
        "ranks": [rank for rank in ranks if len(there) > rank + 1 and there[rank + 1] == READY],
    }


def check(key):
    return struct.pack("<BQ", CHECK, 1) + text(key)


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
