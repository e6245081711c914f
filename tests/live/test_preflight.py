"""preflight() in real ranks: all end in time, hear the same, and are left as they were."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jobs import HANGS, free_port
from meetings import ROOT, Rank, change, meet, world

import ddp_doctor

pytestmark = pytest.mark.live
PATH = os.pathsep.join(map(str, (ROOT, ROOT / "checks")))


def agreed(told: list[dict[str, Any] | None], timeout: float) -> dict[str, Any]:
    """What all of them were told, in time, and nothing was left behind in any of them."""
    heard = [each for each in told if each is not None]
    assert len({(each["verdict"], each["summary"], bool(each["raised"])) for each in heard}) == 1, heard
    assert [each["left"] for each in heard] == [[]] * len(heard)
    assert max(each["seconds"] for each in heard) <= timeout + 2
    return heard[0]


@pytest.mark.parametrize("launched", [True, False], ids=["torchrun", "by hand"])
def test_a_healthy_job_hears_nothing(launched: bool) -> None:
    told = meet(world(2, launched=launched), 30)
    heard = agreed(told, 30)
    assert heard["status"] == "healthy" and heard["raised"] == "" and heard["stderr"] == ""
    assert [finding for finding in heard["findings"] if finding[1] != "note"] == []


def test_a_rank_that_comes_late_is_waited_for_and_one_that_does_not_is_a_warning() -> None:
    ranks = world(3)
    assert agreed(meet(change(ranks, 2, "late=2"), 30), 30)["status"] == "healthy"
    told = meet(ranks[:2], 4)
    heard = agreed(told, 6)
    assert heard["verdict"] == "DDP101" and heard["raised"] == ""
    assert heard["findings"][0][:4] == ["DDP101", "warning", "certain", [2]]
    # one of them says it, for all
    assert ["DDP101" in each["stderr"] for each in told if each].count(True) == 1


@pytest.mark.parametrize(
    ("number", "variables", "finding", "ranks"),
    [
        (1, {"RANK": "0"}, "DDP116", [0]),
        (2, {"MASTER_PORT": "29999"}, "DDP111", [2]),
        (2, {"WORLD_SIZE": "4"}, "DDP117", [2]),
    ],
    ids=["same rank", "another port", "another world size"],
)
def test_contradictions_end_every_rank(number: int, variables: dict[str, str], finding: str, ranks: list[int]) -> None:
    told = meet(change(world(3), number, **variables), 30)
    heard = agreed(told, 30)
    assert heard["verdict"] == finding and heard["findings"][0][2:4] == ["certain", ranks]
    assert all(each and finding in each["raised"] for each in told)
    assert sum("ddp-doctor explain" in each["raised"] for each in told if each) == 1


def test_ranks_started_by_hand_that_disagree_about_the_port_still_meet() -> None:
    heard = agreed(meet(change(world(2, launched=False), 1, MASTER_PORT="29999"), 30), 30)
    assert heard["verdict"] == "DDP111" and heard["raised"]


def test_a_port_that_somebody_holds_is_named_to_all() -> None:
    ranks = world(2)
    with closing(socket.socket()) as holder:
        holder.bind(("", int(ranks[0].variables["MASTER_PORT"])))
        holder.listen()
        heard = agreed(meet(ranks, 30), 30)
    assert heard["verdict"] == "DDP112" and heard["raised"]


def test_rank_0_may_come_while_the_machine_is_looked_at_as_another_rank_sees_it() -> None:
    ranks = change(world(3), 0, "late=1")
    with closing(socket.socket()) as holder:
        holder.bind(("", int(ranks[0].variables["MASTER_PORT"])))
        holder.listen()
        assert agreed(meet(ranks, 30), 30)["verdict"] == "DDP112"


def test_the_host_of_the_meeting_may_die() -> None:
    ranks = world(4)[:3]
    told = meet([Rank(ranks[0].variables, "die=3"), *(Rank(each.variables, "late=1") for each in ranks[1:])], 8)
    heard = agreed(told, 10)
    assert told[0] is None
    assert heard["verdict"] == "DDP101" and 0 in {rank for each in heard["findings"] for rank in each[3]}


@pytest.mark.slow
def test_the_host_of_the_meeting_may_be_stopped() -> None:
    ranks = world(4)[:3]
    told = meet([Rank(ranks[0].variables, "stop=3"), *(Rank(each.variables, "late=1") for each in ranks[1:])], 15)
    heard = agreed(told, 15)
    assert heard["verdict"] == "DDP608" and heard["findings"][0][3] == [0]


def test_ranks_of_two_launchers_meet_on_a_port_of_their_own() -> None:
    """Two agents, as on two hosts: nobody but the job's id and the address of rank 0 tells them of each other."""
    ranks = [Rank(each.variables | {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}) for each in world(2)]
    told = meet(ranks, 30, agents=True)
    assert agreed(told, 30)["status"] == "healthy"
    told = meet(change(ranks, 1, WORLD_SIZE="3"), 10, agents=True)
    assert agreed(told, 12)["verdict"] == "DDP117"


def test_who_comes_after_rank_0_went_on_is_not_kept() -> None:
    ranks = world(2, launched=False)
    port = ranks[0].variables["MASTER_PORT"]
    store = (
        f"import torch.distributed as d, time; s = d.TCPStore('127.0.0.1', {port}, 2, True, wait_for_workers=False);"
    )
    command = [sys.executable, "-c", store + "print('open', flush=True); time.sleep(60)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as rank_0:
        assert rank_0.stdout is not None and rank_0.stdout.readline() == b"open\n"
        try:
            heard = agreed(meet(ranks[1:], 40), 20)
        finally:
            rank_0.kill()
    assert heard["findings"][0][:2] == ["DDP101", "note"] and heard["raised"] == "" and heard["stderr"] == ""


def run(script: Path, folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": PATH, "MASTER_PORT": str(free_port())}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_ranks_in_threads_are_named_before_anything_hangs_and_train_as_printed(tmp_path: Path) -> None:
    faulty = (HANGS / "threads_with_preflight.py").read_text(encoding="utf-8")
    script = tmp_path / "train.py"
    script.write_text(faulty, encoding="utf-8")
    _, output = run(script, tmp_path)
    assert output.count("PreflightFailed: ") == 2 and "trained" not in output
    assert "error[DDP103]: 2 threads of one process" in output
    lines = [line[9:] for line in output.splitlines() if line.startswith(" " * 9)]
    first = lines.index('if __name__ == "__main__":')
    # as the fix says: delete the threads, and call the same function so
    rewritten = faulty.partition("# the threads start here")[0] + "\n".join(lines[first : first + 2]) + "\n"
    # spawn hands each process its rank
    script.write_text(rewritten, encoding="utf-8")
    _, output = run(script, tmp_path)
    assert {"rank 0 trained 2", "rank 1 trained 2"} <= set(output.splitlines()), output


def test_off_and_an_existing_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDP_DOCTOR", "off")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "DDP_DOCTOR=off" in ddp_doctor.preflight().verdict.summary
    monkeypatch.delenv("DDP_DOCTOR")
    program = (
        "import torch.distributed as dist, ddp_doctor\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "print(ddp_doctor.preflight(rank=0, world_size=2).verdict.summary)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("this process has a process group already")


def test_arguments_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="on_problem"):
        ddp_doctor.preflight(on_problem="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        ddp_doctor.preflight(timeout=0)


def test_reports_are_collected(tmp_path: Path) -> None:
    told = meet(change(world(2, DDP_DOCTOR_REPORT_DIR=str(tmp_path)), 1, RANK="0"), 20)
    assert agreed(told, 20)["verdict"] == "DDP116"
    (report,) = tmp_path.glob("preflight-*.json")
    assert '"DDP116"' in report.read_text(encoding="utf-8")


def test_a_process_without_a_rank_meets_nobody() -> None:
    (told,) = meet([Rank({})], 20)
    assert told is not None and told["seconds"] < 10 and told["status"] == "healthy"
