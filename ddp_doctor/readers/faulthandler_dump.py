"""What Python's faulthandler printed about all threads, to Stack facts."""

from __future__ import annotations

import re

from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Subject

_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'^  File "(.+?)", line (\d+) in (.+?)\s*$')


def looks_like_faulthandler(text: str) -> bool:
    """Whether a text begins with such a dump."""
    return any(_THREAD.match(line) for line in text.splitlines()[:5])


def read_faulthandler(text: str, source: str) -> list[Stack]:
    """One Stack per thread; the process is known by the file only."""
    stacks: list[Stack] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _THREAD.match(line):
            stacks.append(
                Stack(
                    subject=Subject(thread=int(match[1], 16)),
                    source=f"{source}:{number}",
                    thread_name=match[2] or "",
                    process=source,
                )
            )
        elif stacks and (match := _FRAME.match(line)):
            last = stacks[-1]
            frame = Frame(function=match[3], file=match[1], line=int(match[2]))
            stacks[-1] = Stack(
                subject=last.subject,
                source=last.source,
                thread_name=last.thread_name,
                frames=(*last.frames, frame),
                process=source,
            )
    return stacks
