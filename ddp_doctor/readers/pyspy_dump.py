"""What `py-spy dump` printed, as JSON or as text, to Stack facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Subject

KEPT_ARGUMENTS = frozenset(
    {"rank", "world_size", "group_rank", "group_size", "group_name", "hostname", "port", "init_method", "backend"}
    | {"ranks", "global_ranks_in_group", "i"}
)
"""The only locals that leave a dump, and only those of torch.distributed frames (`i` is the index that
torch.multiprocessing gives each process it starts)."""

_PROCESS = re.compile(r"^Process (\d+):")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+) \(([\w+ ]*)\)(?:: "(.*)")?$')
_FRAME = re.compile(r"^ {4}(\S.*) \((.+?)(?::(\d+))?\)$")
_ARGUMENT = re.compile(r"^ {12}([\w.]+): (.*)$")


def looks_like_dump(text: str) -> bool:
    """Whether this is a dump of py-spy in either form."""
    head = text.lstrip()[:4096]
    return bool(_PROCESS.search(head) or _THREAD.search(head)) or (head.startswith("[") and '"thread_id"' in head)


def read_dump(text: str, source: str, subject: Subject | None = None) -> list[Stack]:
    """One Stack per thread. `subject` says which process it is where the dump does not.

    Raises ValueError for a text that is no dump.
    """
    subject = subject or Subject()
    if text.lstrip().startswith("["):
        return list(_from_json(text, source, subject))
    return list(_from_text(text, source, subject))


def in_torch_distributed(frame: Frame) -> bool:
    """Whether a frame is torch.distributed's own, or where torch.multiprocessing starts one of its processes."""
    return "torch/distributed/" in frame.file or frame.file.endswith("torch/multiprocessing/spawn.py")


def _from_json(text: str, source: str, subject: Subject) -> Iterator[Stack]:
    try:
        threads = json.loads(text)
    except RecursionError:
        raise ValueError("not a py-spy dump: nested too deep") from None
    if not isinstance(threads, list):
        raise ValueError("not a py-spy dump: the JSON is no list of threads")
    yield from read_threads(threads, source, subject)


def read_threads(threads: list[Any], source: str, subject: Subject) -> Iterator[Stack]:
    """The threads of a JSON dump. Raises ValueError for what is no thread."""
    for thread in threads:
        if not isinstance(thread, dict) or not isinstance(thread.get("frames"), list):
            raise ValueError("not a py-spy dump: a thread without frames")
        pid = subject.pid or thread.get("pid")
        number = thread.get("os_thread_id") or thread.get("thread_id")
        yield Stack(
            subject=Subject(
                host=subject.host, pid=pid, start_time=subject.start_time, thread=number, rank=subject.rank
            ),
            source=f"pid {pid} thread {number}" if subject.pid else f"{source} thread {number}",
            thread_name=str(thread.get("thread_name") or ""),
            frames=tuple(_frame(frame) for frame in thread["frames"] if isinstance(frame, dict)),
            active=thread.get("active"),
            owns_gil=thread.get("owns_gil"),
        )


def _frame(raw: dict[str, Any]) -> Frame:
    frame = Frame(
        function=str(raw.get("name", "")),
        file=str(raw.get("filename") or raw.get("short_filename") or ""),
        line=raw["line"] if isinstance(raw.get("line"), int) else 0,
    )
    if not in_torch_distributed(frame):
        return frame
    arguments = {
        str(local.get("name")): str(local.get("repr", "")).strip('"')
        for local in raw.get("locals") or ()
        if isinstance(local, dict) and local.get("arg") and local.get("name") in KEPT_ARGUMENTS
    }
    return Frame(function=frame.function, file=frame.file, line=frame.line, arguments=arguments)


def _from_text(text: str, source: str, subject: Subject) -> Iterator[Stack]:
    pid = subject.pid
    header: re.Match[str] | None = None
    frames: list[Frame] = []
    section = ""

    def stack() -> Iterator[Stack]:
        if header is None:
            return
        state = header[2].split("+")
        number = int(header[1], 0)
        yield Stack(
            subject=Subject(
                host=subject.host, pid=pid, start_time=subject.start_time, thread=number, rank=subject.rank
            ),
            source=f"{source} thread {number}",
            thread_name=header[3] or "",
            frames=tuple(frames),
            active="active" in state,
            owns_gil="gil" in state,
        )

    seen = False
    for line in text.splitlines():
        if match := _PROCESS.match(line):
            yield from stack()
            header, frames, pid, seen = None, [], int(match[1]), True
        elif match := _THREAD.match(line):
            yield from stack()
            header, frames, section, seen = match, [], "", True
        elif header and (match := _FRAME.match(line)):
            frames.append(Frame(function=match[1], file=match[2], line=int(match[3] or 0)))
            section = ""
        elif line.strip() in ("Arguments:", "Locals:"):
            section = line.strip()
        elif section == "Arguments:" and frames and (match := _ARGUMENT.match(line)):
            last = frames[-1]
            if match[1] in KEPT_ARGUMENTS and in_torch_distributed(last):
                arguments = last.arguments | {match[1]: match[2].strip('"')}
                frames[-1] = Frame(function=last.function, file=last.file, line=last.line, arguments=arguments)
    yield from stack()
    if not seen:
        raise ValueError("not a py-spy dump: no thread in it")
