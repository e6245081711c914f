"""The checks of programs on a running job's ranks, as values."""

from __future__ import annotations

import msgspec
import pytest
from checking import run_check
from ddp_doctor_checks.program.collective_mismatch import CollectiveMismatch
from ddp_doctor_checks.program.ddp_model_mismatch import DdpModelMismatch
from ddp_doctor_checks.program.peer_died import PeerDied
from ddp_doctor_checks.program.rank_conditional import RankConditional
from ddp_doctor_checks.program.rank_stopped import RankStopped
from ddp_doctor_checks.program.slow_rank import SlowRank
from ddp_doctor_checks.program.subgroup_misuse import SubgroupMisuse
from ddp_doctor_checks.program.uneven_inputs import UnevenInputs
from job_facts import UNREADABLE, busy, collective, connection, job, parted, process, waiting

from ddp_doctor.facts.job import CallSite, Child, Task
from ddp_doctor.model import Check, Confidence, Severity, Stage

DIFFERENT = job(collective(0, "barrier", 1), collective(1, "all_reduce", 0))
WAYS = [
    (RankConditional, "rank-conditional"),
    (CollectiveMismatch, "collective"),
    (SubgroupMisuse, "group"),
    (DdpModelMismatch, "model"),
    (UnevenInputs, "uneven"),
]


@pytest.mark.parametrize(("check", "fault"), WAYS)
def test_hit_ranks_in_different_calls(check: type[Check], fault: str) -> None:
    judged = run_check(check, *DIFFERENT, parted(fault, 0))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert (finding.ranks, finding.confidence) == ((0,), Confidence.LIKELY)
    assert "rank 0" in finding.summary


@pytest.mark.parametrize(("check", "fault"), WAYS)
def test_clear_where_the_ranks_part_in_another_way(check: type[Check], fault: str) -> None:
    other = next(each for _, each in WAYS if each != fault)
    assert run_check(check, *DIFFERENT, parted(other, 0)).outcome.status == "clear"


@pytest.mark.parametrize("check", [check for check, _ in WAYS] + [SlowRank, RankStopped, PeerDied])
def test_unknown_without_rights(check: type[Check]) -> None:
    assert run_check(check, UNREADABLE).outcome.status == "unknown"


def test_the_condition_is_quoted() -> None:
    site = CallSite(
        source="train.py:12", file="train.py", line=12, conditions=("if rank == 0:",), code="dist.barrier()"
    )
    (finding,) = run_check(RankConditional, *DIFFERENT, parted("rank-conditional", 0, sites=(site,))).findings
    assert finding.evidence[0].value == "if rank == 0:  ->  dist.barrier()"
    assert finding.fixes[0].commands == ("if rank == 0:", "    ...  # no collective in here", "dist.barrier()")


def test_slow_rank_is_an_error_once_the_others_have_waited_for_long_in_init() -> None:
    soon = job(waiting(0, 1, since_s=5.0), busy(1), culprits=(1,))
    late = job(waiting(0, 1, since_s=312.0), busy(1), culprits=(1,))
    (warning,), (error,) = run_check(SlowRank, *soon).findings, run_check(SlowRank, *late).findings
    assert (warning.severity, error.severity) == (Severity.WARNING, Severity.ERROR)
    assert error.summary == "rank 1 has not reached init_process_group; it is still in train.py:88 prepare_dataset"
    assert error.ranks == (1,)


def test_slow_rank_that_imports_is_a_note() -> None:
    (finding,) = run_check(
        SlowRank, *job(waiting(0, 1), busy(1, doing="importing", call="import", since_s=3.0), culprits=(1,))
    ).findings
    assert finding.severity is Severity.NOTE


def test_slow_rank_past_init_is_a_warning_while_it_works() -> None:
    ranks = job(collective(0, "all_reduce", 1), busy(1, stage=Stage.INITIALIZED, at_most=Stage.TRAINING), culprits=(1,))
    (finding,) = run_check(SlowRank, *ranks).findings
    assert finding.severity is Severity.WARNING


def test_clear_where_nobody_is_waited_for() -> None:
    assert run_check(SlowRank, *job(busy(0), busy(1))).outcome.status == "clear"


def test_hit_stopped() -> None:
    (finding,) = run_check(RankStopped, *job(waiting(0, 1), busy(1, state="stopped")), process(1, state="T")).findings
    assert (finding.confidence, finding.ranks) == (Confidence.CERTAIN, (1,))
    assert finding.fixes[0].commands == ("kill -CONT 4101",)
    assert "by a signal" in finding.summary


def test_a_debugger_is_named() -> None:
    (finding,) = run_check(RankStopped, *job(waiting(0, 1), busy(1, state="stopped")), process(1, state="t")).findings
    assert "by a debugger" in finding.summary


def test_clear_nobody_stopped() -> None:
    assert run_check(RankStopped, *job(waiting(0, 1), busy(1)), process(0), process(1)).outcome.status == "clear"


def test_hit_a_rank_that_has_ended() -> None:
    ranks = job(waiting(0, 1), busy(1, state="exited"))
    (finding,) = run_check(PeerDied, *ranks, process(0), process(1, state="Z", exit_code=-9)).findings
    assert "killed by signal 9" in finding.summary and finding.ranks == (1,)


def test_hit_the_store_closed_its_connection() -> None:
    ranks = job(waiting(1, 0, doing="gloo-mesh"), missing=(0,))
    (finding,) = run_check(PeerDied, *ranks, process(1), connection(1, "CLOSE_WAIT")).findings
    assert finding.ranks == (0,)


def test_clear_all_alive() -> None:
    ranks = job(waiting(0, 1), waiting(1, 0))
    judged = run_check(PeerDied, *ranks, process(0), process(1), connection(1, "ESTABLISHED"))
    assert judged.outcome.status == "clear"


def test_ranks_whose_data_workers_do_nothing_are_said_to_wait_for_data() -> None:
    ranks = [collective(number, "DataLoader", doing="data", operation="") for number in (0, 1)]
    worker = collective(2, "", role="data-worker", rank=None, doing="user-code", pid=4500)
    (finding,) = run_check(SlowRank, *job(*ranks, worker)).findings
    assert finding.confidence is Confidence.POSSIBLE
    assert (finding.summary, finding.fixes[0].commands) == (
        "all 2 ranks wait for the workers of their DataLoaders",
        ("py-spy dump --pid 4500",),
    )
    assert run_check(SlowRank, *job(*ranks, worker, hung=False)).outcome.status == "clear"


def test_ranks_that_all_receive_are_told_that_nobody_sends() -> None:
    ranks = job(collective(0, "recv"), collective(1, "recv"))
    (finding,) = run_check(CollectiveMismatch, *ranks, parted("collective", 0, 1)).findings
    assert finding.summary == ("all 2 ranks wait in a receive and none sends: ranks 0 and 1 in recv (train.py:12)")
    assert (finding.confidence, finding.ranks) == (Confidence.LIKELY, (0, 1))


def test_a_late_rank_that_waits_for_its_child_says_how_to_see_which() -> None:
    late = busy(1, state="waiting", cpu=0.0, where="train.py:9 fetch", functions=("Popen._try_wait", "fetch"))
    ranks = job(waiting(0, 1), late, culprits=(1,))
    asleep = process(1, tasks=(Task(id=4101, name="python", state="S", wchan="do_wait"),))
    (finding,) = run_check(SlowRank, *ranks, asleep).findings
    assert "it waits for a process that it started" in finding.because
    assert finding.fixes[0].commands == ("ps --ppid 4101 -o pid,stat,etime,args",)
    (other,) = run_check(SlowRank, *ranks, process(1)).findings
    assert "it waits for something else" in other.because and "--ppid" not in str(other.fixes)


def test_a_late_rank_that_waits_for_a_program_names_it_and_what_it_does() -> None:
    late = busy(1, state="waiting", cpu=0.0, where="train.py:9 fetch", functions=("Popen._try_wait", "fetch"))
    ranks = job(waiting(0, 1), late, culprits=(1,))
    asleep = process(1, tasks=(Task(id=4101, name="python", state="S", wchan="do_wait"),))
    rsync = Child(
        subject=asleep.subject, source="/proc/4300", pid=4300, command="rsync", arguments=("rsync", "-a", "store:/data"),
        state="S", wchan="wait_woken", age_s=65.4,
    )  # fmt: skip
    tracker = msgspec.structs.replace(
        rsync, pid=4299, arguments=("python", "-c", "from multiprocessing.resource_tracker import main;main(7)")
    )
    (finding,) = run_check(SlowRank, *ranks, asleep, tracker, rsync).findings
    assert finding.because.endswith("it waits for its child PID 4300 `rsync -a store:/data`")
    assert finding.evidence[1].value == "PID 4300 `rsync -a store:/data` sleeps in wait_woken, started 65 s ago"
    assert "--pid 4300 --ppid 4300" in finding.fixes[0].commands[0]
    logger = msgspec.structs.replace(rsync, pid=4301, arguments=("tee", "log"))
    (finding,) = run_check(SlowRank, *ranks, asleep, rsync, logger).findings
    assert "PID 4300 `rsync -a store:/data` or PID 4301 `tee log`" in finding.because
    assert finding.fixes[0].commands == ("ps --ppid 4101 -o pid,stat,etime,args",)
    sure = msgspec.structs.replace(rsync, waited_for=True)
    (finding,) = run_check(SlowRank, *ranks, asleep, sure, logger).findings
    assert "tee" not in finding.because
