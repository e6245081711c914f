"""Facts of a running job, as values: ranks, the processes behind them, and the job they make."""

from __future__ import annotations

from typing import Any

from ddp_doctor.facts.job import Connection, Divergence, Job, JobRank, Listener, Process, Task
from ddp_doctor.model import Absent, Fact, Stage, Subject, Wait

HOST = "node-a"
PORT = 29500
UNREADABLE = Absent(
    kind="JobRank", status="denied", reason="cannot read PID 4101: it belongs to another user", how_to_get="run sudo"
)


def pid_of(rank: int) -> int:
    """The PID that these tests give a rank."""
    return 4100 + rank


def subject(rank: int | None, pid: int | None = None) -> Subject:
    """A rank's process."""
    return Subject(host=HOST, pid=pid if pid is not None else pid_of(rank or 0), start_time=77, rank=rank)


def waiting(number: int, *others: int, **changes: Any) -> JobRank:
    """A rank that waits in init for others."""
    values: dict[str, Any] = {
        "subject": subject(number, changes.pop("pid", None)),
        "source": f"pid {pid_of(number)} thread {pid_of(number)}",
        "job": 0,
        "rank": number,
        "world_size": 2,
        "stage": Stage.STORE_WAIT,
        "at_most": Stage.STORE_WAIT,
        "state": "waiting",
        "doing": "store-key",
        "call": "init_process_group",
        "operation": "init_process_group",
        "where": "train.py:12 main",
        "file": "train.py",
        "line": 12,
        "places": ("train.py:12",),
        "functions": ("init_process_group", "main"),
        "thread": pid_of(number),
        "master_address": "127.0.0.1",
        "master_port": PORT,
        "has_stack": True,
        "waits_for": tuple(Wait(rank=other) for other in others),
    }
    return JobRank(**(values | changes))


def collective(number: int, call: str, *others: int, **changes: Any) -> JobRank:
    """A rank that waits in a collective."""
    values = {"doing": "collective", "call": call, "operation": call, "stage": Stage.FIRST_COLLECTIVE}
    return waiting(number, *others, **{**values, "at_most": Stage.TRAINING, **changes})


def busy(number: int, **changes: Any) -> JobRank:
    """A rank in its own code, before init unless told otherwise."""
    values = {
        "doing": "user-code",
        "call": "",
        "operation": "",
        "stage": Stage.PYTHON,
        "at_most": Stage.PYTHON,
        "state": "running",
        "where": "train.py:88 prepare_dataset",
        "functions": ("prepare_dataset", "main"),
        "cpu": 0.98,
    }
    return waiting(number, **{**values, **changes})


def process(number: int | None, **changes: Any) -> Process:
    """The process of a rank."""
    values: dict[str, Any] = {
        "subject": subject(None, changes.pop("pid", None) or pid_of(number or 0)),
        "source": f"/proc/{pid_of(number or 0)}",
        "parent": 1,
        "command": "python",
        "arguments": ("python", "train.py"),
        "state": "S",
        "network": 1,
        "tasks": (Task(id=pid_of(number or 0), name="python", state="S", wchan="poll_schedule_timeout"),),
        "set_at_start": {},
        "now": {},
        "torch": True,
    }
    return Process(**(values | changes))


def job(*ranks: JobRank, missing: tuple[int, ...] = (), culprits: tuple[int, ...] = (), **changes: Any) -> list[Fact]:
    """These ranks and the job they make."""
    size = max([rank.world_size or 0 for rank in ranks], default=2)
    made = Job(
        subject=Subject(host=HOST),
        source="/proc",
        **{
            "number": 0,
            "world_size": size,
            "ranks": tuple(rank.rank for rank in ranks if rank.rank is not None and rank.role == "rank"),
            "missing": missing,
            "complete_here": True,
            "culprits": tuple((HOST, pid_of(rank)) for rank in culprits),
            **changes,
        },
    )
    return [made, *ranks]


def listener(**changes: Any) -> Listener:
    """A program that is no store on the job's port."""
    values = {"port": PORT, "address": "127.0.0.1", "owner": 900, "command": "nginx", "arguments": ("nginx",)}
    return Listener(source="/proc/net/tcp", **{**values, "threads": ("nginx",), "network": 1, **changes})


def connection(rank: int, state: str, **changes: Any) -> Connection:
    """A socket of a rank to the store."""
    values = {"local": "10.0.0.2", "local_port": 40000, "peer": "10.0.0.1", "peer_port": PORT, "network": 1}
    return Connection(subject=subject(None, pid_of(rank)), source="/proc/net/tcp", state=state, **{**values, **changes})


def parted(fault: str, *odd: int, **changes: Any) -> Divergence:
    """Ranks in different calls."""
    return Divergence(subject=Subject(host=HOST), source="stacks", job=0, fault=fault, odd=odd, **changes)  # type: ignore[arg-type]
