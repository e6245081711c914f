"""What a running job shows of DDP505 where a rank waits for a person: a question, a password, a debugger's command."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.job import JobRank, Process
from ddp_doctor.model import Fix

DEBUGGER = ("cmdloop", "interaction")
"""Frames of pdb and of the debuggers that are built on it, while they wait for a command."""
PASSWORD = ("unix_getpass", "fallback_getpass")


def waits_for_a_person(rank: JobRank, process: Process) -> dict[str, Any] | None:
    """Summary and fixes of a rank that nobody answers; None where it waits for something else."""
    functions = {name.rpartition(".")[2] for name in rank.functions}
    if functions.issuperset(DEBUGGER):
        return {
            "summary": f"{rank.name} stands in the debugger at {rank.where} and waits for a command",
            "fixes": [
                Fix(
                    title=f"take the breakpoint at {rank.where} out; breakpoint() is also passed over with",
                    commands=("export PYTHONBREAKPOINT=0",),
                    needs="job restart",
                )
            ],
        }
    if functions.intersection(PASSWORD):
        return {
            "summary": f"{rank.name} asks for a password at {rank.where} and waits for it on its terminal",
            "fixes": [
                Fix(
                    title=f"log in before the job starts, or give the secret that {rank.where} asks for by the variable or the "
                    "file that its library reads; a launcher's ranks have no terminal",
                    needs="job restart",
                )
            ],
        }
    if process.descriptor == 0 and process.system_call == "read" and process.file:
        return {
            "summary": f"{rank.name} asks for input at {rank.where} and waits for an answer on its standard input "
            f"({process.file})",
            "fixes": [
                Fix(
                    title=f"take the answer from a variable or an option instead of asking at {rank.where}; a launcher's ranks "
                    "have no terminal",
                    commands=('answer = os.environ.get("ANSWER", "y")   # in place of input(...)',),
                    needs="code change, job restart",
                )
            ],
        }
    return None
