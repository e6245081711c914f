"""The hosts that were named, and how commands get to them: by OpenSSH, or as steps of a Slurm job."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence

import msgspec

from ddp_doctor.cli.bounded import hear
from ddp_doctor.rank.node_list import expanded

CONNECT_SECONDS = 10.0
MOST_HOSTS = 10_000
NOT_SET_UP = ("Could not establish a configuration source", "slurm.conf", "fetch_config")
MOST_BYTES = 64 << 20
"""What is read of one host; the facts of a host with hundreds of ranks are a few MiB."""


class Unreachable(Exception):
    """The hosts of a job could not be asked for; the text says why, and what to type."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How commands get to one host, and what is asked there."""

    host: str
    argv: tuple[str, ...]
    name: str
    options: tuple[str, ...] = ()


class Misspelt(ValueError):
    """What was typed names no hosts or no job; the text says why."""


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or one step of it, as it was typed."""

    id: str
    step: str = ""


def named_hosts(text: str) -> list[str]:
    """Names between commas, and Slurm's notation, `node[1-3]`. Raises Misspelt."""
    if not text.strip(" ,"):
        raise Misspelt("no host is named: type names with commas between them, as in --hosts gpu-17,gpu-18")
    numbers = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
    outside = re.sub(rf"\[{numbers}(?:,{numbers})*\]", "", text)
    inside = re.findall(r"([0-9]{1,9})-([0-9]{1,9})(?=[^\[]*\])", text)
    if "[" in outside or "]" in outside or any(int(first) > int(last) for first, last in inside):
        raise Misspelt(
            f"{text!r} is no list of hosts: numbers stand in brackets, the smaller one first, as in --hosts 'node[1-3,7]'"
        )
    names = [name.strip() for name in itertools.islice(expanded(text), MOST_HOSTS + 1)]
    if len(names) > MOST_HOSTS:
        raise Misspelt(f"{text!r} names more than {MOST_HOSTS} hosts")
    for name in names:
        if name and not all(character.isprintable() and not character.isspace() for character in name):
            raise Misspelt(f"{name!r} is no name of a host: type names with commas between them")
    return list(dict.fromkeys(name for name in names if name))


def named_job(text: str) -> SlurmJob:
    """A Slurm job's id, with the task of an array, the component of a heterogeneous job, a step. Raises Misspelt."""
    found = re.fullmatch(r"([0-9]+(?:_[0-9]+)?(?:\+[0-9]+)?)(?:\.([0-9]+))?", text.strip())
    if found is None:
        said = f"{text!r} is no id of a Slurm job" if text.strip() else "no job is named"
        raise Misspelt(f"{said}: digits, as in 4711, 4711_3 (array), 4711+1 (heterogeneous) or 4711.0 (step)")
    return SlurmJob(id=found[1], step=found[2] or "")


def over_ssh(hosts: Sequence[str], seconds: float) -> list[Way]:
    """A login on each host with OpenSSH, which asks nobody for a password."""
    connect = max(1, int(min(CONNECT_SECONDS, seconds / 2)))
    options = ("-T", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={connect}", "-o", "LogLevel=ERROR")
    return [Way(host=host, argv=("ssh", *options, "--", host), name="ssh") for host in hosts]


def over_slurm(job: SlurmJob, seconds: float) -> list[Way]:
    """A step beside those of a running job, on each of its nodes. Raises Unreachable."""
    listed = _lines(("squeue", "--noheader", f"--jobs={job.id}", "--states=all", "--format=%A %i %T %N"), seconds)
    jobs = [words for line in listed if len(words := line.split()) >= 3]
    running = [words for words in jobs if words[2] == "RUNNING" and len(words) == 4]
    if not running:
        state = jobs[0][2].lower() if jobs else "not known"
        raise Unreachable(f"it is {state}; `squeue --me` lists those that run")
    if len(running) > 1:
        raise Unreachable(f"{len(running)} jobs run under it, {' '.join(each[1] for each in running[:8])}: name one")
    # an element of an array has a number of its own, which is what its processes and srun go by
    number, _, _, nodes = running[0]
    step = ("srun", "--overlap", f"--jobid={number}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--input=0")
    quiet = ("--quiet", "--kill-on-bad-exit=0", "--unbuffered")
    only = f"--slurm-job={number}" + (f".{job.step}" if job.step else "")
    return [
        Way(host=node, argv=(*step, *quiet, f"--nodelist={node}"), name="srun", options=(only,))
        for node in _lines(("scontrol", "show", "hostnames", nodes), seconds)
    ]


def _lines(argv: Sequence[str], seconds: float) -> list[str]:
    try:
        heard = hear(argv, time.monotonic() + seconds, MOST_BYTES)
    except OSError as error:
        raise Unreachable(f"{argv[0]}: {error.strerror}; type this where Slurm's commands are") from None
    if heard.code is None:
        said = "wrote more than a list of jobs" if heard.flood else f"gave no answer in {seconds:.0f} s"
        raise Unreachable(f"{argv[0]} {said}")
    if heard.code:
        said = re.sub(rf"^(?:{re.escape(argv[0])}: )?(?:(?:error|fatal): )?", "", last_line(heard.complaints))
        if any(sign in heard.complaints for sign in NOT_SET_UP):
            raise Unreachable(
                f"Slurm is not set up here ({said}); type this where `squeue` works, or name the hosts with --hosts"
            )
        raise Unreachable(f"{argv[0]}: {said or f'exit code {heard.code}'}")
    return heard.said.split("\n")[:-1]


def last_line(text: str) -> str:
    """What a command that failed said last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # srun's own summary stands after what the task said
    told = [line for line in lines if not line.startswith("srun: error: ") or "task" not in line]
    return (told or lines or [""])[-1]
