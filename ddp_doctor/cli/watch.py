"""`watch`: run a command, and say why its ranks do not get through initialisation if they do not in time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ddp_doctor.cli.output import Output
from ddp_doctor.examine import Selection
from ddp_doctor.model import Report
from ddp_doctor.watching.command import run_watched
from ddp_doctor.watching.seats import SEATS, seats_are_needed


def watch_command(
    out: Output,
    command: Sequence[str],
    selection: Selection | None,
    *,
    after: float,
    kill: bool,
    timeout: float,
    probe_timeout: float,
) -> int:
    """The exit code of the contract: the command's own, 124 where it hung and was killed, 126, 127."""
    if os.environ.get("DDP_DOCTOR") == "off":
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(command[0], list(command))
        except OSError as error:
            print(f"ddp-doctor: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
            return 127 if isinstance(error, FileNotFoundError) else 126

    def observe(pids: Callable[[], list[int]], py_spy: tuple[str, ...]) -> bool:
        # loaded here, beside the command that already runs
        from ddp_doctor.watching.observer import Observer
        from ddp_doctor.watching.reports import collect_report
        from ddp_doctor.watching.standing import Standing

        killing = False

        def report(found: Report, standing: Standing) -> bool:
            nonlocal killing
            hung = standing is Standing.HUNG
            out.say(
                f"initialisation has not finished {after:g} s after it began"
                + ("" if hung else "; the job is slow, not hung")
            )
            out.show(found)
            collect_report(found)
            killing = kill and hung
            return killing

        Observer(
            pids,
            after,
            report=report,
            note=lambda slow: out.say(f"not hung: {slow}, the others wait for it"),
            selection=selection,
            timeout=timeout,
            probe_timeout=probe_timeout,
            py_spy=py_spy,
        ).run()
        return killing

    return run_watched(command, observe, **_seats())


def _seats() -> dict[str, Any]:
    """What it takes to read stacks here: nothing, or ancestors of the ranks that can become py-spy."""
    try:
        scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text()
    except OSError:
        return {}
    if not seats_are_needed(scope, Path("/proc/self/status").read_text()):
        return {}
    from ddp_doctor.probes.job import installed_py_spy

    return {"py_spy": installed_py_spy(), "seats": SEATS}
