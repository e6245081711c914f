"""The live faults as `run` and `preflight` meet them: the doctor stands in each rank where the training script would.

Which faults they can see, and what is right, was written down before the first of them was scored. `preflight()` and
`run --wait` end before init, so of the faults of `tests/live/faults.py` only those are here that are there already: of the
launch, of what the ranks were told, and of the hosts and the network between them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "live"), str(ROOT / "benchmarks")]

import msgspec  # noqa: E402
from faults import CONTROLS, FAULTS, Fault, Part, running  # noqa: E402
from scoring import Row  # noqa: E402

WAIT = 8.0
"""Seconds that the ranks wait for each other; who is missing is known when they are over."""
SEEN = (
    "rank-1-missing",
    "rank-0-missing",
    "rank-2-of-3-missing",
    "ranks-2-3-of-4-missing",
    "rank-1-twice-of-3",
    "rank-1-twice-of-2",
    "world-size-3-and-2",
    "world-size-2-and-3",
    "world-size-odd-one-of-4",
    "port-differs",
    "port-of-rank-2-differs",
    "mute-server",
    "server-that-never-accepts",
    "http-server",
    "server-that-closes",
    "port-taken-from-rank-0",
    "name-does-not-resolve",
    "agent-store-leak",
    "debug-detail-on-rank-1",
    "init-barrier-on-rank-2",
    "loopback-address-on-2-hosts",
    "master-is-the-other-host",
    "own-name-is-loopback",
    "master-address-swallowed",
    "ipv6-master-without-ipv6",
    "port-held-and-rank-0-tries-again",
)
ON_THE_WAY = ("firewall-on-master-port", "firewall-on-ephemeral-ports", "gloo-on-an-unreachable-network")
"""What only `run` sees, since it tries the ways between the hosts; `preflight()` does not."""
CALM = ("training", "training-3", "one-rank", "training-on-2-hosts", "beside-another-job")
"""The healthy controls that differ before init."""
DIFFERENT: dict[str, tuple[tuple[str, ...], tuple[int, ...] | None, str]] = {
    "port-taken-from-rank-0": (("DDP209", "DDP112"), None, "rank 0 is alive still, and cannot bind"),
    "port-held-and-rank-0-tries-again": (
        ("DDP112", "DDP209"),
        (0,),
        "rank 1 was never started, and nobody asks for it",
    ),
    "firewall-on-master-port": (
        ("DDP302",),
        (0,),
        "before anybody waits, the host that drops packets is what is at fault",
    ),
    "rank-1-twice-of-2": (("DDP116", "DDP101"), None, "no rank 0 is there to meet, which is as true"),
}
"""Fault -> what is right here instead, the ranks, and why."""
NOT_SEEN = {
    "rank-1-died-before-init": "the rank dies before the doctor would be called: the same as rank-1-missing",
    "rank-2-killed-mid-init": "happens in init",
    "forked-same-rank": "the numbers are in the script",
    "second-job-on-the-port": "the other job is in training already: attach looks at it",
    "file-store-differs": "the file's name is in the script",
    "file-store-rank-0-missing": "the file's name is in the script",
    "rank-1-of-an-earlier-run": "the orphan is in init already: attach looks at it",
}
"""Faults of the launch or the network that are left out nevertheless, and why. All others happen in init or past it."""


OF_THE_HOST = ("DDP110", "DDP111", "DDP112", "DDP2", "DDP3")
"""What is wrong with the environment or the host in which the doctor stands: such a finding need not name ranks."""


def without_ranks(row: Row) -> Row:
    """The row, whose ranks are not judged where its finding is about the host."""
    of_the_host = row.said is not None and row.said.startswith(OF_THE_HOST)
    return msgspec.structs.replace(row, ranks=None) if of_the_host and not row.told else row


def faults(mode: str) -> list[Fault]:
    """The faults and controls that a mode can see before init, with what is right before init."""
    names = {*SEEN, *CALM, *(ON_THE_WAY if mode == "run" else ())}
    chosen = []
    for fault in (*FAULTS, *CONTROLS):
        if fault.name in names:
            expected, ranks, _ = DIFFERENT.get(fault.name, (fault.expected, fault.ranks, ""))
            chosen.append(replace(fault, expected=expected, ranks=ranks))
    return chosen


def asked(fault: Fault, mode: str) -> tuple[list[dict[str, Any]], float]:
    """What each rank reported, and the seconds until the last of them had ended."""
    with tempfile.TemporaryDirectory(prefix="ddp-doctor-in-place-") as folder:
        parts = tuple(part if part.bystander else _instead(part, mode, folder) for part in fault.parts)
        job = replace(fault, parts=parts, marks=len(parts), settle=0.0, logged=False)
        with running(job) as started:
            began = time.monotonic()
            # a guest of another rank's examination leaves no report of its own
            while any(
                process.poll() is None for process, part in zip(started, parts, strict=True) if not part.bystander
            ):
                if time.monotonic() - began > 6 * WAIT + 30:
                    break
                time.sleep(0.05)
            seconds = time.monotonic() - began
        return [json.loads(file.read_text()) for file in sorted(Path(folder).iterdir())], seconds


def _instead(part: Part, mode: str, folder: str) -> Part:
    variables = {name: value for name, value in part.variables.items() if name not in ("MODE", "HOW")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "checks")])
    return replace(
        part,
        script="doctor_in_place.py",
        arguments=(mode, str(WAIT), folder),
        variables={**variables, "PYTHONPATH": path},
        waited_for=True,
    )
