"""`attach` on several hosts: each looks at its own processes, and one verdict is drawn here from what all of them saw."""

from __future__ import annotations

import os
import queue
import shlex
import sys
import threading
import time
from collections.abc import Sequence

import msgspec

from ddp_doctor.cli.bounded import hear
from ddp_doctor.cli.output import Output
from ddp_doctor.cli.signals import Ending
from ddp_doctor.cli.ways import MOST_BYTES, Way, last_line, named_job
from ddp_doctor.examine import Selection, examine
from ddp_doctor.facts.job import Job, JobRank, Process
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, ProbeRun, ProbeStatus, Report, Subject, Target
from ddp_doctor.packs import load_packs
from ddp_doctor.running_job import rows, target

AT_ONCE = 32
QUOTED = 80
NAMED = 8
NO_ANSWER = "no answer in"
KILL_SECONDS = 1.5
RESERVE_SECONDS = 2.0
"""What stays of the whole time for the verdict."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one host: its facts, or why there are none."""

    way: Way
    facts: Facts | None = None
    reason: str = ""
    ms: int = 0


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
    while asked.waiting and asked.seconds_left and not ending.how:
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
        status: ProbeStatus = (
            "ok" if each.facts is not None else "timeout" if each.reason.startswith(NO_ANSWER) else "absent"
        )
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
    report = msgspec.structs.replace(report, probes=tuple(runs))
    return report if any(each.facts is not None for each in told) else _nobody_looked(report, told)


def _nobody_looked(report: Report, told: Sequence[Told]) -> Report:
    """The report names the hosts and the reasons itself: what was said beside it need not be where it is read."""
    hosts_of: dict[str, list[str]] = {}
    for each in told:
        hosts_of.setdefault(each.reason, []).append(each.way.host)
    parts = []
    for reason, hosts in hosts_of.items():
        more = f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else ""
        were = "was" if len(hosts) == 1 else "were"
        parts.append(f"{', '.join(hosts[:NAMED])}{more} {were} not looked at: {reason}")
    return msgspec.structs.replace(
        report,
        target=Target(hosts=tuple(each.way.host.rpartition("@")[2] for each in told)),
        verdict=msgspec.structs.replace(report.verdict, summary="; ".join(parts)),
    )


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
        self._started: dict[str, float] = {}
        self._over = threading.Event()
        self._ways = ways
        self._next: queue.SimpleQueue[Way] = queue.SimpleQueue()
        for way in ways:
            self._next.put(way)
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(min(AT_ONCE, len(ways)))]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> list[Way]:
        return [way for way in self._ways if way.host not in self._told]

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def join(self, seconds: float) -> None:
        give_up = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    def end(self) -> None:
        """Kill what still runs."""
        self._over.set()
        self.join(KILL_SECONDS)

    def told(self, way: Way, interrupted: str) -> Told:
        told = self._told.get(way.host)
        if told is not None and not (interrupted and told.facts is None and told.reason.startswith(NO_ANSWER)):
            return told
        return Told(
            way=way, reason=interrupted or (f"{NO_ANSWER} time" if way.host in self._started else "no time was left")
        )

    def _ask(self) -> None:
        while not self._over.is_set() and self.seconds_left:
            try:
                way = self._next.get_nowait()
            except queue.Empty:
                return
            self._started[way.host] = started = time.monotonic()
            told = self._answer(way, started)
            self._told[way.host] = msgspec.structs.replace(told, ms=round(1000 * (time.monotonic() - started)))

    def _answer(self, way: Way, started: float) -> Told:
        from ddp_doctor import saved

        command = _command([*self._options, *way.options])
        argv = [*way.argv, command] if way.name == "ssh" else [*way.argv, "sh", "-c", command]
        # what runs there ends once its standard input does, however this process ends
        reading, held = os.pipe()
        try:
            begins = saved.BEGINS.encode()
            heard = hear(argv, self._end, MOST_BYTES, begins=begins, stdin=reading, over=self._over.is_set)
        except OSError as error:
            return Told(way=way, reason=f"{way.argv[0]}: {error.strerror}")
        finally:
            os.close(reading)
            os.close(held)
        if heard.flood:
            return Told(way=way, reason=f"it said more than {MOST_BYTES >> 20} MiB, which is no report")
        if heard.code is None:
            return Told(way=way, reason=f"{NO_ANSWER} in {time.monotonic() - started:.0f} s")
        return _understood(way, heard.said, heard.complaints, heard.code)


def _understood(way: Way, said: str, complaints: str, code: int) -> Told:
    from ddp_doctor import saved

    # a login script may print something before
    start = said.find(saved.BEGINS)
    if start >= 0 and code == 0:
        try:
            return Told(way=way, facts=saved.from_lines(said[start:]))
        except ValueError as error:
            return Told(way=way, reason=f"its facts cannot be read: {error}")
    last = last_line(complaints)
    if "No module named ddp_doctor" in complaints:
        return Told(way=way, reason=f"ddp-doctor is not installed there: {last}")
    if "No such command" in complaints:
        return Told(way=way, reason="ddp-doctor there is another version")
    if said.strip() and (code == 0 or not last):
        return Told(
            way=way, reason=f"{way.name} ended with exit code {code}, and what it said is no report: {_quoted(said)}"
        )
    return Told(way=way, reason=last or f"{way.name} ended with exit code {code} and said nothing")


def _quoted(text: str) -> str:
    """The beginning of a text as one line, without what no terminal should get."""
    line = " ".join(text[: 100 * QUOTED].split())
    shown = "".join(
        character for character in line if character.isprintable() and character != "\N{REPLACEMENT CHARACTER}"
    )
    return f"'{shown[:QUOTED]}'" if shown.strip() else "nothing in it is printable"


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
        job = named_job(slurm_job)
        only = (
            {"SLURM_JOB_ID": job.id}
            | ({"SLURM_STEP_ID": job.step} if job.step else {})
            | ({"SLURMD_NODENAME": node} if node else {})
        )
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
