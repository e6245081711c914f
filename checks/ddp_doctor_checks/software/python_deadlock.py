"""DDP506: python stands still inside one rank."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class PythonDeadlock(Check):
    id, name = "DDP506", "python-deadlock"
    title = "Python stands still inside one rank"
    needs = (LogEvent,)
    acts_at = frozenset(
        {Stage.PYTHON, Stage.STORE_CONNECT, Stage.STORE_WAIT, Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.TRAINING}
    )
    told = Told(
        because="a thread of the process holds the interpreter's lock or an import's, and another waits for it, so this "
        "rank stands still and the others wait for it",
        fixes=(
            Fix(
                title="see which thread holds it",
                commands=("py-spy dump --pid PID", "ddp-doctor attach PID"),
                needs="nothing",
            ),
        ),
    )
