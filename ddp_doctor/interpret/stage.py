"""Stack, thread names, wait channel and sockets of a rank, each to what it says about the stage; and their intersection.

Frames are matched by function and file: line numbers drift between versions. What the names mean was measured on torch
2.13 with Gloo; a wait channel tells apart what one Python frame cannot, and needs no right to read memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_doctor.facts.job import Connection, Process, Sighting
from ddp_doctor.facts.nccl_live import RasCommunicator
from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Stage, Subject

LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|torch|lib/python3[\w.]*)/|^<|(^|/)(threading|queue|runpy|contextlib)\.py$"
)
IN_TORCH = re.compile(r"(^|/)torch/")
IN_DISTRIBUTED = re.compile(r"(^|/)torch/distributed/")
WRAPPERS = {"wrapper", "decorate_context", "_fn", "inner", "_call_impl", "_wrapped_call_impl", "_func"}
COLLECTIVES = {
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_object",
    "all_gather_coalesced", "gather", "gather_object", "scatter", "scatter_object_list", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend",
    "irecv", "batch_isend_irecv", "broadcast_object_list", "send_object_list", "recv_object_list",
}  # fmt: skip
DDP_CALLS: Mapping[str, tuple[str, Stage]] = {
    "_verify_param_shape_across_processes": ("verify-parameters", Stage.DDP_VERIFY),
    "_verify_model_across_ranks": ("verify-parameters", Stage.DDP_VERIFY),
    "_sync_module_states": ("sync-module-states", Stage.DDP_VERIFY),
    "_sync_params_and_buffers": ("sync-module-states", Stage.DDP_VERIFY),
    "_sync_buffers": ("sync-buffers", Stage.TRAINING),
    "_sync_module_buffers": ("sync-buffers", Stage.TRAINING),
    "_engine_run_backward": ("backward", Stage.TRAINING),
}
DATA_CALLS = {"_try_get_data", "_get_data", "_next_data"}
IMPORTS = {"_find_and_load", "_load_unlocked", "exec_module", "_call_with_frames_removed"}


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread does, from its Python frames."""

    doing: str
    call: str = ""
    operation: str = ""
    at_least: Stage = Stage.PYTHON
    at_most: Stage = Stage.TRAINING
    group: str = ""
    group_ranks: str = ""
    arguments: dict[str, str] = {}

    @property
    def distributed(self) -> bool:
        """Whether it is inside torch.distributed, or in DistributedDataParallel's own communication."""
        return self.doing not in ("user-code", "importing", "data", "import-lock", "spawning", "watching-workers")


def activity(stack: Stack) -> Activity:
    """What a thread does."""
    names = [_bare(frame) for frame in stack.frames]
    inside = {name for name, frame in zip(names, stack.frames, strict=True) if IN_DISTRIBUTED.search(frame.file)}
    arguments = _arguments(stack.frames)
    if "init_process_group" in inside:
        return _initialising(inside, arguments)
    if {"new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"} & inside:
        return Activity(
            doing="new-group",
            call="new_group",
            operation="new_group",
            at_least=Stage.INITIALIZED,
            group=arguments.get("group_name", ""),
            group_ranks=arguments.get("ranks") or arguments.get("global_ranks_in_group") or "",
            arguments=arguments,
        )
    if "next_rendezvous" in inside:
        return Activity(doing="waiting-for-nodes", call="next_rendezvous", at_most=Stage.PYTHON, arguments=arguments)
    if {"_invoke_run", "_monitor_workers"} & inside:
        return Activity(doing="watching-workers", call="_invoke_run", at_most=Stage.PYTHON)
    for name in names:
        if name in DDP_CALLS:
            operation, stage = DDP_CALLS[name]
            return Activity(
                doing="ddp", call=_ddp_call(operation), operation=operation, at_least=stage, at_most=Stage.TRAINING
            )
    collectives = [name for name in names if name in COLLECTIVES and name in inside]
    if collectives:
        return Activity(
            doing="collective",
            call=collectives[-1],
            operation=collectives[-1],
            at_least=Stage.INITIALIZED,
            group=arguments.get("group_name", ""),
            arguments=arguments,
        )
    return _elsewhere(stack, names, inside)


def _initialising(inside: set[str], arguments: dict[str, str]) -> Activity:

    def at(doing: str, at_least: Stage, at_most: Stage) -> Activity:
        name = "init_process_group"
        return Activity(doing=doing, call=name, operation=name, at_least=at_least, at_most=at_most, arguments=arguments)

    if "_store_based_barrier" in inside:
        return at("store-barrier", Stage.STORE_WAIT, Stage.STORE_WAIT)
    if "_new_process_group_helper" in inside:
        return at("store-key", Stage.STORE_WAIT, Stage.TRANSPORT)
    if {"_create_c10d_store", "rendezvous", "_env_rendezvous_handler", "_tcp_rendezvous_handler"} & inside:
        return at("refused", Stage.STORE_CONNECT, Stage.STORE_WAIT)
    return at("store-key", Stage.PYTHON, Stage.TRANSPORT)


def _elsewhere(stack: Stack, names: list[str], inside: set[str]) -> Activity:
    files = [frame.file for frame in stack.frames]
    if any(name in DATA_CALLS and "torch/utils/data/" in file for name, file in zip(names, files, strict=True)):
        return Activity(doing="data", call="DataLoader")
    bootstrap = [name for name, file in zip(names, files, strict=True) if "importlib" in file]
    if names and bootstrap and ("_lock_unlock_module" in bootstrap or names[0] in ("acquire", "_lock_unlock_module")):
        return Activity(doing="import-lock", call="import")
    # a forked child still has its parent's frames below its own
    starting = [name for name, file in zip(names, files, strict=True) if "torch/multiprocessing/" in file]
    if starting and starting[0] in ("join", "start_processes"):
        return Activity(doing="spawning", call="spawn")
    if IMPORTS & set(bootstrap):
        return Activity(doing="importing", call="import")
    return Activity(doing="user-code")


def _ddp_call(operation: str) -> str:
    return {"backward": "backward", "sync-buffers": "DistributedDataParallel.forward"}.get(
        operation, "DistributedDataParallel()"
    )


def _bare(frame: Frame) -> str:
    return frame.function.rsplit(".", 1)[-1]


def user_frames(frames: Sequence[Frame]) -> list[Frame]:
    """The frames that are no library's, innermost first."""
    return [frame for frame in frames if not LIBRARY.search(frame.file)]


def _arguments(frames: Sequence[Frame]) -> dict[str, str]:
    """Arguments of all frames; the outermost wins, except where it only says that it does not know (-1, None)."""
    merged: dict[str, str] = {}
    for frame in frames:
        merged.update(
            (name, value)
            for name, value in frame.arguments.items()
            if name not in merged or value not in ("-1", "None")
        )
    return merged


def settle(sightings: Iterable[Sighting]) -> tuple[Stage, Stage, str]:
    """The stages that fit all sightings; where none fits, the first sighting's and a text that quotes both sides."""
    low, high = Stage.NOT_STARTED, Stage.TRAINING
    lowest: Sighting | None = None
    highest: Sighting | None = None
    for each in sightings:
        if each.at_least > low or lowest is None:
            low, lowest = max(low, each.at_least), each if each.at_least >= low else lowest
        if each.at_most < high or highest is None:
            high, highest = min(high, each.at_most), each if each.at_most <= high else highest
    if low > high and lowest is not None and highest is not None:
        return low, low, f"{lowest.source}: {lowest.text()}; but {highest.source}: {highest.text()}"
    return low, high, ""


def narrowed(
    seen: Activity, wchan: str, process: Process, connections: Sequence[Connection], port: int | None
) -> Activity:
    """An activity in init, told apart by the wait channel and the sockets: one Python frame stands for several waits."""
    to_store = [each for each in connections if port is not None and each.peer_port == port]
    listens = any(each.state == "LISTEN" and each.local_port == port for each in connections)
    established = [each for each in to_store if each.state == "ESTABLISHED"]
    doing, low, high = seen.doing, seen.at_least, seen.at_most
    if doing == "refused":
        if any(each.state == "SYN_SENT" for each in to_store):
            doing, high = "no-answer", Stage.STORE_CONNECT
        elif listens and established:
            doing, low = "waiting-for-clients", Stage.STORE_WAIT
        elif established and "nanosleep" not in wchan:
            doing, high = "handshake", Stage.STORE_CONNECT
        elif not established:
            high = Stage.STORE_CONNECT
    elif doing == "store-key" and low >= Stage.STORE_WAIT:
        if "futex" in wchan:
            doing, low, high = "gloo-mesh", Stage.GLOO_MESH, Stage.GLOO_MESH
        elif "poll" in wchan or "wait_woken" in wchan:
            high = Stage.STORE_WAIT
        elif "nanosleep" in wchan and not to_store:
            doing, high = "file-store", Stage.STORE_WAIT
    return msgspec.structs.replace(seen, doing=doing, at_least=low, at_most=high)


def from_threads(process: Process, subject: Subject, *, in_init: bool = False) -> list[Sighting]:
    """What the kernel's names of C++ threads tell; any user can read them.

    `in_init`: its stack is seen in init, where a complete group is one of several that are made there.
    """
    names = [task.name for task in process.tasks]
    source = f"/proc/{process.pid}/task/*/comm"
    found = []

    def saw(low: Stage, high: Stage, because: str) -> None:
        found.append(Sighting(subject=subject, source=source, at_least=low, at_most=high, because=because))

    finished = names.count("pt_gloo_runloop")
    if finished:
        low = Stage.GLOO_MESH if in_init else Stage.INITIALIZED
        saw(low, Stage.TRAINING, f"{finished} threads pt_gloo_runloop: a Gloo group is complete")
    elif "gloo_tcp_loop" in names:
        saw(
            Stage.STORE_WAIT,
            Stage.GLOO_MESH,
            "a thread gloo_tcp_loop and none pt_gloo_runloop: its first group is not complete",
        )
    if not in_init and any(name.startswith("pt_nccl_watchd") for name in names):
        saw(Stage.INITIALIZED, Stage.TRAINING, "a thread pt_nccl_watchdg: the NCCL group exists")
    if not found and any(name.startswith("pt_tcpstore") for name in names):
        saw(Stage.STORE_CONNECT, Stage.STORE_WAIT, "a thread pt_tcpstore_uv and no Gloo: it hosts the store and waits")
    return found


def from_sockets(
    process: Process, connections: Sequence[Connection], port: int | None, subject: Subject
) -> list[Sighting]:
    """What its sockets tell about reaching the store."""
    found = []
    for each in connections:
        if port is None or each.peer_port != port:
            continue
        if each.state == "SYN_SENT":
            found.append(
                Sighting(
                    subject=subject,
                    source=each.source,
                    at_least=Stage.STORE_CONNECT,
                    at_most=Stage.STORE_CONNECT,
                    because=each.text(),
                )
            )
        elif each.state in ("ESTABLISHED", "CLOSE_WAIT"):
            found.append(
                Sighting(
                    subject=subject,
                    source=each.source,
                    at_least=Stage.STORE_CONNECT,
                    at_most=Stage.TRAINING,
                    because=each.text(),
                )
            )
    return found[:2]


def from_ras(process: Process, rank: int | None, told: Sequence[RasCommunicator], subject: Subject) -> list[Sighting]:
    """What NCCL's own report tells of a rank: RAS is up once a rank has met the others, and knows whose init is over.

    The text form names no ranks; it counts for all where there is one communicator.
    """
    found = []
    for each in told:
        mine = [one for one in each.ranks if one.pid in (process.pid, process.inner_pid) and not one.lost]
        ready = mine[0].ready if mine else each.status == "RUNNING" if len(told) == 1 and rank is not None else None
        if ready is None or (not mine and each.status not in ("INIT", "RUNNING")):
            continue
        low, high = (Stage.FIRST_COLLECTIVE, Stage.TRAINING) if ready else (Stage.COMM_TOPOLOGY, Stage.TRANSPORT)
        found.append(Sighting(subject=subject, source=each.source, at_least=low, at_most=high, because=each.text()))
    return found[:1]
