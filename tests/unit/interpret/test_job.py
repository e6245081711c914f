"""From processes, sockets and stacks to jobs: who belongs together, who waits for whom, who is at fault."""

from __future__ import annotations

from typing import Any

from job_facts import collective, connection, pid_of, process, waiting
from msgspec.structs import replace

from ddp_doctor.facts.job import CallSite, Job, JobRank
from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.interpret.divergence import divergence
from ddp_doctor.interpret.family import families
from ddp_doctor.interpret.job import _hung, interpret
from ddp_doctor.interpret.waits import culprits
from ddp_doctor.model import Facts, Stage, Subject

C10D = "/env/torch/distributed/distributed_c10d.py"


def ranked(number: int, *, port: str = "29500", size: int = 2, **changes: Any) -> Any:
    """A rank that a launcher gave its variables."""
    values = {"RANK": str(number), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return process(number, **{"now": values, "set_at_start": values, "ancestors": (900,), "parent": 900, **changes})


def in_init(number: int, frame: str = "_new_process_group_helper") -> Stack:
    """The stack of a rank in init."""
    return Stack(
        subject=Subject(host="node-a", pid=pid_of(number), start_time=77, thread=pid_of(number)),
        source=f"pid {pid_of(number)}",
        frames=(
            Frame(function=frame, file=C10D, line=1),
            Frame(function="init_process_group", file=C10D, line=2),
            Frame(function="main", file="/home/me/train.py", line=12),
        ),
        process_cpu=0.0,
        moved=False,
    )


def pids(*processes: Any, sockets: Any = ()) -> list[list[int]]:
    return [sorted(member.pid for member in family.members) for family in families(processes, sockets)]


def test_ranks_of_one_endpoint_are_one_job() -> None:
    assert pids(ranked(0), ranked(1)) == [[4100, 4101]]


def test_two_jobs_of_one_shell_are_kept_apart() -> None:
    other = [ranked(number, port="29600", pid=5000 + number) for number in (0, 1)]
    assert pids(ranked(0), ranked(1), *other) == [[4100, 4101], [5000, 5001]]


def test_siblings_with_different_ports_are_parts_of_one_job() -> None:
    assert pids(ranked(0), ranked(1, port="29501")) == [[4100, 4101]]


def test_ranks_that_their_arguments_number_are_one_job_whatever_their_ports() -> None:
    def started(rank: int, port: str, *more: str) -> Any:
        words = ("python", "train.py", f"--rank={rank}", "--port", port, *more)
        return process(rank, parent=50, arguments=words)

    assert pids(started(0, "29500"), started(1, "29511")) == [[4100, 4101]]
    assert pids(started(0, "29500"), started(1, "29511", "--fold=2")) == [[4100], [4101]]


def test_loopback_of_another_network_namespace_is_another_place() -> None:
    assert len(pids(ranked(0), ranked(0, pid=5000, network=2, parent=901, ancestors=(901,)))) == 2


def test_a_spawned_child_belongs_to_the_one_that_spawned_it() -> None:
    parent = process(None, pid=4000)
    children = [
        process(
            number, parent=4000, ancestors=(4000,), arguments=("python", "-c", "spawn_main", "--multiprocessing-fork")
        )
        for number in (0, 1)
    ]
    (family,) = families([parent, *children], [])
    assert family.roles == {4000: "parent", 4100: "rank", 4101: "rank"}


def test_a_helper_of_a_rank_is_no_second_rank() -> None:
    helper = ranked(0, pid=4500, parent=4100, ancestors=(4100,), arguments=("python", "-m", "tensorboard"))
    (family,) = families([ranked(0), ranked(1), helper], [])
    assert 4500 not in family.roles


def test_data_workers_and_resource_trackers_are_no_ranks() -> None:
    worker = ranked(0, pid=4500, parent=4100, ancestors=(4100,), command="pt_data_worker")
    tracker = process(None, pid=4501, parent=4100, arguments=("python", "-c", "from multiprocessing.resource_tracker"))
    (family,) = families([ranked(0), worker, tracker], [])
    assert family.roles == {4500: "data-worker", 4100: "rank"}


def test_a_rank_that_is_not_there_is_missing_and_waited_for() -> None:
    facts = Facts([ranked(0, size=3), ranked(1, size=3), in_init(0), in_init(1), connection(0, "ESTABLISHED")])
    found = interpret(facts)
    (job,) = [fact for fact in found if isinstance(fact, Job)]
    waits = {fact.rank: [wait.rank for wait in fact.waits_for] for fact in found if isinstance(fact, JobRank)}
    assert (job.missing, job.complete_here, job.hung) == ((2,), True, None)
    assert waits == {0: [2], 1: [2]}


def test_without_stacks_threads_and_sockets_tell_the_wait() -> None:
    tasks = process(0).tasks
    facts = Facts([ranked(0), connection(0, "SYN_SENT"), connection(0, "LISTEN", local_port=41000)])
    (rank,) = [fact for fact in interpret(facts) if isinstance(fact, JobRank)]
    assert (rank.doing, rank.has_stack, tasks[0].wchan) == ("no-answer", False, "poll_schedule_timeout")


def test_the_culprit_is_waited_for_and_waits_for_nobody() -> None:
    late = waiting(2, doing="user-code", stage=Stage.PYTHON)
    assert [rank.rank for rank in culprits([waiting(0, 2), waiting(1, 2), late])] == [2]


def test_in_a_cycle_the_culprit_is_the_one_that_differs() -> None:
    ranks = [collective(0, "all_reduce", 2), collective(1, "all_reduce", 2), collective(2, "broadcast", 0, 1)]
    assert [rank.rank for rank in culprits(ranks)] == [2]


def test_divergence_names_the_condition_that_parts_the_ranks() -> None:
    site = CallSite(file="train.py", line=12, conditions=("if rank == 0:",), code="dist.barrier()")
    ranks = [collective(0, "barrier", 1), collective(1, "all_reduce", 0, places=("train.py:14",))]
    found = divergence(ranks, [site])
    assert found is not None and (found.fault, found.odd) == ("rank-conditional", (0,))
    other = divergence(ranks, [])
    assert other is not None and (other.fault, other.odd) == ("collective", (0, 1))


def test_a_condition_that_all_ranks_stand_under_parts_nobody() -> None:
    site = CallSite(file="train.py", line=12, conditions=("if local_rank is not None:",), code="dist.barrier()")
    ranks = [collective(0, "barrier", 1), collective(1, "all_reduce", 0)]
    found = divergence(ranks, [site])
    assert found is not None and found.fault == "collective"


def test_ranks_in_one_call_do_not_part() -> None:
    assert divergence([collective(0, "all_reduce"), collective(1, "all_reduce")], []) is None


def test_send_and_recv_are_two_sides_of_one_call() -> None:
    assert divergence([collective(0, "send"), collective(1, "recv")], []) is None


def test_a_world_in_which_everybody_receives_and_nobody_sends_parts() -> None:
    found = divergence([collective(0, "recv"), collective(1, "recv")], [])
    assert found is not None and (found.fault, found.odd) == ("collective", (0, 1))
    third = {"world_size": 3}
    assert divergence([collective(0, "recv", **third), collective(1, "recv", **third)], []) is None
    assert divergence([collective(0, "recv"), collective(1, "recv", moved=True)], []) is None
    assert divergence([collective(0, "recv"), collective(1, "batch_isend_irecv")], []) is None


def test_a_shell_that_the_user_named_stands_for_the_ranks_below_it() -> None:
    shell = process(None, pid=900, command="bash", arguments=("bash", "start.sh"), asked=True, torch=False)
    (family,) = families([shell, ranked(0), ranked(1)], [])
    assert family.roles == {900: "parent", 4100: "rank", 4101: "rank"}


def test_a_python_wrapper_that_the_user_named_stands_for_what_torch_spawned_below_it() -> None:
    wrapper = process(None, pid=900, arguments=("python", "submit.py"), asked=True, torch=False, parent=1)
    script = process(None, pid=4000, parent=900, ancestors=(900,))
    spawned = ("python", "-c", "spawn_main", "--multiprocessing-fork")
    children = [process(None, pid=pid, parent=4000, ancestors=(4000, 900), arguments=spawned) for pid in (4100, 4101)]
    (family,) = families([wrapper, script, *children], [])
    assert family.roles == {900: "parent", 4000: "parent", 4100: "rank", 4101: "rank"}


def test_a_python_wrapper_that_the_user_named_stands_for_the_launcher_below_it() -> None:
    wrapper = process(None, pid=900, arguments=("python", "submit.py"), asked=True, torch=False, parent=1)
    arguments = ("python", "-m", "torch.distributed.run", "--nnodes=2", "train.py")
    launcher = process(None, pid=4000, parent=900, ancestors=(900,), arguments=arguments)
    (family,) = families([wrapper, launcher], [])
    assert family.roles == {900: "parent", 4000: "launcher"}


def test_a_process_whose_command_line_is_gone_costs_nothing() -> None:
    assert pids(ranked(0), ranked(1, arguments=())) == [[4100, 4101]]


def test_a_worker_of_a_fork_server_is_no_second_rank() -> None:
    server = process(
        None, pid=4400, parent=4100, ancestors=(4100,), arguments=("python", "-c", "multiprocessing.forkserver")
    )
    worker = ranked(0, pid=4500, parent=4400, ancestors=(4400, 4100, 900))
    (family,) = families([ranked(0), ranked(1), server, worker], [])
    assert sorted(family.roles) == [4100, 4101]


def test_a_logger_that_inherited_a_rank_and_lost_its_parent_is_no_second_rank() -> None:
    logger = ranked(0, pid=4500, parent=1, ancestors=(1,), arguments=("python", "-m", "wandb"), torch=False)
    (family,) = families([ranked(0), ranked(1), logger], [])
    assert sorted(family.roles) == [4100, 4101]


def test_ranks_that_wait_for_the_one_that_works_first_do_not_part() -> None:
    site = CallSite(file="train.py", line=12, conditions=("if rank != 0:",), code="dist.barrier()", paired=True)
    late = collective(0, "", doing="user-code", state="waiting")
    assert divergence([collective(1, "barrier", 0), late], [site]) is None


def test_a_named_process_that_runs_no_python_is_no_rank() -> None:
    named = {"asked": True, "torch": False, "parent": 1}
    assert families([process(0, **named, python=False)], []) == ()
    for seen in (True, None):
        (family,) = families([process(0, **named, python=seen)], [])
        assert [each.pid for each in family.of("rank")] == [pid_of(0)]


def test_ranks_that_wait_for_data_make_progress_where_a_worker_loads_it() -> None:
    waits = {"doing": "data", "state": "waiting", "operation": ""}
    ranks = [collective(number, "DataLoader", **waits) for number in (0, 1)]
    worker = collective(2, "", role="data-worker", doing="user-code", rank=None, pid=4500)
    assert _hung([*ranks, replace(worker, moved=True)], ()) is False
    assert _hung([*ranks, replace(worker, cpu=0.4)], ()) is False
    assert _hung([*ranks, replace(worker, cpu=0.0, moved=False)], ()) is None
    assert _hung(ranks, ()) is None
