"""What stacks, threads and sockets say about the stage, and what is left where they disagree."""

from __future__ import annotations

import pytest
from job_facts import connection, process, subject

from ddp_doctor.facts.job import Sighting, Task
from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.interpret.stage import Activity, activity, from_threads, narrowed, settle
from ddp_doctor.model import Stage

C10D = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
DDP = "/env/lib/python3.11/site-packages/torch/nn/parallel/distributed.py"


def stack(*frames: tuple[str, str], **arguments: str) -> Stack:
    """Frames, innermost first; the arguments are those of the first."""
    return Stack(
        frames=tuple(
            Frame(function=name, file=file, line=1, arguments=arguments if place == 0 else {})
            for place, (name, file) in enumerate((*frames, ("main", "/home/me/train.py")))
        )
    )


@pytest.mark.parametrize(
    ("frames", "doing", "call", "operation"),
    [
        (
            [("_create_c10d_store", C10D), ("init_process_group", C10D)],
            "refused",
            "init_process_group",
            "init_process_group",
        ),
        ([("_new_process_group_helper", C10D), ("init_process_group", C10D)], "store-key", *["init_process_group"] * 2),
        ([("_store_based_barrier", C10D), ("init_process_group", C10D)], "store-barrier", *["init_process_group"] * 2),
        ([("_new_process_group_helper", C10D), ("new_group", C10D)], "new-group", "new_group", "new_group"),
        ([("all_reduce", C10D), ("wrapper", C10D)], "collective", "all_reduce", "all_reduce"),
        ([("all_gather", C10D), ("all_gather_object", C10D)], "collective", "all_gather_object", "all_gather_object"),
        ([("_verify_param_shape_across_processes", DDP)], "ddp", "DistributedDataParallel()", "verify-parameters"),
        ([("DistributedDataParallel._sync_buffers", DDP)], "ddp", "DistributedDataParallel.forward", "sync-buffers"),
        ([("_engine_run_backward", "/env/torch/autograd/graph.py")], "ddp", "backward", "backward"),
        ([("_try_get_data", "/env/torch/utils/data/dataloader.py")], "data", "DataLoader", ""),
        ([("all_reduce", "/home/me/mine.py")], "user-code", "", ""),
        ([("_ModuleLock.acquire", "<frozen importlib._bootstrap>")], "import-lock", "import", ""),
        ([("exec_module", "<frozen importlib._bootstrap_external>")], "importing", "import", ""),
        ([("ProcessContext.join", "/env/torch/multiprocessing/spawn.py")], "spawning", "spawn", ""),
    ],
)
def test_activity(frames: list[tuple[str, str]], doing: str, call: str, operation: str) -> None:
    seen = activity(stack(*frames))
    assert (seen.doing, seen.call, seen.operation) == (doing, call, operation)


def test_arguments_reach_the_activity() -> None:
    seen = activity(stack(("_new_process_group_helper", C10D), ("init_process_group", C10D), rank="-1", group_rank="3"))
    assert seen.arguments == {"rank": "-1", "group_rank": "3"}


INIT = Activity(doing="refused", at_least=Stage.STORE_CONNECT, at_most=Stage.STORE_WAIT)
KEY = Activity(doing="store-key", at_least=Stage.STORE_WAIT, at_most=Stage.TRANSPORT)


@pytest.mark.parametrize(
    ("seen", "wchan", "sockets", "doing"),
    [
        (INIT, "hrtimer_nanosleep", [], "refused"),
        (INIT, "poll_schedule_timeout", [("SYN_SENT", {})], "no-answer"),
        (INIT, "wait_woken", [("ESTABLISHED", {})], "handshake"),
        (INIT, "hrtimer_nanosleep", [("ESTABLISHED", {}), ("LISTEN", {"local_port": 29500})], "waiting-for-clients"),
        (KEY, "poll_schedule_timeout.constprop.0", [("ESTABLISHED", {})], "store-key"),
        (KEY, "futex_do_wait", [("ESTABLISHED", {})], "gloo-mesh"),
        (KEY, "hrtimer_nanosleep", [], "file-store"),
    ],
)
def test_wait_channel_and_sockets_tell_waits_apart(
    seen: Activity, wchan: str, sockets: list[tuple[str, dict[str, int]]], doing: str
) -> None:
    found = [connection(0, state, **changes) for state, changes in sockets]
    assert narrowed(seen, wchan, process(0), found, 29500).doing == doing


def test_thread_names_alone_give_the_phase() -> None:
    def bounds(*names: str) -> tuple[Stage, Stage]:
        tasks = tuple(Task(id=number, name=name) for number, name in enumerate(names))
        found = from_threads(process(0, tasks=tasks), subject(0))
        return settle(found)[:2]

    assert bounds("python", "pt_tcpstore_uv") == (Stage.STORE_CONNECT, Stage.STORE_WAIT)
    assert bounds("python", "gloo_tcp_loop") == (Stage.STORE_WAIT, Stage.GLOO_MESH)
    assert bounds("python", "gloo_tcp_loop", "pt_gloo_runloop")[0] == Stage.INITIALIZED


def test_sightings_that_exclude_each_other_are_quoted_both() -> None:
    one = Sighting(source="pid 7", at_least=Stage.INITIALIZED, at_most=Stage.TRAINING, because="a group is complete")
    other = Sighting(
        source="pid 7 thread 7", at_least=Stage.STORE_CONNECT, at_most=Stage.STORE_WAIT, because="rendezvous"
    )
    low, _, conflict = settle([other, one])
    assert low is Stage.INITIALIZED
    assert (
        conflict
        == "pid 7: initialized..training: a group is complete; but pid 7 thread 7: store-connect..store-wait: rendezvous"
    )
