"""The checks of launches on a running job's ranks, as values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.launch.duplicate_rank import DuplicateRank
from ddp_doctor_checks.launch.master_inconsistent import MasterInconsistent
from ddp_doctor_checks.launch.missing_ranks import MissingRanks
from ddp_doctor_checks.launch.rank_config_mismatch import RankConfigMismatch
from ddp_doctor_checks.launch.relaunch_unreached import RelaunchUnreached
from ddp_doctor_checks.launch.scheduler_env import SchedulerEnv
from ddp_doctor_checks.launch.spawn_guard import SpawnGuard
from ddp_doctor_checks.launch.thread_launch import ThreadLaunch
from ddp_doctor_checks.launch.world_size_mismatch import WorldSizeMismatch
from job_facts import UNREADABLE, busy, collective, job, listener, pid_of, process, waiting

from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Check, Confidence, Severity, Subject

EVERY = [
    DuplicateRank, MasterInconsistent, MissingRanks, RankConfigMismatch, RelaunchUnreached, SchedulerEnv, SpawnGuard,
    ThreadLaunch, WorldSizeMismatch,
]  # fmt: skip
HEALTHY = [
    *job(collective(0, "all_reduce"), collective(1, "all_reduce")),
    process(0),
    process(1, parent=pid_of(0), set_at_start={"LOCAL_RANK": "1"}),
]


@pytest.mark.parametrize("check", EVERY, ids=lambda check: check.name)
def test_clear_two_ranks_in_one_collective(check: type[Check]) -> None:
    assert run_check(check, *HEALTHY).findings == ()


@pytest.mark.parametrize("check", [MissingRanks, RelaunchUnreached, DuplicateRank], ids=lambda check: check.name)
def test_unknown_without_rights(check: type[Check]) -> None:
    assert run_check(check, UNREADABLE).outcome.status == "unknown"


def test_hit_missing() -> None:
    judged = run_check(MissingRanks, *job(waiting(0, 1, 2, world_size=3), missing=(1, 2)))
    (finding,) = judged.findings
    assert judged.outcome.status == "hit" and finding.ranks == (1, 2)
    assert finding.summary == "ranks 1 and 2 of world size 3 are not running on this node; rank 0 waits for them"


def test_clear_missing_here_but_waited_for_by_nobody() -> None:
    outcome = run_check(MissingRanks, *job(busy(0), missing=(1,))).outcome
    assert outcome.status == "clear"


def test_hit_torchrun_waits_for_nodes() -> None:
    agent = waiting(
        0, role="launcher", rank=None, doing="waiting-for-nodes", call="next_rendezvous", command="torchrun"
    )
    (finding,) = run_check(MissingRanks, *job(agent)).findings
    assert finding.ranks == () and "waits for other nodes" in finding.summary


def test_hit_same_rank_twice() -> None:
    ranks = job(waiting(0, 2, world_size=3), waiting(1, 2, world_size=3), waiting(1, 2, world_size=3, pid=4999))
    (finding,) = run_check(DuplicateRank, *ranks).findings
    assert (finding.ranks, finding.confidence) == ((1,), Confidence.CERTAIN)
    assert "PID 4101 and PID 4999" in finding.summary


def test_hit_world_sizes_differ() -> None:
    ranks = job(*(waiting(rank, 3, world_size=4) for rank in range(3)), waiting(3, 4, world_size=5))
    (finding,) = run_check(WorldSizeMismatch, *ranks).findings
    assert finding.ranks == (3,) and "rank 3 says 5" in finding.summary


def test_hit_ports_differ() -> None:
    ranks = job(waiting(0, 2), waiting(1, 2), waiting(2, 0, master_port=29501))
    (finding,) = run_check(MasterInconsistent, *ranks).findings
    assert finding.ranks == (2,)
    assert finding.fixes[0].commands == ("export MASTER_ADDR=127.0.0.1 MASTER_PORT=29500",)


def test_two_ranks_that_ask_elsewhere_each_for_itself_are_the_odd_ones_beside_two_that_agree() -> None:
    apart = (waiting(2, 0, master_port=29501), waiting(3, 0, master_port=29502))
    (finding,) = run_check(MasterInconsistent, *job(waiting(0, 2), waiting(1, 2), *apart)).findings
    assert finding.ranks == (2, 3)
    (finding,) = run_check(MasterInconsistent, *job(waiting(0, 1), waiting(1, 0, master_port=29501))).findings
    assert finding.ranks == (0, 1)


def test_hit_loopback_on_two_hosts() -> None:
    (finding,) = run_check(
        MasterInconsistent, *job(waiting(0, 1), waiting(1, 0)), process(0), process(1, network=2)
    ).findings
    assert finding.ranks == (0, 1) and "loopback" in finding.summary


def test_hit_a_step_that_one_rank_takes_alone() -> None:
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "RANK": "1"}
    ranks = job(waiting(0, 1), waiting(1, 0), waiting(2, 1))
    others = (process(rank, now={"RANK": str(rank)}) for rank in (0, 2))
    (finding,) = run_check(RankConfigMismatch, *ranks, *others, process(1, now=detail)).findings
    assert finding.ranks == (1,)


def test_clear_info_takes_no_step_of_its_own() -> None:
    info = process(1, now={"TORCH_DISTRIBUTED_DEBUG": "INFO"})
    findings = run_check(
        RankConfigMismatch, *job(waiting(0, 1), waiting(1, 0)), process(0, now={"RANK": "0"}), info
    ).findings
    assert findings == ()


def test_hit_the_rerun_script_stays_behind() -> None:
    ranks = job(waiting(0, 1), busy(1, state="waiting", cpu=0.0, where="serve.py:31 take_job"), culprits=(1,))
    again = process(1, parent=pid_of(0), set_at_start={"LOCAL_RANK": "1"})
    (finding,) = run_check(RelaunchUnreached, *ranks, process(0), again).findings
    assert finding.ranks == (1,) and "serve.py:31 take_job" in finding.summary


def test_clear_a_spawned_child_is_no_rerun() -> None:
    ranks = job(waiting(0, 1), busy(1, state="waiting"), culprits=(1,))
    child = process(1, parent=pid_of(0), arguments=("python", "-c", "spawn_main"), set_at_start={"LOCAL_RANK": "1"})
    assert run_check(RelaunchUnreached, *ranks, process(0), child).outcome.status == "clear"


def test_hit_the_agent_store_leaked() -> None:
    leak = {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = job(waiting(0, doing="refused"), waiting(1, 0, doing="refused"))
    processes = process(0, now=leak), process(1, now=leak)
    (finding,) = run_check(SchedulerEnv, *ranks, *processes).findings
    assert finding.ranks == (0, 1)
    assert run_check(SchedulerEnv, *ranks, *processes, listener()).findings == ()
    assert run_check(SchedulerEnv, *job(*ranks[1:], launcher="torchrun"), *processes).findings == ()


def test_hit_init_while_the_script_is_imported() -> None:
    child = waiting(1, 0, functions=("init_process_group", "<module>", "_fixup_main_from_path", "spawn_main"))
    (finding,) = run_check(SpawnGuard, *job(child)).findings
    assert finding.confidence is Confidence.CERTAIN


def test_hit_threads_in_collectives() -> None:
    stacks = [
        Stack(
            subject=Subject(host="node-a", pid=pid_of(0), start_time=77, thread=number),
            source=f"pid {pid_of(0)} thread {number}",
            frames=(
                Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),
                Frame(function="worker", file="train.py", line=7),
            ),
        )
        for number in (1, 2)
    ]
    (finding,) = run_check(ThreadLaunch, *job(collective(0, "all_reduce")), *stacks).findings
    assert finding.ranks == (0, 1) and finding.confidence is Confidence.LIKELY


WHOLE_PATH = {"arguments": ("python", "/home/me/serve.py"), "set_at_start": {"LOCAL_RANK": "1"}}
AS_TYPED = {"arguments": ("python", "serve.py"), "cwd": "/home/me"}


def test_hit_a_rerun_by_its_whole_path() -> None:
    ranks = job(waiting(0, 1), busy(1, state="waiting"), culprits=(1,))
    again = process(1, parent=pid_of(0), **WHOLE_PATH)
    assert run_check(RelaunchUnreached, *ranks, process(0, **AS_TYPED), again).outcome.status == "hit"
    elsewhere = process(0, **{**AS_TYPED, "cwd": "/home/you"})
    assert run_check(RelaunchUnreached, *ranks, elsewhere, again).outcome.status == "clear"


def test_warning_a_launcher_in_a_thread() -> None:
    ranks = job(waiting(0, 1, thread=4999, thread_name="trainer"), busy(1, state="waiting"), culprits=(1,))
    again = process(1, parent=pid_of(0), **WHOLE_PATH)
    (finding,) = run_check(ThreadLaunch, *ranks, process(0, **AS_TYPED), again).findings
    assert (finding.severity, finding.ranks) == (Severity.WARNING, (0,))
    assert finding.summary == "PID 4100 started 1 further rank from thread 'trainer', not from its main thread"


def test_clear_a_launcher_on_the_main_thread_and_one_rank_in_a_thread() -> None:
    again = process(1, parent=pid_of(0), **WHOLE_PATH)
    main = job(waiting(0, 1), busy(1, state="waiting"), culprits=(1,))
    assert run_check(ThreadLaunch, *main, process(0, **AS_TYPED), again).findings == ()
    thread = job(waiting(0, 1, thread=4999, thread_name="train"), waiting(1, 0))
    assert run_check(ThreadLaunch, *thread, process(0), process(1)).findings == ()


def test_the_place_of_the_store_is_mended_where_it_is_given() -> None:
    given = (
        waiting(0, 1, init_method="tcp://127.0.0.1:29500"),
        waiting(1, 0, init_method="tcp://127.0.0.1:29511", master_port=29511),
    )
    (finding,) = run_check(MasterInconsistent, *job(*given), process(0), process(1)).findings
    assert finding.confidence is Confidence.CERTAIN
    assert finding.fixes[0].commands == ('init_method="tcp://127.0.0.1:29500"   # in rank 1',)


def test_stores_of_two_hosts_may_be_two_jobs() -> None:
    apart = waiting(0, 1), waiting(1, 0, master_address="10.0.0.2", master_port=29511)
    (finding,) = run_check(MasterInconsistent, *job(*apart), process(0), process(1)).findings
    assert finding.confidence is Confidence.LIKELY
