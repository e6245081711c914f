"""What a rank can say of itself without asking anybody: its numbers, where it will go, what started it, what it loaded."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.interpret.launcher import number
from ddp_doctor.meeting.identity import start_time
from ddp_doctor.model import Subject
from ddp_doctor.probes.variables import is_examined, presentable

OURS = str(Path(__file__).parents[1]) + os.sep
NCCL_WHEELS = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
LONGEST_VALUE = 2000
MOST_VARIABLES = 400


def own_facts(
    environ: Mapping[str, str], rank: int | None, world_size: int | None, init_method: str | None
) -> Attendee:
    """This thread as an attendee. torch is looked at only where it is loaded already."""
    method = init_method or ""
    address, port = _endpoint(method, environ)
    thread = threading.current_thread()
    pid = os.getpid()
    cuda, cuda_build = _cuda()
    own_rank = rank if rank is not None else number(environ.get("RANK"))
    own_size = world_size if world_size is not None else number(environ.get("WORLD_SIZE"))
    named = sorted(filter(is_examined, environ))[:MOST_VARIABLES]
    return Attendee(
        subject=Subject(
            host=socket.gethostname(),
            pid=pid,
            start_time=start_time(pid),
            thread=threading.get_native_id(),
            rank=own_rank,
        ),
        source=f"pid {pid} thread {threading.get_native_id()}",
        rank=own_rank,
        world_size=own_size,
        local_world_size=number(environ.get("LOCAL_WORLD_SIZE")),
        address=address,
        port=port,
        init_method=method,
        variables={name: _readable(presentable(name, environ[name]))[:LONGEST_VALUE] for name in named},
        torch=_torch_version(),
        nccl=_nccl_version(cuda_build),
        cuda_build=cuda_build,
        machine=_machine(),
        main_thread=thread is threading.main_thread(),
        thread_name=thread.name,
        started_by=_started_by(),
        notebook="ipykernel" in sys.modules,
        cuda=cuda,
        where=_caller(),
        script=sys.argv[0] if sys.argv and sys.argv[0] else "",
        cwd=_folder(),
    )


def group_exists() -> bool:
    """Whether this process has a default process group already."""
    distributed = sys.modules.get("torch.distributed")
    try:
        return bool(distributed and distributed.is_available() and distributed.is_initialized())
    except AttributeError:
        return False  # it is just being imported


def spawned() -> bool:
    """Whether multiprocessing made this process."""
    return bool(_started_by())


def _endpoint(method: str, environ: Mapping[str, str]) -> tuple[str, str]:
    if method.startswith("tcp://"):
        address, _, port = method[len("tcp://") :].partition("?")[0].rpartition(":")
        return address.strip("[]"), port
    if method and not method.startswith("env://"):
        return "", ""
    return _readable(environ.get("MASTER_ADDR", "")), _readable(environ.get("MASTER_PORT", ""))


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _machine() -> str:
    """Boot id and network namespace: processes with the same ones share 127.0.0.1."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return socket.gethostname()


def _started_by() -> Literal["spawn", "fork", "forkserver", ""]:
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return ""
    kind = type(process.current_process()).__name__
    # a plain `Process` is the platform's default, fork up to Python 3.13
    forked = kind == "ForkProcess" or (kind == "Process" and sys.version_info < (3, 14))
    return "fork" if forked else "spawn" if kind == "SpawnProcess" else "forkserver"


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    return str(getattr(torch, "__version__", "")) if torch else _installed("torch")


def _nccl_version(cuda_build: str) -> str:
    torch: Any = sys.modules.get("torch")
    if torch is not None and not cuda_build:
        return ""
    if torch is not None:
        try:
            return ".".join(map(str, torch.cuda.nccl.version()))
        except Exception:  # whatever a broken library raises; other ranks' words are compared all the same
            return ""
    return next(filter(None, map(_installed, NCCL_WHEELS)), "")


def _installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _cuda() -> tuple[Literal["", "initialised", "bad-fork"], str]:
    """What torch.cuda has noted about this process; only its own flags are read, CUDA is not asked."""
    torch: Any = sys.modules.get("torch")
    build = str(getattr(getattr(torch, "version", None), "cuda", None) or "")
    cuda: Any = getattr(torch, "cuda", None)
    try:
        if cuda._is_in_bad_fork():
            return "bad-fork", build
        return ("initialised" if cuda.is_initialized() else ""), build
    except AttributeError:
        return "", build


def _caller() -> str:
    """The innermost frame that is not ours: `train.py:12 training_func`."""
    frame = sys._getframe()
    while frame.f_code.co_filename.startswith(OURS) and frame.f_back is not None:
        frame = frame.f_back
    code = frame.f_code
    return f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
