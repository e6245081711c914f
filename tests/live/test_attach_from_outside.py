"""A job in a container, seen from its host: the same cause as without the container, with both PIDs and its own files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import FAULTS, Fault, a_member, container, ranks, running
from jobs import doctor

from ddp_doctor.collect import collect
from ddp_doctor.facts.job import StoreKeys
from ddp_doctor.host import Host
from ddp_doctor.model import Facts
from ddp_doctor.probes.job import job_probes

pytestmark = [pytest.mark.live, pytest.mark.root]
if sys.platform != "linux" or os.geteuid() != 0:
    pytest.skip("needs root for namespaces", allow_module_level=True)


def report_of(fault: Fault) -> dict[str, object]:
    with running(fault) as started:
        return doctor("attach", str(a_member(fault, started)))[1]


def test_a_container_changes_nothing_in_what_is_found() -> None:
    """Own PID, mount, user, network and IPC namespaces; the store is asked through its network namespace."""
    outside = report_of(Fault("bare", (), None, ranks(3, only=(0, 1)), "", settle=2.5))
    fault = next(each for each in FAULTS if each.name == "container-rank-2-missing")
    with running(fault) as started:
        _, inside = doctor("attach", str(started[0].pid))
        shown = subprocess.run(
            [sys.executable, "-m", "ddp_doctor", "attach", str(started[0].pid), "--no-stacks"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        numbers = {row["pid"]: row for row in inside["ranks"] if row["pid"] is not None}
        for pid in numbers:
            assert Path(f"/proc/{pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()
            inner = Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()[1]
            quoted = [e["source"] for f in inside["findings"] for e in f["evidence"]]
            assert any(f"({inner} inside its container)" in source and str(pid) in source for source in quoted), quoted
            assert str(pid) in shown
        seen = collect(Host(30), job_probes(numbers, every=False, stacks=True, native=False), Facts()).facts
        (keys,) = seen[StoreKeys]
        assert keys.joined == 2
        assert keys.network != Path("/proc/self/ns/net").stat().st_ino
        assert keys.network in {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in numbers}
    assert inside["verdict"]["finding"] == outside["verdict"]["finding"] == "DDP101"
    assert [(row["rank"], row["stage"]) for row in inside["ranks"]] == [
        (row["rank"], row["stage"]) for row in outside["ranks"]
    ]


@pytest.mark.slow
def test_lines_of_a_script_that_only_the_container_holds_are_read() -> None:
    """A barrier under `if rank == 0`: the condition stands in a file on a file system mounted in the container alone."""
    fault = Fault(
        "hidden-script", ("DDP601",), (0,),
        (container(2, 2, SCRIPT="collectives.py", HOW="rank0-barrier", HIDDEN="1"),), "", marks=2, settle=2.5,
    )  # fmt: skip
    with running(fault) as started:
        _, report = doctor("attach", str(started[0].pid))
        finding = next(f for f in report["findings"] if f["id"] == report["verdict"]["finding"])
        sources = [e["source"] for e in finding["evidence"]]
    assert (finding["id"], finding["ranks"]) == ("DDP601", [0])
    assert any(source.startswith("/mnt/ddp-doctor-hidden/collectives.py") for source in sources), sources
