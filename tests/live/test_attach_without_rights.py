"""Without the right to read a job: what is left of the evidence, the exact reason, the exact command, no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from faults import FAULTS, running

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.live, pytest.mark.root]
if sys.platform != "linux" or os.geteuid() != 0:
    pytest.skip("needs root, to give rights up", allow_module_level=True)

# the interpreter and this tree may lie in a folder that is closed to others
READS_FILES = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *READS_FILES)
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
MISSING = next(fault for fault in FAULTS if fault.name == "rank-1-missing")


def attach(pid: int, *prefix: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "ddp_doctor", "attach", str(pid), *options],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "checks")])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr + done.stdout
    assert "itself failed" not in done.stderr
    return done


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_another_user_is_told_whose_process_it_is_and_the_command() -> None:
    with running(MISSING) as (process,):
        done = attach(process.pid, *NOBODY)
    assert done.returncode == 4, done.stdout + done.stderr
    shown = unwrapped(done.stdout)
    assert f'cannot read PID {process.pid}: it belongs to another user (uid 0): run "sudo ' in shown
    assert re.search(rf"ddp.doctor attach {process.pid}\"", shown)
    # names of threads are everybody's to see: the stage is known without a stack
    assert "store-connect" in shown


def test_without_ptrace_the_rest_of_the_evidence_still_makes_a_verdict() -> None:
    with running(MISSING) as (process,):
        done = attach(process.pid, *WITHOUT_PTRACE)
        # the command that is printed works as printed, without its sudo
        shown = unwrapped(done.stdout)
        printed = re.search(r'or run "sudo (.*?)"', shown)
        assert printed, done.stdout
        again = subprocess.run(["sh", "-c", printed[1]], capture_output=True, text=True, check=False)
    assert (done.returncode, again.returncode) == (1, 1)
    assert "error[DDP101]: rank 1" in shown and "likely" in shown
    assert (
        "cannot read PID " in shown
        and ": this process lacks the capability SYS_PTRACE: in Docker add --cap-add" in shown
    )
    assert "error[DDP101]: rank 1" in again.stdout and "cannot read" not in again.stdout


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("1", 'kernel.yama.ptrace_scope is 1: run "sudo '),
        ("3", "kernel.yama.ptrace_scope is 3, which nobody may pass until the next boot: without stacks: "),
    ],
)
def test_the_kernels_setting_is_named_where_it_is_in_the_way(scope: str, expected: str, tmp_path: Path) -> None:
    """The setting is shown at its place; what it would refuse is refused for want of the capability."""
    show = (
        "mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && "
        f'echo {scope} > /proc/sys/kernel/yama/ptrace_scope && exec "$@"'
    )
    with running(MISSING) as (process,):
        done = attach(process.pid, "unshare", "--mount", "sh", "-c", show, "sh", *WITHOUT_PTRACE)
    assert re.search(rf"cannot read PID \d+: {re.escape(expected)}", unwrapped(done.stdout))


def test_no_rights_never_make_a_stranger_of_the_jobs_own_listener() -> None:
    """Where descriptors are hidden the port's owner is unknown, which is no evidence of a foreign one."""
    late = next(fault for fault in FAULTS if fault.name == "rank-1-prepares-data")
    with running(late) as started:
        done = attach(started[0].pid, *WITHOUT_PTRACE)
    assert done.returncode == 4, done.stdout
    assert "error[" not in done.stdout
