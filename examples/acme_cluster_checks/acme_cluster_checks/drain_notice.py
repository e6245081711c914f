"""The notice that Acme's operators leave on a node before they take it out of service."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor import Absent, Fact, Facts, Host, Probe, Subject

NOTICE = "/etc/acme/drain"


class DrainNotice(Fact, frozen=True, kw_only=True):
    """Whether this node carries a drain notice, and its words. `source` is the file."""

    present: bool
    words: str = ""

    def text(self) -> str:
        return self.words or "no drain notice"


def take(host: Host, facts: Facts) -> Iterator[DrainNotice | Absent]:
    """One DrainNotice. The file may lie on a network mount, so a worker reads it and is killed at its deadline."""
    path = host.environ.get("ACME_DRAIN_NOTICE", NOTICE)
    here = Subject(host=host.name)
    answer = host.ask("read_files", {"paths": [path], "limit": 4096})
    if answer.status == "ok":
        words = str(answer.first.get("text", "")).strip()
        yield DrainNotice(subject=here, source=path, present="text" in answer.first, words=words)
    else:
        yield Absent(
            kind=DrainNotice.kind(),
            about=here,
            status="timeout" if answer.status == "timeout" else "crashed",
            reason=f"reading {path}: {answer.reason}",
            how_to_get=f"cat {path}",
        )


PROBE = Probe(name="acme-drain-notice", gives=(DrainNotice,), take=take)
