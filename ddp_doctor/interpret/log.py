"""Lines of a job's log to what its ranks were doing, where no traceback tells it."""

from __future__ import annotations

import re

from ddp_doctor.facts.process import RankThread, Stack, StoreWait
from ddp_doctor.interpret import Interpreter
from ddp_doctor.interpret.stack import rank_thread
from ddp_doctor.model import Fact, Facts, Stage

_DEFAULT_KEY = re.compile(r"/default_pg/(\d+)//(?:cpu|cuda)//\d+(?:/\d+)?$")


def interpret(facts: Facts) -> list[Fact]:
    """A RankThread for each wait for a key of a default group that no traceback through init covers in the same log.

    The number in the key counts the groups of one process: 1 means that this process had begun a group before.
    """
    told = {(stack.process, key) for stack in facts[Stack] if rank_thread(stack) for key in _keys(stack.ended)}
    # a backend that connects late waits for the same keys in its first collective
    threads = {(stack.process, key): stack for stack in facts[Stack] for key in _keys(stack.ended)}
    found: list[Fact] = []
    for wait in facts[StoreWait]:
        for key in wait.keys:
            match = _DEFAULT_KEY.match(key)
            if match is None or (wait.process, key) in told:
                continue
            told.add((wait.process, key))
            stack = threads.get((wait.process, key))
            found.append(
                RankThread(
                    subject=wait.subject,
                    source=wait.source,
                    at_least=Stage.STORE_WAIT,
                    at_most=Stage.GLOO_MESH,
                    group_number=int(match[1]),
                    rank=wait.rank,
                    thread_name=stack.thread_name if stack else "",
                    process=wait.process,
                    ended=wait.line,
                    waits_for=key,
                )
            )
    return found


def _keys(text: str) -> list[str]:
    return re.findall(r"/default_pg/\d+//(?:cpu|cuda)//\d+(?:/\d+)?", text)


INTERPRETER = Interpreter(reads=(StoreWait, Stack), gives=(RankThread,), interpret=interpret)
