"""`attach` on several hosts: each looks at its own processes, and one verdict is drawn here from what all of them saw."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import msgspec

from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import Ending
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.job import Job, JobRank, Process
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, ProbeRun, ProbeStatus, Report, Subject
from ddp_doctor.packs import load_packs
from ddp_doctor.running_job import rows, target

AT_ONCE = 32
CONNECT_SECONDS = 10.0
GOODBYE_SECONDS = 0.5
RESERVE_SECONDS = 2.0
"""What stays of the whole time for the verdict."""


class Unreachable(Exception):
    """The hosts of a job could not be asked for; the text says why, and what to type."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How commands get to one host, and what is asked there."""

    host: str
    argv: tuple[str, ...]
    name: str
    options: tuple[str, ...] = ()


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one host: its facts, or why there are none."""

    way: Way
    facts: Facts | None = None
    reason: str = ""
    ms: int = 0


def over_ssh(hosts: Sequence[str], seconds: float) -> list[Way]:
    """A login on each host with OpenSSH, which asks nobody for a password."""
    connect = max(1, int(min(CONNECT_SECONDS, seconds / 2)))
    options = ("-T", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={connect}", "-o", "LogLevel=ERROR")
    return [Way(host=host, argv=("ssh", *options, "--", host), name="ssh") for host in dict.fromkeys(hosts)]


def over_slurm(job: str, seconds: float) -> list[Way]:
    """A step beside those of a running job, on each of its nodes. Raises Unreachable."""
    listed = _lines(("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%T %N"), seconds)
    state, _, nodes = (listed[0] if listed else "").partition(" ")
    if state != "RUNNING":
        raise Unreachable(f"it is {state.lower() or 'not known'}; `squeue --me` lists those that run")
    step = ("srun", "--overlap", f"--jobid={job}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--input=0")
    quiet = ("--quiet", "--kill-on-bad-exit=0", "--unbuffered")
    return [
        Way(host=node, argv=(*step, *quiet, f"--nodelist={node}"), name="srun", options=(f"--slurm-job={job}",))
        for node in _lines(("scontrol", "show", "hostnames", nodes), seconds)
    ]


def _lines(argv: Sequence[str], seconds: float) -> list[str]:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{argv[0]} gave no answer in {seconds:.0f} s") from None
    except OSError as error:
        raise Unreachable(f"{argv[0]}: {error.strerror}; type this where Slurm's commands are") from None
    if done.returncode:
        raise Unreachable(f"{argv[0]}: {_last_line(done.stderr) or f'exit code {done.returncode}'}")
    return done.stdout.split("\n")[:-1]


def examine_hosts(
    out: Output,
    ways: Sequence[Way],
    selection: Selection | None,
    timeout: float,
    probe_timeout: float,
    *,
    stacks: bool,
    native: bool,
) -> Report:
    """Every rank of every job on these hosts, as one job where they are one."""
    ending = Ending()
    seconds = max(1.0, timeout - (time.monotonic() - out.started) - RESERVE_SECONDS)
    options = [f"--timeout={max(1.0, seconds - 1):.1f}", f"--probe-timeout={probe_timeout:g}"]
    options += ["--no-stacks"] if not stacks else ["--native"] if native else []
    asked = _Asked(ways, options, seconds)
    loaded = load_packs()
    while asked.waiting and not ending.how:
        asked.join(0.2)
        out.waiting(tuple(each.host for each in asked.waiting))
    asked.end()
    told = [asked.told(way, ending.how) for way in ways]
    facts, absents, looked_for = [], [], set[str]()
    runs = []
    for each in told:
        host = each.way.host
        if each.facts is None:
            out.say(f"{host} was not looked at: {each.reason}")
            how = f"on {host}: ddp-doctor attach --all"
            absents += [
                Absent(kind=kind.kind(), about=Subject(host=host), reason=f"{host}: {each.reason}", how_to_get=how)
                for kind in (Process, JobRank)
            ]
        else:
            facts += list(each.facts)
            absents += list(each.facts.absents)
            looked_for |= each.facts.looked_for
        status: ProbeStatus = "ok" if each.facts is not None else "timeout" if "no answer" in each.reason else "absent"
        runs.append(ProbeRun(name=f"{each.way.name} {host}", status=status, ms=each.ms, reason=each.reason))
    report = examine(
        "attach",
        loaded,
        known=Facts(facts, absents, looked_for),
        selection=selection,
        describe=target,
        rows=rows,
        examined=lambda facts: bool(facts[JobRank]),
        waiting=lambda facts: not facts[Job] or any(job.hung is not False for job in facts[Job]),
        all_here=lambda facts: all(each.facts is not None for each in told),
        started=out.started,
        keep=out.keep,
        interrupted=ending.how,
    )
    ending.no_more()
    return msgspec.structs.replace(report, probes=tuple(runs))


def _command(options: Sequence[str]) -> str:
    """For a shell there: this interpreter where it exists, as on shared file systems, else the one on PATH."""
    arguments = shlex.join(["-m", "ddp_doctor", "observe", "--until-eof", *options])
    here = shlex.quote(sys.executable or "python3")
    return f'p={here}; [ -x "$p" ] || p=python3; exec "$p" {arguments}'


class _Asked:
    """The commands on all hosts, some of them at once, each ended at the common deadline."""

    def __init__(self, ways: Sequence[Way], options: Sequence[str], seconds: float) -> None:
        self._options = options
        self._end = time.monotonic() + seconds
        self._told: dict[str, Told] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._room = threading.Semaphore(AT_ONCE)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(way,), daemon=True) for way in ways]
        self._ways = {thread.name: way for thread, way in zip(self._threads, ways, strict=True)}
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> list[Way]:
        return [self._ways[thread.name] for thread in self._threads if thread.is_alive()]

    def join(self, seconds: float) -> None:
        give_up = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    def end(self) -> None:
        """Kill what still runs."""
        self._over.set()
        for process in list(self._running.values()):
            _kill(process)
        self.join(1.0)

    def told(self, way: Way, interrupted: str) -> Told:
        return self._told.get(way.host) or Told(way=way, reason=interrupted or "no answer in time")

    def _ask(self, way: Way) -> None:
        started = time.monotonic()
        with self._room:
            told = Told(way=way, reason="no time was left") if self._over.is_set() else self._answer(way, started)
        self._told[way.host] = msgspec.structs.replace(told, ms=round(1000 * (time.monotonic() - started)))

    def _answer(self, way: Way, started: float) -> Told:
        command = _command([*self._options, *way.options])
        argv = [*way.argv, command] if way.name == "ssh" else [*way.argv, "sh", "-c", command]
        # what runs there ends once its standard input does, however this process ends
        reading, held = os.pipe()
        try:
            process = subprocess.Popen(
                argv, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(held)
            return Told(way=way, reason=f"{way.argv[0]}: {error.strerror}")
        finally:
            os.close(reading)
        self._running[way.host] = process
        try:
            said, complaints = process.communicate(timeout=max(0.1, self._end - time.monotonic()))
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            return Told(way=way, reason=f"no answer in {time.monotonic() - started:.0f} s")
        finally:
            del self._running[way.host]
            os.close(held)
        return _understood(way, said, complaints, process.returncode)


def _understood(way: Way, said: str, complaints: str, code: int) -> Told:
    from ddp_doctor import saved

    # a login script may print something before
    start = said.find(f'{{"schema":"{saved.SCHEMA}"')
    if start >= 0 and code == 0:
        try:
            return Told(way=way, facts=saved.from_lines(said[start:]))
        except ValueError as error:
            return Told(way=way, reason=f"its facts cannot be read: {error}")
    last = _last_line(complaints)
    if "No module named ddp_doctor" in complaints:
        return Told(way=way, reason=f"ddp-doctor is not installed there: {last}")
    if "No such command" in complaints:
        return Told(way=way, reason="ddp-doctor there is another version")
    return Told(way=way, reason=last or f"{way.name} ended with exit code {code} and said nothing")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # srun's own summary stands after what the task said
    told = [line for line in lines if not line.startswith("srun: error: ") or "task" not in line]
    return (told or lines or [""])[-1]


def _kill(process: subprocess.Popen[str]) -> None:
    """End it so that it can end its other half, and soon in any case."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GOODBYE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def observe_here(
    timeout: float, probe_timeout: float, slurm_job: str | None, *, stacks: bool, native: bool, until_eof: bool
) -> None:
    """Write what the processes of all jobs of this node show, or those of one Slurm job, as lines of facts."""
    from ddp_doctor import saved
    from ddp_doctor.cli.signals import interrupts_end
    from ddp_doctor.examine import observe
    from ddp_doctor.probes.job import job_probes

    host = interrupts_end(Host(timeout, probe_seconds=probe_timeout))
    if until_eof:
        threading.Thread(target=_until_eof, args=(host,), daemon=True).start()
    loaded = load_packs()
    only = {}
    if slurm_job is not None:
        # several nodes may be one machine, where each runs a slurmd of its own
        node = os.environ.get("SLURMD_NODENAME")
        only = {"SLURM_JOB_ID": slurm_job} | ({"SLURMD_NODENAME": node} if node else {})
    probes = job_probes((), every=True, stacks=stacks, native=native, signatures=loaded.signatures, only=only)
    collected = observe(loaded, host, probes, None)
    host.close()
    sys.stdout.write(saved.to_lines(saved.to_tables(collected.facts)))


def _until_eof(host: Host) -> None:
    """End the examination with whoever asked for it."""
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    host.interrupt("terminated")
