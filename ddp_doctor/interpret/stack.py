"""Python frames of a thread, live or from a traceback, to the stage of the rank it acts for.

Frames are matched by function and file: line numbers drift between versions. What each leaf means was measured on
torch 2.13; `_create_c10d_store` alone cannot tell connecting from waiting for the other ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddp_doctor.facts.process import Frame, RankThread, Stack
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts, Stage

_LEAVES: Mapping[str, tuple[Stage, Stage]] = {
    "_create_c10d_store": (Stage.STORE_CONNECT, Stage.STORE_WAIT),
    "_new_process_group_helper": (Stage.STORE_WAIT, Stage.GLOO_MESH),
    "_store_based_barrier": (Stage.STORE_WAIT, Stage.STORE_WAIT),
}
_DEFAULT_KEY = re.compile(r"/default_pg/(\d+)//(?:cpu|cuda)//\d+(?:/(\d+))?")
# a folder of the user's may be called torch too; torch's own files are short names in a dump, or lie in known packages
_LIBRARY = re.compile(
    r"^torch/|/torch/(distributed|multiprocessing|nn|utils)/|(^|/)(site-packages|dist-packages|lib/python3[\w.]*)/"
    r"|^<|(^|/)threading\.py$"
)


def interpret(facts: Facts) -> list[Fact]:
    """A RankThread for each stack that stands, or died, in the initialisation of a group."""
    return [thread for stack in facts[Stack] if (thread := rank_thread(stack)) is not None]


def rank_thread(stack: Stack) -> RankThread | None:
    """What this thread does as a rank; None if no frame of it is inside init_process_group or new_group."""
    names = [frame.function.rsplit(".", 1)[-1] for frame in stack.frames]
    distributed = [name for name, frame in zip(names, stack.frames, strict=True) if "torch/distributed/" in frame.file]
    call = next((name for name in ("init_process_group", "new_group") if name in distributed), None)
    if call is None:
        return None
    bounds = [_LEAVES[name] for name in distributed if name in _LEAVES]
    at_least, at_most = bounds[0] if bounds else (Stage.STORE_CONNECT, Stage.TRANSPORT)
    arguments = _arguments(stack.frames)
    key = _DEFAULT_KEY.search(stack.ended)
    rank = _number(arguments, "rank", "group_rank")
    world_size = _number(arguments, "world_size", "group_size")
    number = int(key[1]) if key else _number(arguments, "group_name") if call == "init_process_group" else None
    if rank is None and stack.subject.rank is not None:
        rank = stack.subject.rank
    return RankThread(
        subject=stack.subject,
        source=stack.source,
        at_least=at_least,
        at_most=at_most,
        group="default" if call == "init_process_group" else arguments.get("group_name", "unnamed"),
        group_number=number,
        rank=rank,
        world_size=world_size,
        thread_name=stack.thread_name,
        process=stack.process,
        where=user_frame(stack.frames),
        call=call,
        ended=stack.ended,
        waits_for=key[0] if key else "",
    )


def user_frame(frames: tuple[Frame, ...]) -> str:
    """The innermost frame that is no library's, as `train.py:12 worker`; empty if there is none."""
    for frame in frames:
        if not _LIBRARY.search(frame.file):
            return f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} {frame.function}"
    return ""


def _arguments(frames: tuple[Frame, ...]) -> dict[str, str]:
    """Arguments of all frames; the outermost wins, since torch rewrites `rank=-1` only in inner calls."""
    merged: dict[str, str] = {}
    for frame in frames:
        merged.update((name, value) for name, value in frame.arguments.items() if name not in merged or value != "-1")
    return merged


def _number(arguments: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        value = arguments.get(name, "")
        if value.isdigit():
            return int(value)
    return None


INTERPRETER = Interpreter(reads=(Stack,), gives=(RankThread,), interpret=interpret)
