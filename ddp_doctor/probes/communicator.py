"""A communicator of our own on the libnccl that torch loads: one killable process per rank."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import msgspec

from ddp_doctor.child import Fork, Silence, readable
from ddp_doctor.collect import Observation, Probe
from ddp_doctor.deadline import Deadline
from ddp_doctor.facts.communicator import CommunicatorRank, Outcome
from ddp_doctor.facts.gpu import CudaView, DriverGpu, DriverState, GpuNode
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Host, worker_environment
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.readers.nccl_log import is_noise, parse_all

SECONDS = 30.0
"""The whole trial. Eight drivers without persistence mode wake up in 20 s; NCCL itself takes under 5 s."""
STARTING_SECONDS = 25.0
"""How long a rank may take to reach NCCL."""
QUIET_SECONDS = 8.0
"""No rank of a healthy communicator is silent that long."""
WARNED_SECONDS = 2.0
"""The same once NCCL has warned: some warnings end the rendezvous without any rank being told."""
COMPARED_QUIET_SECONDS = 4.0
"""The same for the trial without P2P, which starts on GPUs that are awake."""
GRACE_SECONDS = 1.0
"""How long the other ranks may go on, once one has failed, to say that they failed too."""
HEADROOM_MIB = 2048
"""What one rank's context and NCCL's buffers may take; measured under 1 GiB on current GPUs."""
MOST_LINES = 400
LOGGING = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,P2P,SHM",
    "NCCL_DEBUG_TIMESTAMP_LEVELS": "ALL",
    "NCCL_DEBUG_TIMESTAMP_FORMAT": "[%F %T.%3f] ",
}
ONE_CHANNEL = {"NCCL_MAX_NCHANNELS": "1"}
"""Where there are no more cores than ranks: every rank still reads from and writes to its neighbours, once instead of per
channel. Whether /dev/shm has room for what a job's channels take is worked out from its size, not from this trial."""
LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
RESERVE_SECONDS = 1.0
"""Left of the whole budget to end the ranks and tell of them."""
WITHOUT_P2P = {"NCCL_P2P_DISABLE": "1"}
_SEGMENT = re.compile(r"/dev/shm/nccl-\w+")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One rank to start. `root` makes the unique id; `environ` is added to the environment under examination."""

    rank: int
    world_size: int
    device: int
    libnccl: str
    root: bool = False
    environ: Mapping[str, str] = {}
    python: tuple[str, ...] | None = None
    needed_mib: int = HEADROOM_MIB


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """Every visible GPU as a rank, if it hurts nobody."""
    install = facts.first(TorchInstall)
    if install is None or not install.libnccl:
        yield _absent(host, "absent", "torch here loads no libnccl.so.2" if install else "there is no torch to ask")
        return
    view = next((view for view in facts[CudaView] if view.masked), None)
    if view is None or not view.works or not view.count:
        yield _absent(host, "absent", view.text() if view else "CUDA was not asked")
        return
    size = host.options.nproc or view.count
    refusal = why_not(facts, view, size) if host.options.active != "always" else ""
    if host.options.active == "never":
        refusal = "--active never"
    local_rank = next((host.environ[name] for name in LOCAL_RANKS if host.environ.get(name)), "0")
    if local_rank != "0":
        yield _absent(host, "denied", f"this is local rank {local_rank}; local rank 0 tries the GPUs of this node")
        return
    if refusal:
        yield _absent(host, "denied", refusal, "ddp-doctor run --active always")
        return
    plans = [
        Plan(rank=rank, world_size=size, device=rank % view.count, libnccl=install.libnccl, root=rank == 0)
        for rank in range(size)
    ]
    try:
        yield from form_and_compare(host, plans)
    except TimeoutError as error:
        yield _absent(host, "timeout", str(error), "ddp-doctor run --timeout 120")


PROBES = (
    Probe(
        name="communicator",
        gives=(CommunicatorRank,),
        builds_on=(TorchInstall, DriverState, DriverGpu, CudaView, GpuNode),
        take=take,
        risk="gpu",
        seconds=SECONDS,
    ),
)


def why_not(facts: Facts, view: CudaView, size: int) -> str:
    """Who would be hurt if these GPUs got a context each; empty if nobody. What cannot be seen counts as somebody."""
    driver = facts.first(DriverState)
    node = facts.first(GpuNode)
    if driver is None or not driver.works:
        return f"who uses the GPUs cannot be seen: {driver.text() if driver else 'NVML was not asked'}"
    if (node and node.mps) or "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in (node.variables if node else {}):
        return "MPS shares these GPUs with other processes"
    gpus = {gpu.uuid: gpu for gpu in facts[DriverGpu]}
    for device in view.devices[:size]:
        gpu = gpus.get(device.gpu_uuid or device.uuid)
        if gpu is None or gpu.unanswered:
            return f"who uses CUDA device {device.ordinal} cannot be seen"
        if gpu.mig or device.uuid.startswith("MIG-"):
            return f"GPU {gpu.index} is divided by MIG, on which NCCL does not work"
        if gpu.compute_mode not in ("default", None):
            return f"GPU {gpu.index} is in compute mode {gpu.compute_mode}"
        if gpu.processes:
            return f"GPU {gpu.index} used by {gpu.processes[0].text()}"
        ranks_here = -(-size // max(1, view.count or 1))
        if gpu.memory_free is not None and gpu.memory_free < HEADROOM_MIB * ranks_here:
            return f"GPU {gpu.index} has {gpu.memory_free} MiB free, {HEADROOM_MIB * ranks_here} are needed"
    return ""


def form_and_compare(host: Host, plans: Sequence[Plan]) -> list[CommunicatorRank]:
    """The trial; where data through P2P did not arrive or arrived wrong, also the same one with P2P switched off."""
    ranks = form(host, plans)
    together = len({rank.step for rank in ranks}) == 1
    suspect = together and any(rank.outcome == "timeout" or rank.value_ok is False for rank in ranks)
    if not suspect or not any(" via P2P" in line for rank in ranks for line in rank.lines):
        return ranks
    without = [msgspec.structs.replace(plan, environ={**plan.environ, **WITHOUT_P2P}) for plan in plans]
    return ranks + form(host, without, quiet=COMPARED_QUIET_SECONDS, without_p2p=True)


def form(
    host: Host, plans: Sequence[Plan], *, quiet: float = QUIET_SECONDS, without_p2p: bool = False
) -> list[CommunicatorRank]:
    """Start these ranks, pass the root's unique id to the others, and watch until all are done or none moves.

    Raises TimeoutError where the time was up while they still moved.
    """
    deadline = Deadline(min(SECONDS, host.deadline.remaining() - RESERVE_SECONDS))
    given = deadline.remaining()
    with ExitStack() as children:
        ranks = _start(host, plans, children)
        conclusive = _watch(ranks, deadline, quiet)
        found = [msgspec.structs.replace(rank.fact(), without_p2p=without_p2p) for rank in ranks]
    for rank in ranks:
        rank.remove_segments()
    if any(fact.outcome in ("failed", "crashed") for fact in found):
        return [
            msgspec.structs.replace(fact, outcome="unfinished") if fact.outcome == "timeout" else fact for fact in found
        ]
    if not conclusive:
        out = ", ".join(
            f"rank {fact.rank} in {fact.call or fact.step or 'its start'}" for fact in found if not fact.value_ok
        )
        raise TimeoutError(f"the trial communicator was not done when its {given:.0f} s were over: {out}")
    return found


def _start(host: Host, plans: Sequence[Plan], children: ExitStack) -> list[_Rank]:
    """Ranks in their given order; those that do not differ are forks of one interpreter, which shares out the cores.

    A session each would be more than its part where the kernel divides processor time among sessions.
    """
    scarce = len(os.sched_getaffinity(0)) <= len(plans)
    alike: dict[tuple[object, ...], list[Plan]] = {}
    for plan in plans:
        alike.setdefault((plan.python, *sorted(plan.environ.items())), []).append(plan)
    ranks = []
    for some in alike.values():
        examined = {**worker_environment(host.environ), **some[0].environ}
        chosen = any("NCHANNELS" in name or "_CTAS" in name for name in examined)
        environ = {**LOGGING, **(ONE_CHANNEL if scarce and not chosen else {}), **examined}
        requests = [
            {
                "libnccl": plan.libnccl,
                "rank": plan.rank,
                "world_size": plan.world_size,
                "device": plan.device,
                "root": plan.root,
                "needed_mib": plan.needed_mib,
            }
            for plan in some
        ]
        child = children.enter_context(
            host.start("communicator", {}, environ=environ, python=some[0].python, forks=requests)
        )
        ranks += [_Rank(host, plan, environ, fork) for plan, fork in zip(some, child.forks, strict=True)]
    return sorted(ranks, key=lambda rank: plans.index(rank.plan))


def _watch(ranks: Sequence[_Rank], deadline: Deadline, quiet: float) -> bool:
    """Until all are done, one has failed, or none moves; False where the deadline came first."""
    moved = time.monotonic()
    failed_at: float | None = None
    while deadline:
        talking = [rank for rank in ranks if not rank.closed]
        if not talking or all(rank.outcome for rank in ranks):
            return True
        ready = readable([rank.child for rank in talking], 0.05)
        for rank in talking:
            if rank.child in ready:
                told = rank.hear()
                if "id" in told:
                    for other in ranks:
                        if not other.plan.root:
                            other.child.send({"id": told["id"]})
        now = time.monotonic()
        for rank in ranks:
            if rank.moved():
                moved = now
        if failed_at is None and any(rank.outcome in ("failed", "crashed") for rank in ranks):
            failed_at = now
        starting = any(not rank.outcome and rank.starting for rank in ranks)
        patience = WARNED_SECONDS if any(rank.warned for rank in ranks) else quiet
        if failed_at is not None and now - failed_at > GRACE_SECONDS:
            return True
        if now - moved > (STARTING_SECONDS if starting else patience):
            return True
    return False


class _Rank:
    """One rank: its process, what it said, and what NCCL printed in it."""

    def __init__(self, host: Host, plan: Plan, environ: Mapping[str, str], child: Fork) -> None:
        self.plan = plan
        self.host = host
        self.environ = environ
        self.child = child
        self.started = time.monotonic()
        self.closed = False
        self.outcome: Outcome | Literal[""] = ""
        self.step = ""
        self.seconds = 0.0
        self.warned = False
        self._told: dict[str, Any] = {}
        self._steps = 0
        self._read = 0
        self._progress = 0
        self._seen = (0, 0)

    @property
    def starting(self) -> bool:
        return self.step in ("", "device", "library")

    def hear(self) -> dict[str, Any]:
        """Take one message; empty at the end of the conversation."""
        try:
            message = self.child.receive(Deadline(0.0))
        except Silence:
            return {}
        if message is None:
            self.closed = True
            if not self.outcome:
                self.outcome = "crashed"
                code = self.child.exit_code()
                self._told.update(error=f"the process ended with code {code}", call=self.step)
            return {}
        self._steps += not _SELF_OBSERVED.intersection(message)
        self.step = str(message.get("at", self.step))
        self.seconds = float(message.get("seconds", self.seconds))
        self._told.update(message.get("here", {}))
        self._told.update({key: value for key, value in message.items() if key in _KEPT})
        self._told["call"] = message.get("calling", self._told.get("call"))
        if "failed" in message:
            self.outcome = "failed"
            self._told.update(message["failed"])
        elif message.get("done") == "all-reduce":
            self.outcome = "passed" if message["value_ok"] else "failed"
        return message

    def moved(self) -> bool:
        """Whether it has said or printed something new; a connection tried again and again is nothing new."""
        new = self.child.printed_after(self._read)
        self._read += len(new)
        for line in new.decode("utf-8", "replace").splitlines():
            self._progress += "retrying" not in line
            if "NCCL WARN" in line:
                self.warned = self.warned or any(
                    found.level == "WARN" and not is_noise(found) for found in parse_all(line)
                )
        told = (self._steps, self._progress)
        moved, self._seen = told != self._seen, told
        return moved

    def lines(self) -> tuple[str, ...]:
        return tuple(line for line in self.child.printed().splitlines() if line)[-MOST_LINES:]

    def fact(self) -> CommunicatorRank:
        """What is known of it now; call it before the process is killed."""
        told = self._told
        number = told.get("version", 0)
        return CommunicatorRank(
            subject=Subject(host=self.host.name, pid=self.child.sender, rank=self.plan.rank),
            source=f"rank {self.plan.rank} of a trial communicator on {self.plan.libnccl}",
            rank=self.plan.rank,
            world_size=self.plan.world_size,
            device=self.plan.device,
            libnccl=self.plan.libnccl,
            version=version_text(number) if number else "",
            step=self.step,
            outcome=self.outcome or "timeout",
            call=str(told.get("call") or ""),
            code=told.get("code"),
            error=str(told.get("error") or ""),
            last_error=str(told.get("last_error") or ""),
            value_ok=told.get("value_ok"),
            seconds=self.seconds or time.monotonic() - self.started,
            uuid=str(told.get("uuid") or ""),
            pci=str(told.get("pci") or ""),
            shm_device=told.get("shm_device"),
            network=str(told.get("network") or ""),
            hostname=str(told.get("hostname") or ""),
            variables={
                name: value
                for name, value in self.environ.items()
                if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG") and name != "NCCL_RAS_ENABLE"
            },
            threads=told.get("threads", {}),
            lines=self.lines(),
        )

    def remove_segments(self) -> None:
        """Remove the shared memory that a killed rank leaves behind, as its own memory map named it."""
        try:
            mine = Path("/dev/shm").stat().st_dev == self._told.get("shm_device")
        except OSError:
            return
        for path in self._told.get("segments", ()) if mine else ():
            if _SEGMENT.fullmatch(path):
                try:
                    Path(path).unlink()
                except OSError:
                    continue


_SELF_OBSERVED = {"segments", "threads"}
_KEPT = {"uuid", "pci", "version", "value_ok", *_SELF_OBSERVED}


def version_text(number: int) -> str:
    """`2.27.5` for 22705, as ncclGetVersion counts since 2.9."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _absent(host: Host, status: Literal["absent", "denied", "timeout"], reason: str, how_to_get: str = "") -> Absent:
    return Absent(
        kind=CommunicatorRank.kind(),
        about=Subject(host=host.name),
        status=status,
        reason=reason,
        how_to_get=how_to_get,
    )
