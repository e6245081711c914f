"""The command line: arguments in, exit code out."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

COMMANDS = ("run", "attach", "watch", "triage", "bundle", "lint", "recipe", "explain", "checks")
OF_NO_COMMAND = ("-h", "--help", "--version", "--install-completion", "--show-completion")

MOST_SECONDS = 86400.0
"""The longest time that an option takes."""
OF_RANKS = frozenset(("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"))
"""Variables of which a rank of the usual launchers has one; merely to spare others an import."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code (see `ddp-doctor --help`); never leaves a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _keep_standard_descriptors()
    _die_first_when_memory_is_short()
    signal.signal(signal.SIGTERM, _terminated)
    _end_at_once_when_interrupted()
    try:
        code = _run(with_default_command(given))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is to leave
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 2
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        code = _own_failure(error, given)
    _leave(143 if _was_terminated and code == 130 else code)


def _end_at_once_when_interrupted() -> None:
    """Until a command begins there is nothing to print or clean up, and an import that is interrupted may swallow it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))


def begin() -> None:
    """From here on an interrupt is a KeyboardInterrupt: a command begins."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_standard_descriptors() -> None:
    """Open those of 0, 1 and 2 that the caller closed, so that no channel of a worker gets such a number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _die_first_when_memory_is_short() -> None:
    """In a job's memory cgroup the doctor is the one to go, after its children and before the job."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123 - pathlib costs a start more than this file
            file.write(str(max(900, int(file.read()))))
    except (OSError, ValueError):
        pass


def with_default_command(arguments: list[str]) -> list[str]:
    """`ddp-doctor` and `ddp-doctor --nproc 2` mean `run`."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in OF_NO_COMMAND):
        return ["run", *arguments]
    return arguments


def _run(arguments: list[str]) -> int:
    if arguments[0] in ("attach", "observe") and not _pauses(arguments):
        from ddp_doctor.courtesy import give_way

        # before anything is imported: that is a third of what looking at a job takes
        give_way()
    if arguments[0] == "run" and OF_RANKS.intersection(os.environ):
        from ddp_doctor.cli.quick import run_as_rank

        begin()
        code = run_as_rank(arguments, os.environ)
        if code is not None:
            return code
    from ddp_doctor.cli.commands import application

    begin()
    return application(arguments)


def _pauses(arguments: list[str]) -> bool:
    """Whether processes are going to be paused: who does that has to be quick."""
    return "--native" in arguments or "DDP_DOCTOR_NATIVE" in os.environ


_was_terminated = False


def _terminated(number: int, frame: FrameType | None) -> None:
    global _was_terminated
    _was_terminated = True
    raise KeyboardInterrupt


def _own_failure(error: Exception, arguments: list[str]) -> int:
    import platform
    import traceback

    import ddp_doctor

    place = traceback.extract_tb(error.__traceback__)[-6:]
    lines = [
        f"ddp-doctor itself failed: {type(error).__name__}: {error}",
        "this says nothing about your job. to report it, paste from here:",
        f"  ddp-doctor {ddp_doctor.__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"  arguments: {' '.join(arguments)}",
        *(f"  {frame.filename}:{frame.lineno} {frame.name}: {frame.line}" for frame in place),
    ]
    if sys.stderr is not None:
        print("\n".join(lines), file=sys.stderr)
    return 3


def _leave(code: int) -> NoReturn:
    """Exit without waiting for probe threads, and without a complaint about a reader that went away."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            pass
        except (OSError, ValueError) as error:
            code = 3
            if stream is sys.stdout and sys.stderr is not None:
                print(f"ddp-doctor: cannot write to stdout: {getattr(error, 'strerror', error)}", file=sys.stderr)
    os._exit(code)
