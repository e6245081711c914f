"""Training scripts, read without running them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.script import KINDS, ScriptRead
from ddp_doctor.host import Host
from ddp_doctor.interpret.script import script_facts
from ddp_doctor.model import Absent, Fact, Facts

MOST_FILES = 2000
MOST_BYTES = 1 << 20


def scripts_probe(paths: Iterable[str]) -> Probe:
    """The probe for these scripts and folders of scripts; modules beside a script are followed, not judged."""
    wanted = tuple(paths)

    def take(host: Host, known: Facts) -> Iterator[Observation]:
        request = {"paths": wanted, "limit": MOST_BYTES, "most_files": MOST_FILES}
        answer = host.ask("read_scripts", request)
        texts: dict[str, bytes] = {}
        scripts: list[str] = []
        for message in answer.messages:
            if "error" in message:
                yield from _unread(f"cannot read {message['path']}: {message['error']}")
                continue
            texts[os.path.abspath(message["path"])] = base64.b64decode(message["base64"])
            if message["wanted"]:
                scripts.append(message["path"])
        if answer.status != "ok":
            yield from _unread(f"reading {', '.join(wanted)}: {answer.reason}")
        for script in scripts:
            yield from _facts(script, texts)

    return Probe(name="scripts", gives=(ScriptRead, *KINDS), take=take)


def _facts(script: str, texts: dict[str, bytes]) -> Iterator[Observation]:
    folder = os.path.dirname(os.path.abspath(script))

    def beside(relative: str) -> str | None:
        content = texts.get(os.path.normpath(os.path.join(folder, relative)))
        return None if content is None else content.decode("utf-8", "replace")

    facts = script_facts(script, texts[os.path.abspath(script)], beside)
    yield from facts
    yield from facts.absents


def _unread(reason: str) -> Iterator[Absent]:
    kinds: tuple[type[Fact], ...] = (ScriptRead, *KINDS)
    for kind in kinds:
        yield Absent(kind=kind.kind(), status="absent", reason=reason)
