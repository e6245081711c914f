"""The examined interpreter's torch: imported once in a worker, asked about CUDA in a fork, and made to form a group."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from ddp_doctor.child import Child, Silence, how_it_ended
from ddp_doctor.collect import Observation, Probe
from ddp_doctor.deadline import Deadline
from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.software import TorchCuda, TorchRuntime, TrialRank
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Fact, Facts, Stage, Subject

TRIAL_SECONDS = 10.0
"""A healthy trial takes a tenth of a second."""
FEWEST_TRIAL_SECONDS = 3.0
"""Where less is left of the whole budget, a trial that does not end says nothing."""
NCCL_SECONDS = 30.0
CUDA_SECONDS = 30.0
"""A driver without persistence mode needs that long to wake up."""
COUNT_SECONDS = 3.0
"""How long the trial waits to learn the number of GPUs before it starts with two ranks."""
GRACE_SECONDS = 0.5
"""How long the other ranks may go on, once one has failed, to say that they failed too."""
NO_LIBUV = "without libuv support"
_STAGES = {stage.label: stage for stage in Stage}
_WAITED = re.compile(r"tim(e|ed) ?out", re.IGNORECASE)
_RAISED = re.compile(r"^\w+(?:Error|Exception): .+", re.MULTILINE)
_FRAME = re.compile(r'File "(?!<)([^"]+)", line (\d+)')


def take(host: Host, facts: Facts, *, trial_seconds: float = TRIAL_SECONDS) -> Iterator[Observation]:
    """One conversation with one worker: the import, then the questions to torch.cuda and the trial side by side.

    The import may take all that is left but a reserve; the trial and torch.cuda have deadlines of their own.
    """
    left = host.deadline.remaining()
    importing = host.deadline.within(left - min(2.0, 0.2 * left))
    request = {"import_seconds": max(0.1, importing.remaining() - 0.3)}
    try:
        with host.start("torch_ranks", request, python=[host.python]) as child:
            runtime = _import(host, child, importing, request["import_seconds"])
            cuda, trial = _Cuda(host, runtime), _Trial(host, trial_seconds)
            if runtime.outcome == "imported":
                runtime = _converse(child, runtime, cuda, trial)
    except OSError as error:
        reason = f"{host.python} cannot be started: {error.strerror or error}"
        # torch is what a verdict rests on: an interpreter that does not run is no sign of health
        for kind in (TorchRuntime, TorchCuda, TrialRank):
            yield _absent(host, kind, "crashed", reason)
        return
    yield runtime
    if runtime.outcome == "imported":
        yield cuda.observation()
        yield from trial.observations()
        return
    status: Literal["timeout", "crashed"] = "timeout" if runtime.outcome == "timeout" else "crashed"
    for kind in (TorchRuntime, TorchCuda, TrialRank) if runtime.given_up_early else (TorchCuda, TrialRank):
        yield _absent(host, kind, status, f"torch was not imported: {runtime.error}")


def take_nccl(host: Host, facts: Facts) -> Iterator[Observation]:
    """Ranks on torch's own NCCL backend with `device_id`, where the bare communicator came through on these GPUs.

    Torch is imported once more for it, so it is done with `--active always` only.
    """
    runtime, bare = facts.first(TorchRuntime), facts[CommunicatorRank]
    if host.options.active != "always" or runtime is None or not runtime.nccl_backend or not bare:
        return
    if any(rank.outcome != "passed" for rank in bare):
        return
    trial = _Trial(host, NCCL_SECONDS, backend="nccl")
    importing = _inside(host, host.deadline.remaining() / 2)
    watched = importing.remaining()
    with host.start("torch_ranks", {"import_seconds": watched}, python=[host.python]) as child:
        again = _import(host, child, importing, watched)
        if again.outcome != "imported":
            status: Literal["timeout", "crashed"] = "timeout" if again.outcome == "timeout" else "crashed"
            yield _absent(host, TrialRank, status, f"torch was not imported a second time: {again.error}")
            return
        trial.begin(child, len(bare))
        while not trial.done:
            try:
                message = child.receive(trial.deadline)
            except Silence:
                break
            if message is None:
                trial.end(f"the worker {how_it_ended(child.exit_code())}")
            elif "refused" in message:
                trial.refuse(str(message["refused"]))
            elif "rank" in message:
                trial.hear(message)
    yield from trial.observations()


PROBES = (
    Probe(name="torch", gives=(TorchRuntime, TorchCuda, TrialRank), take=take),
    Probe(
        name="torch-nccl", gives=(TrialRank,), builds_on=(TorchRuntime, CommunicatorRank), take=take_nccl, risk="gpu"
    ),
)


def _import(host: Host, child: Child, deadline: Deadline, watched: float) -> TorchRuntime:
    """What the import came to. After `watched` seconds faulthandler looks where it stands, which can end the process."""
    subject = Subject(host=host.name)
    source = f"{host.python} -c 'import torch'"
    started = time.monotonic()

    def failed(outcome: Literal["raised", "died", "timeout"], error: str, where: str) -> TorchRuntime:
        return TorchRuntime(
            subject=subject,
            source=source,
            outcome=outcome,
            error=f"{error} ({where})" if where else error,
            seconds=time.monotonic() - started,
            printed=child.printed()[-2000:],
            python_variables=tuple(sorted(name for name in host.environ if name.startswith("PYTHON"))),
        )

    step = "starting Python"
    try:
        for message in child.messages(deadline):
            if "failed" in message:
                return failed("raised", **message["failed"])
            if "torch" in message:
                known = {
                    name: value for name, value in message["torch"].items() if name in TorchRuntime.__struct_fields__
                }
                return msgspec.convert(
                    {"kind": TorchRuntime.kind(), "subject": subject, "source": source, **known}, TorchRuntime
                )
            step = "import torch"
    except Silence:
        waited = time.monotonic() - started
        return failed("timeout", f"{step} did not end in {waited:.1f} s", _innermost(child.printed()))
    waited = time.monotonic() - started
    printed = child.printed()
    if waited > watched - 0.1:
        # seen on 3.11: the look itself crashed an import that was merely slow, so this death says nothing
        return failed("timeout", f"{step} did not end in {watched:.1f} s", _innermost(printed))
    said = _RAISED.findall(printed)
    how = f"{step} {how_it_ended(child.exit_code())}" + (f": {said[-1]}" if said else "")
    return failed("died", how, _innermost(printed))


def _innermost(printed: str) -> str:
    """Where Python stood, from what faulthandler wrote: the innermost frame that is in a file."""
    thread = max(printed.find("Current thread 0x"), printed.rfind("Thread 0x"), 0)
    frame = _FRAME.search(printed, thread)
    return f"{frame[1]}:{frame[2]}" if frame else ""


def _converse(child: Child, runtime: TorchRuntime, cuda: _Cuda, trial: _Trial) -> TorchRuntime:
    """Ask both until each has answered or run out of time; the runtime with what the trial's store told about it."""
    if not runtime.distributed or not runtime.gloo:
        trial.done = True
    cuda.begin(child)
    while not (cuda.done and trial.done):
        if not trial.done and not trial.begun and (cuda.count is not None or cuda.done or not trial.deadline):
            trial.begin(child, cuda.count or 0)
        deadline = min((part.deadline for part in (cuda, trial) if not part.done), key=Deadline.remaining)
        try:
            message = child.receive(deadline)
        except Silence:
            for part in (cuda, trial):
                if not part.done and not part.deadline:
                    part.expire()
            continue
        if message is None:
            how = f"the worker {how_it_ended(child.exit_code())}"
            cuda.end(how)
            trial.end(how)
        elif "refused" in message:
            trial.refuse(str(message["refused"]))
        elif "rank" in message:
            trial.hear(message)
        elif "fork" in message:
            cuda.hear(message)
    return msgspec.structs.replace(runtime, libuv=trial.libuv)


class _Cuda:
    """What torch.cuda said. A build without CUDA and ROCm is not asked."""

    def __init__(self, host: Host, runtime: TorchRuntime) -> None:
        self._host = host
        self._source = f"torch.cuda of {host.python}"
        self._built = bool(runtime.cuda or runtime.hip)
        self._said: dict[str, Any] = {} if self._built else {"available": False, "device_count": 0, "init_error": ""}
        self._calling = "a fork of the worker"
        self._trouble: Literal["", "timeout", "crashed"] = ""
        self._reason = ""
        self.deadline = host.deadline
        self.done = not self._built

    @property
    def count(self) -> int | None:
        """The GPUs that torch can use; None before that is known."""
        if "available" not in self._said:
            return None
        return int(self._said["device_count"]) if self._said["available"] else 0

    def begin(self, child: Child) -> None:
        if not self.done:
            self.deadline = _inside(self._host, CUDA_SECONDS)
            self._started = time.monotonic()
            child.send({"do": "cuda"})

    def hear(self, message: Mapping[str, Any]) -> None:
        if "calling" in message:
            self._calling = str(message["calling"])
        elif "failed" in message or "died" in message:
            self.end(str(message.get("died") or message["failed"]["error"]))
        else:
            self._said.update(message)
            self.done = "init_error" in self._said

    def end(self, how: str) -> None:
        if not self.done:
            self.done, self._trouble, self._reason = True, "crashed", f"{self._calling}: {how}"

    def expire(self) -> None:
        waited = time.monotonic() - self._started
        self.done, self._trouble, self._reason = True, "timeout", f"{self._calling} gave no answer in {waited:.1f} s"

    def observation(self) -> Observation:
        if self._trouble and "available" not in self._said:
            return _absent(self._host, TorchCuda, self._trouble, self._reason)
        return TorchCuda(
            subject=Subject(host=self._host.name),
            source=self._source,
            built=self._built,
            available=self._said["available"],
            device_count=self._said["device_count"],
            error=self._reason or self._said.get("init_error", ""),
            names=tuple(self._said.get("names", ())),
            uuids=tuple(self._said.get("uuids", ())),
        )


class _TrialState(msgspec.Struct):
    stage: Stage = Stage.NOT_STARTED
    outcome: Literal["", "passed", "failed", "timeout"] = ""
    error: str = ""
    value_ok: bool | None = None
    seconds: float = 0.0
    address: str = ""


class _Trial:
    """Ranks of our own, and how far each came."""

    def __init__(self, host: Host, seconds: float, backend: Literal["gloo", "nccl"] = "gloo") -> None:
        self._host = host
        self._most_seconds = seconds
        self._backend = backend
        self._ranks: list[_TrialState] = []
        self._seconds = 0.0
        self._started = 0.0
        self._ended = ""
        self.deadline = _inside(host, 0.0 if host.options.nproc else COUNT_SECONDS)
        self.done = False
        self.libuv: bool | None = None

    @property
    def begun(self) -> bool:
        return bool(self._ranks)

    def begin(self, child: Child, gpus: int) -> None:
        # one rank would prove nothing about the way between ranks
        size = self._host.options.nproc or max(2, gpus)
        self._ranks = [_TrialState() for _ in range(size)]
        self.deadline = _inside(self._host, self._most_seconds + 0.1 * size)
        self._seconds = self.deadline.remaining()
        self._started = time.monotonic()
        # torch takes up to twice its own time-out to say what it waited for, and that should come first
        child.send({"do": "ranks", "world_size": size, "backend": self._backend, "seconds": 0.45 * self._seconds})

    def hear(self, message: Mapping[str, Any]) -> None:
        state = self._ranks[message["rank"]]
        state.stage = _STAGES.get(message.get("stage", ""), state.stage)
        if state.outcome:
            return
        if "value_ok" in message:
            state.value_ok = bool(message["value_ok"])
            state.outcome = "passed" if state.value_ok else "failed"
            state.error = "" if state.value_ok else "all_reduce returned wrong values"
            state.seconds, state.address = float(message["seconds"]), str(message["address"])
            self.libuv = message["libuv"] or None
        elif "failed" in message or "died" in message:
            state.error = str(message.get("died") or message["failed"]["error"])
            # a rank that waited in vain says so itself, and is not the one at fault
            state.outcome = "timeout" if _WAITED.search(state.error) else "failed"
            state.seconds = time.monotonic() - self._started
            self.libuv = False if NO_LIBUV in state.error else self.libuv
            self.deadline = self.deadline.within(GRACE_SECONDS)
        self.done = all(state.outcome for state in self._ranks)

    def end(self, how: str) -> None:
        for state in self._ranks:
            if not state.outcome:
                state.outcome, state.error = "failed", how
        self.done, self._ended = True, how

    def refuse(self, why: str) -> None:
        self._ranks, self.done, self._ended = [], True, why

    def expire(self) -> None:
        self.done = self.begun

    def observations(self) -> Iterator[Observation]:
        unfinished = [state for state in self._ranks if not state.outcome]
        one_failed = any(state.outcome == "failed" for state in self._ranks)
        if not self._ranks:
            yield _absent(self._host, TrialRank, "absent", self._ended or "this torch has no Gloo to start ranks with")
            return
        if unfinished and not one_failed and self._seconds < FEWEST_TRIAL_SECONDS:
            reason = f"only {self._seconds:.1f} s were left for the trial ranks, and they had not finished"
            yield _absent(self._host, TrialRank, "timeout", reason, "give it more time: --timeout 120")
            return
        for number, state in enumerate(self._ranks):
            yield TrialRank(
                subject=Subject(host=self._host.name),
                source=f"{len(self._ranks)} ranks started with {self._host.python}",
                rank=number,
                world_size=len(self._ranks),
                backend=self._backend,
                stage=state.stage,
                outcome=state.outcome or ("unfinished" if one_failed else "timeout"),
                value_ok=state.value_ok,
                seconds=state.seconds or time.monotonic() - self._started,
                error=state.error,
                interface=self._host.environ.get(f"{self._backend.upper()}_SOCKET_IFNAME", ""),
                address=state.address,
                given=self._seconds,
            )


def _inside(host: Host, seconds: float) -> Deadline:
    """That long, but ending before the host's deadline: an answer given too late is thrown away."""
    return Deadline(min(seconds, host.deadline.remaining() - 0.2))


def _absent(
    host: Host,
    kind: type[Fact],
    status: Literal["timeout", "crashed", "absent"],
    reason: str,
    how_to_get: str = "",
) -> Absent:
    return Absent(kind=kind.kind(), about=Subject(host=host.name), status=status, reason=reason, how_to_get=how_to_get)
