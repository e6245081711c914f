"""DDP405 on values."""

from __future__ import annotations

from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.gpu.shm_small import ShmSmall

from ddp_doctor.facts.host import ShmSpace
from ddp_doctor.facts.launch import Launcher
from ddp_doctor.model import Absent, Confidence, Severity

MIB = 1 << 20


def shm(**changes: Any) -> ShmSpace:
    return ShmSpace(**({"source": "/dev/shm", "size": 64 * MIB, "free": 64 * MIB, "leftovers": ()} | changes))


@pytest.mark.parametrize(
    "space",
    [
        shm(size=MIB, free=MIB),
        shm(free=15 * MIB),
        shm(size=8 << 30, free=8 << 30, writable=False),
        shm(size=8 << 30, free=8 << 30, free_inodes=0),
        shm(error="/dev/shm: No such file or directory"),
    ],
)
def test_hit_on_any_machine(space: ShmSpace) -> None:
    judged = run_check(ShmSmall, space)
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert finding.severity is Severity.WARNING and finding.confidence is Confidence.CERTAIN


def test_hit_dockers_default_with_eight_gpus() -> None:
    (finding,) = run_check(ShmSmall, shm(gpus=8)).findings
    assert finding.severity is Severity.WARNING and finding.confidence is Confidence.LIKELY
    assert finding.summary == "/dev/shm has 64.0 MiB left; 8 ranks need 147.1 MiB where NCCL goes through it"


def test_hit_counts_the_ranks_that_the_launcher_starts() -> None:
    four = Launcher(name="torchrun", variables=("RANK",), alive=True, local_world_size=4)
    assert run_check(ShmSmall, shm(gpus=2, free=60 * MIB), four).findings[0].severity is Severity.WARNING


def test_hit_names_what_ended_jobs_left() -> None:
    (finding,) = run_check(ShmSmall, shm(free=0, leftovers=("nccl-aB3dE9",), leftover_bytes=9637892)).findings
    assert finding.fixes[0].commands == ("rm -f /dev/shm/nccl-aB3dE9",)
    assert finding.evidence[1].value == "1 files of ended jobs hold 9.2 MiB: nccl-aB3dE9"


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_near_miss_dockers_default_is_a_note_where_it_is_enough(gpus: int) -> None:
    (finding,) = run_check(ShmSmall, shm(gpus=gpus)).findings
    assert finding.severity is Severity.NOTE


def test_near_miss_room_enough() -> None:
    assert run_check(ShmSmall, shm(size=8 << 30, free=1 << 30, gpus=8)).outcome.status == "clear"


def test_unknown_where_the_file_system_hangs() -> None:
    judged = run_check(ShmSmall, Absent(kind="ShmSpace", status="timeout", reason="/dev/shm: no answer in 5.0 s"))
    assert (judged.outcome.status, judged.outcome.reason) == ("unknown", "/dev/shm: no answer in 5.0 s")
