"""`watch`: run a command, and say why its ranks do not get through initialisation if they do not in time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence

from ddp_doctor.cli.output import Output
from ddp_doctor.examine import Selection
from ddp_doctor.model import Report
from ddp_doctor.watching.command import run_watched


def watch_command(
    out: Output,
    command: Sequence[str],
    selection: Selection,
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

    def observe(pids: Callable[[], list[int]]) -> bool:
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
        ).run()
        return killing

    return run_watched(command, observe)
