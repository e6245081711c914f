"""Asks NCCL's RAS service for its report. It is a thread of a rank that serves such questions; nothing else is asked."""

import socket
import time

MOST = 1 << 19
PIECE = 1 << 16


def main(request, say, hear):
    end = time.monotonic() + request["seconds"]
    try:
        answer = ask(request["address"], request["port"], end)
    except OSError as error:
        say({"error": error.strerror or str(error)})
        return
    for start in range(0, len(answer), PIECE):
        say({"text": answer[start : start + PIECE].decode("utf-8", "replace")})


def ask(address, port, end):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(max(0.05, end - time.monotonic()))
        sock.connect((address, port))
        lines = Lines(sock, end)
        lines.send("CLIENT PROTOCOL 2")
        hello = lines.receive()
        if not hello.startswith(b"SERVER PROTOCOL"):
            raise OSError(0, "it speaks no RAS: %r" % hello[:60])
        lines.send("TIMEOUT 1")
        lines.receive()
        # 2.28.7 and later; an older one says that it does not know the word
        lines.send("SET FORMAT json")
        lines.receive()
        lines.send("VERBOSE STATUS")
        return lines.rest()


class Lines:
    def __init__(self, sock, end):
        self._sock, self._end, self._got = sock, end, b""

    def send(self, line):
        self._sock.sendall(line.encode() + b"\n")

    def _more(self):
        self._sock.settimeout(max(0.01, self._end - time.monotonic()))
        data = self._sock.recv(PIECE)
        self._got += data
        return bool(data) and len(self._got) < MOST

    def receive(self):
        while b"\n" not in self._got and self._more():
            pass
        line, _, self._got = self._got.partition(b"\n")
        return line

    def rest(self):
        try:
            while self._more():
                pass
        except socket.timeout:
            pass
        return self._got
