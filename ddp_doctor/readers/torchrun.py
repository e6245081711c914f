"""The error file that torchrun has each failing rank write (`error.json`), to facts."""

from __future__ import annotations

import json

from ddp_doctor.facts.log import RankEnd
from ddp_doctor.model import Fact
from ddp_doctor.readers.line import harmless_text
from ddp_doctor.readers.log import LogReader


def looks_like_error_file(text: str) -> bool:
    """Whether this is what torch.distributed.elastic's `record` wrote."""
    head = text.lstrip()[:200]
    return head.startswith('{"message":') and ("extraInfo" in text or "py_callstack" in text or "timestamp" in text)


def read_error_file(text: str, source: str, reader: LogReader, base: int = 0) -> list[Fact]:
    """The error, its traceback, and when it came; raises ValueError for something else."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("not an error file of torchrun: nested too deep") from None
    message = content.get("message") if isinstance(content, dict) else None
    if isinstance(message, str):
        message = {"message": message, "extraInfo": {}}
    if not isinstance(message, dict):
        raise ValueError("not an error file of torchrun")
    more = message.get("extraInfo")
    more = more if isinstance(more, dict) else {}
    error = str(message.get("message", ""))
    stack = str(more.get("py_callstack", ""))
    facts = reader.read(f"{error}\n{stack}".encode(), source, base)
    stamp = str(more.get("timestamp", ""))
    facts.append(
        RankEnd(
            source=source,
            code=1,
            error=harmless_text(error)[:400],
            at=float(stamp) if stamp.isdigit() else None,
            order=base,
        )
    )
    return facts
