"""The paths between the hosts of a job, tried with listeners of the doctor's own before any process group exists."""

from __future__ import annotations

from typing import Literal

from ddp_doctor.model import Fact

Use = Literal["host", "nccl", "gloo", "store"]
Outcome = Literal["reached", "refused", "dropped", "unreachable", "wrong-host", "silent"]


class PathListener(Fact, frozen=True, kw_only=True):
    """One listener that the doctor opened on the subject's host, for as long as the paths were tried.

    `uses` says what this address stands for: where the host is known (`host`), where NCCL or Gloo listen, and for
    rank 0's host MASTER_PORT itself (`store`), where nothing held it. The others have ports that the kernel chose.
    """

    address: str
    port: int
    uses: tuple[Use, ...]
    interface: str = ""
    backlog: int = 0
    queued: int = 0
    """The most connections that were seen to wait for being accepted."""
    accepted: int = 0

    @property
    def took(self) -> bool:
        """Whether it could have taken another connection all the time."""
        return self.backlog > 0 and self.queued < self.backlog

    def text(self) -> str:
        return (
            f"listened on {self.address}:{self.port}, {self.accepted} connections accepted, "
            f"accept queue at most {self.queued} of {self.backlog}"
        )


class PathTry(Fact, frozen=True, kw_only=True):
    """One connection from the subject's host to a listener of another.

    `refused`, `dropped` (no answer to the connect) and `unreachable` (`error` says why) never connected; `silent`
    connected and heard nothing, `wrong-host` something else than that listener's greeting, or the address is one of
    the subject's own (`own`): it would have connected to itself.
    """

    to: str
    address: str
    port: int
    uses: tuple[Use, ...]
    outcome: Outcome
    error: str = ""
    errno: int | None = None
    seconds: float = 0.0
    local: str = ""
    """The address it was made from."""
    seen_as: str = ""
    """The address that the listener saw it come from, where it was reached."""
    own: bool = False
    answered_by: str = ""
    """The host whose listener answered instead, where that is known."""

    @property
    def ok(self) -> bool:
        """Whether the connection came to the listener it was meant for."""
        return self.outcome == "reached"

    @property
    def translated(self) -> bool:
        """Whether the listener saw another source address than the connection has."""
        return bool(self.ok and self.seen_as and self.local and self.seen_as != self.local)

    def text(self) -> str:
        return f"{self.address}:{self.port} on {self.to} {self.said}"

    @property
    def said(self) -> str:
        """What came of it, in words."""
        return {
            "reached": f"answered {self.seen_as or self.local}",
            "refused": "refused the connection, although the doctor listened there",
            "dropped": f"did not answer in {self.seconds:.1f} s",
            "unreachable": f"cannot be reached: {self.error}",
            "wrong-host": "is an address of this host itself"
            if self.own
            else f"is answered by {self.answered_by or 'something else'}",
            "silent": f"took the connection and said nothing in {self.seconds:.1f} s",
        }[self.outcome]
