"""Which interpreter is examined, and where it would import torch from; torch itself is not imported."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

CHOICE_SECONDS = 6.0
CANDIDATE_SECONDS = 2.0
_LOOK = (
    "import sys; sys.path = [entry for entry in sys.path if entry]; import importlib.util, json;"
    " spec = importlib.util.find_spec('torch');"
    " print(); print(json.dumps({'python': sys.executable, 'torch': bool(spec and spec.origin)}))"
)


class NoInterpreter(ValueError):
    """What `--python` names is not a Python interpreter."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The interpreter whose torch is examined, why this one, and what was found wrong with those tried before it."""

    python: str
    why: str
    passed_over: tuple[str, ...] = ()


def choose_python(environ: Mapping[str, str], option: str | None = None, *, seconds: float = CHOICE_SECONDS) -> Choice:
    """`option` if given, else the first that has torch: the current interpreter, $VIRTUAL_ENV, $CONDA_PREFIX, PATH.

    If none has torch it is the current one. Takes at most `seconds`. Raises NoInterpreter where `option` cannot be
    an interpreter; one that gives no answer in time is chosen all the same, since that is something to report.
    """
    host = Host(seconds, probe_seconds=CANDIDATE_SECONDS, environ=environ)
    if option is not None:
        found, trouble = _look(host, option, seconds)
        if not found and not trouble.startswith("no answer"):
            raise NoInterpreter(f"--python {option}: {trouble}")
        # a path stays as it was given: behind it may be a wrapper that sets up the environment
        path = os.path.abspath(option) if os.sep in option else found.get("python") or option
        return Choice(python=path, why="--python", passed_over=(trouble,) if trouble else ())
    current = sys.executable or "python3"
    if _has_torch_here():
        return Choice(python=current, why="it runs ddp-doctor and has torch")
    passed_over = [f"{current}, which runs ddp-doctor, has no torch"]
    for candidate, why in _candidates(environ):
        found, trouble = _look(host, candidate, CANDIDATE_SECONDS)
        if found.get("torch"):
            return Choice(python=found["python"] or candidate, why=why, passed_over=tuple(passed_over))
        passed_over.append(f"{candidate} ({why}): {trouble or 'has no torch'}")
    return Choice(
        python=current, why="it runs ddp-doctor; none of those tried has torch", passed_over=tuple(passed_over)
    )


def _has_torch_here() -> bool:
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            yield f"{environ[variable].rstrip('/')}/bin/python", f"${variable}"
    for name in ("python", "python3"):
        yield name, "on PATH"


def _look(host: Host, python: str, seconds: float) -> tuple[dict[str, str], str]:
    """What an interpreter says about itself, or in words why it does not.

    Started by a worker of ours, since even the exec of a path on a dead file system can block.
    """
    answer = host.run([python, "-c", _LOOK], seconds=seconds)
    if answer.status == "absent":
        return {}, answer.reason.removeprefix(f"{python}: ")
    if answer.status == "timeout":
        return {}, answer.reason
    for line in reversed(answer.printed.splitlines()):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "torch" in said:
            return said, ""
    last = answer.printed.strip().rpartition("\n")[2][:200]
    return {}, f"is no Python interpreter that works: exit code {answer.code}" + (f", {last!r}" if last else "")


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """Ask the examined interpreter where torch is."""
    subject = Subject(host=host.name)
    answer = host.ask("find_torch", python=[host.python])
    if not answer.messages:
        yield Absent(
            kind=TorchInstall.kind(),
            about=subject,
            status="crashed" if answer.status == "ok" else answer.status,
            reason=f"{host.python}: {answer.reason or 'said nothing'}",
            how_to_get="name the interpreter that trains: ddp-doctor run --python PATH",
        )
        return
    known = {name: value for name, value in answer.first.items() if name in TorchInstall.__struct_fields__}
    yield msgspec.convert(
        {"kind": TorchInstall.kind(), "subject": subject, "source": host.python, "python": host.python, **known},
        TorchInstall,
    )


PROBES = (Probe(name="torch-install", gives=(TorchInstall,), take=take),)
