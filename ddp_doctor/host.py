"""The door to the system. Everything that can block goes through a worker that is killed at its deadline."""

from __future__ import annotations

import fnmatch
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from ddp_doctor.child import Child, Silence, how_it_ended
from ddp_doctor.deadline import Deadline

KEPT_VARIABLES = (
    # what finds programs, libraries and modules
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_*", "TZ", "TERM",
    "LD_*", "PYTHON*", "VIRTUAL_ENV", "CONDA_*", "XDG_*", "RES_OPTIONS", "LOCALDOMAIN", "HOSTALIASES",
    # what changes how torch, CUDA, ROCm, NCCL and Gloo behave
    "CUDA_*", "NVIDIA_*", "HIP_*", "ROCR_*", "HSA_*", "GPU_DEVICE_ORDINAL", "TORCH_*", "PYTORCH_*",
    "NCCL_*", "RCCL_*", "GLOO_*", "TP_*", "UCX_*", "FI_*", "OMP_*", "MKL_*", "KMP_*", "OPENBLAS_*",
    "USE_LIBUV", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
_KEPT = frozenset(KEPT_VARIABLES)
_KEPT_PREFIXES = tuple(name[:-1] for name in KEPT_VARIABLES if name.endswith("*"))
DROPPED_VARIABLES = (
    # a probe that inherits one of these writes into the job's own files (seen: NCCL truncates NCCL_DEBUG_FILE)
    "NCCL_DEBUG*", "NCCL_*DUMP*", "NCCL_INSPECTOR_*", "NCCL_PROFILER_*", "RCCL_*DUMP*", "TORCH_*DUMP*", "TORCH_FR_*",
    "TORCH_NCCL_DEBUG_INFO*", "TORCH_LOGS*", "TORCH_TRACE", "TORCH_COMPILE_DEBUG*", "GLOO_LOG*", "*_LOG_FILE",
    "CUDA_COREDUMP*", "CUDA_ENABLE_COREDUMP*", "CUDA_LOG_FILE",
    # a raw NCCL rendezvous shared with the job, and an interactive interpreter
    "NCCL_COMM_ID", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE",
)  # fmt: skip


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker: what changes the behaviour under examination, and no output path of the job."""
    kept = {
        name: value
        for name, value in environ.items()
        if (name in _KEPT or name.startswith(_KEPT_PREFIXES))
        and not any(fnmatch.fnmatchcase(name, pattern) for pattern in DROPPED_VARIABLES)
    }
    # empty beats a value from nccl.conf, which NCCL sets only where the environment has none
    return kept | {"NCCL_DEBUG_FILE": "", "NCCL_RAS_ENABLE": "0"}


LEAST_SECONDS = 2.0
"""A worker that had less, because the whole call was running out, is no evidence that something hangs."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker said before it ended or was killed."""

    messages: tuple[dict[str, Any], ...] = ()
    status: Literal["ok", "timeout", "crashed", "absent"] = "ok"
    reason: str = ""
    printed: str = ""
    code: int | None = None
    hurried: bool = False
    """Whether it had so little time that its silence says nothing about what was asked."""

    @property
    def first(self) -> dict[str, Any]:
        """The first message, or an empty one."""
        return self.messages[0] if self.messages else {}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked of the probes of `run`: ranks to start (None: one per visible GPU), and use of the GPUs."""

    nproc: int | None = None
    active: Literal["auto", "always", "never"] = "auto"


class Host:
    """This machine, within one deadline. `environ` is what is examined, not necessarily the doctor's own."""

    def __init__(
        self,
        seconds: float = 60.0,
        *,
        probe_seconds: float = 5.0,
        environ: Mapping[str, str] | None = None,
        python: str | None = None,
        cwd: str | None = None,
        root: str = "/",
        options: Options | None = None,
    ) -> None:
        """`root` is where /proc, /sys, /dev and /etc are looked up: another folder shows a described machine's."""
        self.root = root
        self.deadline = Deadline(seconds)
        self.probe_seconds = probe_seconds
        self._environ = dict(os.environ if environ is None else environ)
        self.environ: Mapping[str, str] = {_readable(name): _readable(value) for name, value in self._environ.items()}
        self.python = python or sys.executable or "python3"
        self.cwd = cwd
        self.options = options or Options()
        self.name = socket.gethostname()
        # a signal handler may close the host while the same thread holds the lock
        self._lock = threading.RLock()
        self._children: set[Child] = set()
        self._closed = False
        self.interrupted = ""
        """`interrupted` or `terminated` once a signal has ended the examination early."""
        self.undead: dict[int, str] = {}
        """PIDs of killed workers that did not die, with the worker's name."""

    def ask(
        self,
        worker: str,
        request: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        python: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Answer:
        """Run a worker to its end or its deadline; never raises for what the worker does.

        `python` is the argv prefix of the interpreter, by default the doctor's own without site-packages.
        """
        limit = self.probe_seconds if seconds is None else seconds
        deadline = self.deadline.within(limit)
        started = time.monotonic()
        heard: list[dict[str, Any]] = []
        try:
            with self.start(worker, request or {}, python=python, environ=environ) as child:
                try:
                    heard.extend(child.messages(deadline))
                except Silence:
                    return self._timed_out(child, heard, started, "no answer")
                if self._closed:
                    return Answer(
                        messages=tuple(heard), status="timeout", reason=self.interrupted or "cut off", hurried=True
                    )
                # the channel is closed, so it is exiting, or it became another program that still runs
                code = child.exit_code(max(deadline.remaining(), 0.2))
                if code is None:
                    return self._timed_out(child, heard, started, "did not end")
                printed = child.printed()
                if code == 0 or worker == "run_command":
                    return Answer(messages=tuple(heard), printed=printed, code=code)
                said = [line.strip() for line in printed.splitlines() if line.strip()]
                return Answer(
                    messages=tuple(heard),
                    status="crashed",
                    reason=": ".join((f"the worker {how_it_ended(code)}", *said[-1:])),
                    printed=printed,
                    code=code,
                )
        except OSError as error:
            return Answer(messages=tuple(heard), status="absent", reason=f"cannot start a worker: {error}")

    def _timed_out(self, child: Child, heard: list[dict[str, Any]], started: float, what: str) -> Answer:
        waited = time.monotonic() - started
        hurried = waited < LEAST_SECONDS and not self.deadline
        return Answer(
            messages=tuple(heard),
            status="timeout",
            reason=f"{what} in {waited:.1f} s" + (", all that --timeout left" if hurried else ""),
            printed=child.printed(),
            hurried=hurried,
        )

    @contextmanager
    def start(
        self,
        worker: str,
        request: Mapping[str, Any],
        *,
        python: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        forks: Sequence[Mapping[str, Any]] = (),
    ) -> Iterator[Child]:
        """A worker to talk with; it is killed when the block ends. Raises OSError if it cannot be started.

        Given `forks`, a request for each, it is that many processes: talk with `Child.forks`.
        """
        if self._closed:
            raise OSError("the examination is over")
        child = Child(
            python or (sys.executable or "python3", "-I", "-S"),
            worker,
            request,
            worker_environment(self._environ) if environ is None else environ,
            self.cwd,
            forks,
        )
        with self._lock:
            self._children.add(child)
        try:
            yield child
        finally:
            for pid in child.end():
                self.undead[pid] = worker
            with self._lock:
                self._children.discard(child)

    def interrupt(self, how: str) -> None:
        """End the examination early: probes stop, what they brought is kept. Safe in a signal handler."""
        self.interrupted = how
        self.close()

    def close(self) -> None:
        """Kill every worker that still runs; later ones are refused."""
        self._closed = True
        with self._lock:
            children = list(self._children)
        for child in children:
            child.kill()

    def run(self, argv: Sequence[str], *, seconds: float | None = None) -> Answer:
        """Run a program; its output is `printed`, its exit code `code`, status `absent` where it does not exist."""
        answer = self.ask("run_command", {"argv": list(argv)}, seconds=seconds)
        if "error" in answer.first:
            return Answer(status="absent", reason=f"{argv[0]}: {answer.first['error']}")
        return answer

    def read(self, *paths: str, limit: int = 1 << 18, seconds: float | None = None) -> dict[str, str | None]:
        """The text of files on any file system; None where there is none to read in time."""
        answer = self.ask("read_files", {"paths": paths, "limit": limit}, seconds=seconds)
        texts: dict[str, str | None] = dict.fromkeys(paths)
        texts.update((message["path"], message.get("text")) for message in answer.messages)
        return texts

    def kernel(self, path: str) -> str | None:
        """The text of a file in /proc/self, /proc/sys, /proc/net or /sys that the kernel answers at once; None if absent."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None


def _readable(text: str) -> str:
    """Text that every format can carry: bytes that are no UTF-8 as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
