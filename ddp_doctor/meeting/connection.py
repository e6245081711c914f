"""One end of a meeting's connection: whole messages in, whole messages out, and neither ever blocks."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

from ddp_doctor.meeting.messages import LENGTH_BYTES, MOST_SAID, Message, framed, unframed

MOST_QUEUED = 64 << 20
PIECE = 1 << 18


class Connection:
    """A connected stream socket. `closed` says why it is over, empty while it is not; `token` what the peer has to say."""

    def __init__(self, sock: socket.socket, most: int = MOST_SAID, token: str = "") -> None:
        sock.setblocking(False)
        self.token = token
        self._sock = sock
        self._most = most
        self._in = bytearray()
        self._out: list[memoryview] = []
        self._queued = 0
        self.closed = ""

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._sock.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits for the peer to read."""
        return bool(self._out)

    @property
    def acknowledged(self) -> bool:
        """Whether the kernel at the other end has taken all that was sent."""
        waiting = fcntl.ioctl(self.fileno(), termios.TIOCOUTQ, b"\0" * 4)
        return not self.unsent and struct.unpack("i", waiting)[0] == 0

    def send(self, message: Message | bytes) -> None:
        """Queue a message (or one that is framed already) and send what the peer takes now."""
        data = message if isinstance(message, bytes) else framed(message)
        self._out.append(memoryview(data))
        self._queued += len(data)
        if self._queued > MOST_QUEUED:
            self._end("does not read")
        self.flush()

    def flush(self) -> None:
        """Send what the peer takes now."""
        while self._out and not self.closed:
            try:
                sent = self._sock.send(self._out[0])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(error.strerror or str(error))
                return
            self._queued -= sent
            if sent == len(self._out[0]):
                self._out.pop(0)
            else:
                self._out[0] = self._out[0][sent:]

    def receive(self) -> list[Message]:
        """The messages that have come; a peer that breaks the rules is cut off, and `closed` says how."""
        while not self.closed:
            try:
                data = self._sock.recv(PIECE)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._end(error.strerror or str(error))
                break
            if not data:
                self._end("closed by the peer")
                break
            self._in += data
            if len(self._in) > self._most + PIECE or len(data) < PIECE:
                break
        return self._messages()

    def _messages(self) -> list[Message]:
        found: list[Message] = []
        place = 0
        while len(self._in) - place >= LENGTH_BYTES:
            length = int.from_bytes(self._in[place : place + LENGTH_BYTES], "big")
            if length > self._most:
                self._end(f"a message of {length} bytes")
                break
            end = place + LENGTH_BYTES + length
            if len(self._in) < end:
                break
            try:
                found.append(unframed(bytes(self._in[place + LENGTH_BYTES : end])))
            except ValueError as error:
                self._end(f"no message of this version: {error}")
                break
            place = end
        del self._in[:place]
        return found

    def close(self) -> None:
        """Close the socket; what is unsent is lost."""
        self.closed = self.closed or "closed here"
        self._sock.close()

    def _end(self, why: str) -> None:
        self.closed = self.closed or why
