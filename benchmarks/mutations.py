"""Damages what is known of faults and healthy jobs, and counts verdicts that are wrong: `unknown` is allowed, certain is not.

    python benchmarks/mutations.py [--seeds 3] [--only NAME,...] [--facts FOLDER] [--cases FILE] [--json FILE] [-v]
    python benchmarks/mutations.py --record FOLDER [--only NAME,...]

Logs are those of tests/cases/logs; facts are what attaching to each live fault saw, which `--record` writes down (10 s
each) and `--facts` damages. Each is damaged in every way there is, with each seed, and judged again. What two jobs are
guilty of is right where they are mixed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT),
    str(ROOT / "checks"),
    str(ROOT / "tests"),
    str(ROOT / "tests" / "live"),
    str(ROOT / "benchmarks"),
]

import msgspec  # noqa: E402
from cases import told  # noqa: E402
from test_recorded_logs import LOADED, cases, expected_of, triage_of  # noqa: E402

from ddp_doctor import running_job, saved  # noqa: E402
from ddp_doctor.bundle import read_manifest  # noqa: E402
from ddp_doctor.examine import examine  # noqa: E402
from ddp_doctor.facts.job import Job, Process  # noqa: E402
from ddp_doctor.facts.report import Examined, ReportedRank  # noqa: E402
from ddp_doctor.model import Absent, Facts, Report, Severity  # noqa: E402

Logs = Mapping[str, str]
ANOTHER_SHELL = 10_000_000
"""Added to the PID of what started a job, so that it is no other job's."""
KEPT_FACTS = ROOT / "tests" / "cases" / "facts"


class Specimen(NamedTuple):
    """What is known of one job, as logs or as facts, and the ids that are right; none of a healthy one."""

    name: str
    right: frozenset[str]
    logs: Logs | None = None
    facts: Facts | None = None


class Outcome(NamedTuple):
    """What was said of a damaged specimen."""

    name: str
    damage: str
    seed: int
    right: tuple[str, ...]
    said: str
    confidence: str

    @property
    def wrong(self) -> bool:
        """Whether a cause was named that is not one of the job's."""
        return bool(self.confidence) and self.said not in self.right

    @property
    def wrong_and_certain(self) -> bool:
        """The one outcome that must not be."""
        return self.wrong and self.confidence == "certain"


# --- what happens to logs


def without_a_rank(logs: Logs, chance: random.Random) -> Logs:
    """One rank's file never arrived; in a file of several ranks, its lines."""
    if len(logs) > 1:
        lost = chance.choice(sorted(logs))
        return {name: text for name, text in logs.items() if name != lost}
    ((name, text),) = logs.items()
    marks = sorted(set(re.findall(r"\[rank\d+\]|(?<=:)\d+:\d+ \[\d+\] NCCL", text)))
    if not marks:
        return logs
    lost = chance.choice(marks)
    return {name: "".join(line for line in text.splitlines(keepends=True) if lost not in line)}


def without_lines(share: float) -> Callable[[Logs, random.Random], Logs]:
    """A log that lost lines here and there, as of a full disk or a sampled collector."""

    def damage(logs: Logs, chance: random.Random) -> Logs:
        return {
            name: "".join(line for line in text.splitlines(keepends=True) if chance.random() >= share)
            for name, text in logs.items()
        }

    return damage


def shuffled(logs: Logs, chance: random.Random) -> Logs:
    """Lines in any order, as of a collector that does not keep it."""
    mixed = {}
    for name, text in logs.items():
        lines = text.splitlines()
        chance.shuffle(lines)
        mixed[name] = "\n".join(lines) + "\n"
    return mixed


TIME = re.compile(r"\b(\d\d):(\d\d):(\d\d)(?=[.,\]\s])")


def other_clocks(logs: Logs, chance: random.Random) -> Logs:
    """The hosts' clocks are hours apart, and run backwards."""
    return {
        name: TIME.sub(lambda found: f"{chance.randrange(24):02}:{chance.randrange(60):02}:{found[3]}", text)
        for name, text in logs.items()
    }


def cut_end(logs: Logs, chance: random.Random) -> Logs:
    """Each ends in the middle of a line, as of a job that was killed."""
    return {name: text[: int(len(text) * chance.uniform(0.1, 0.95))] for name, text in logs.items()}


def cut_beginning(logs: Logs, chance: random.Random) -> Logs:
    """Only the last part of each, as `tail` shows it."""
    return {name: text[int(len(text) * chance.uniform(0.05, 0.9)) :] for name, text in logs.items()}


def in_one_file(logs: Logs, chance: random.Random) -> Logs:
    """All ranks print into one file, line by line in turn."""
    left = [text.splitlines() for text in logs.values() if text]
    lines = []
    while left:
        source = chance.choice(left)
        if source:
            lines.append(source.pop(0))
        else:
            left.remove(source)
    return {"job.log": "\n".join(lines) + "\n"}


PATH = re.compile(r"(?<![\w.:/])/(?:job|venv|usr|opt|__w)/[\w./+-]*")


def other_paths(logs: Logs, chance: random.Random) -> Logs:
    """Files that lie elsewhere, in folders with blanks, other alphabets and words like `nccl` or `error`."""
    prefix = chance.choice(
        ("/mnt/Daten von Jörg", "/home/проект/error", "/data/nccl timeout/rank0", "C:\\Users\\me\\ddp")
    )
    return {name: PATH.sub(lambda found: prefix + found[0], text) for name, text in logs.items()}


VERSION = re.compile(r"(?<![\w.])2\.(?:1[89]|2\d|3[0-4])\.\d+(?=\+cuda|[-\s]|$)", re.MULTILINE)


def other_versions(logs: Logs, chance: random.Random) -> Logs:
    """Another release of NCCL says the same, as it may."""
    to = chance.choice(("2.14.3", "2.22.3", "2.33.0", "3.0.1"))
    return {name: VERSION.sub(to, text) for name, text in logs.items()}


def prefixed(logs: Logs, chance: random.Random) -> Logs:
    """What schedulers and collectors put before each line."""
    styles = ("{number}: ", "2026-03-01T10:00:00.123456Z stdout F ", "[1,{number}]<stderr>: ", "(worker pid={number}) ")
    style = chance.choice(styles)
    return {
        name: "".join(style.format(number=number) + line for line in text.splitlines(keepends=True))
        for number, (name, text) in enumerate(logs.items())
    }


OF_LOGS: Mapping[str, Callable[[Logs, random.Random], Logs]] = {
    "a rank less": without_a_rank,
    "lines lost, 10 %": without_lines(0.1),
    "lines lost, 50 %": without_lines(0.5),
    "lines lost, 90 %": without_lines(0.9),
    "shuffled": shuffled,
    "other clocks": other_clocks,
    "cut at the end": cut_end,
    "cut at the beginning": cut_beginning,
    "in one file": in_one_file,
    "other paths": other_paths,
    "other versions": other_versions,
    "prefixed": prefixed,
}


def mixed_logs(one: Specimen, other: Specimen, chance: random.Random) -> Specimen:
    """Two jobs in one folder, or interleaved in one file."""
    assert one.logs is not None and other.logs is not None
    both = {
        **{f"a-{name}": text for name, text in one.logs.items()},
        **{f"b-{name}": text for name, text in other.logs.items()},
    }
    logs = in_one_file(both, chance) if chance.random() < 0.5 else both
    return Specimen(f"{one.name} + {other.name}", one.right | other.right, logs=logs)


# --- what happens to facts


def unseen_rank(facts: Facts, chance: random.Random) -> Facts:
    """One process of the job is on another host, or was not seen."""
    pids = sorted({fact.subject.pid for fact in facts if fact.kind() == "Stack" and fact.subject.pid is not None})
    if not pids:
        return facts
    lost = chance.choice(pids)
    return Facts(
        (fact for fact in facts if fact.subject.pid != lost),
        (absent for absent in facts.absents if absent.about.pid != lost),
        facts.looked_for,
    )


def denied_kind(facts: Facts, chance: random.Random) -> Facts:
    """Evidence of one kind could not be had."""
    kinds = sorted({fact.kind() for fact in facts if not isinstance(fact, Process)})
    if not kinds:
        return facts
    lost = chance.choice(kinds)
    subjects = {fact.subject for fact in facts if fact.kind() == lost}
    absents = [
        Absent(kind=lost, about=subject, status="denied", reason="denied") for subject in sorted(subjects, key=repr)
    ]
    return Facts((fact for fact in facts if fact.kind() != lost), (*facts.absents, *absents), facts.looked_for - {lost})


def denied_process(facts: Facts, chance: random.Random) -> Facts:
    """Of one process nothing but its entry in the process table could be had."""
    pids = sorted({fact.subject.pid for fact in facts if fact.kind() == "Stack" and fact.subject.pid is not None})
    if not pids:
        return facts
    lost = chance.choice(pids)
    gone = [fact for fact in facts if fact.subject.pid == lost and not isinstance(fact, Process)]
    absents = {
        (fact.kind(), fact.subject): Absent(kind=fact.kind(), about=fact.subject, status="denied", reason="denied")
        for fact in gone
    }
    left = (fact for fact in facts if fact.subject.pid != lost or isinstance(fact, Process))
    return Facts(left, (*facts.absents, *absents.values()), facts.looked_for)


def reordered(facts: Facts, chance: random.Random) -> Facts:
    """The same facts in another order, which means nothing."""
    order = list(facts)
    chance.shuffle(order)
    return Facts(order, facts.absents, facts.looked_for)


def rewritten(change: Callable[[str], str]) -> Callable[[Facts, random.Random], Facts]:
    """Facts with another text in place of what they say."""

    def damage(facts: Facts, chance: random.Random) -> Facts:
        return saved.from_lines(change(saved.to_lines(saved.to_tables(facts))))

    return damage


OF_FACTS: Mapping[str, Callable[[Facts, random.Random], Facts]] = {
    "a rank unseen": unseen_rank,
    "a kind denied": denied_kind,
    "a process denied": denied_process,
    "reordered": reordered,
    "other paths": rewritten(
        lambda text: re.sub(r'"/(?:work|job|root|home)/', '"/mnt/Daten von Jörg/nccl error/', text)
    ),
    "other versions": rewritten(lambda text: text.replace('"2.13.0', '"2.4.1').replace('"2.27.5', '"2.22.3')),
}


def mixed_facts(one: Specimen, other: Specimen) -> Specimen:
    """Two jobs seen at once, started from two shells: the halves of two that one shell starts are one to anybody."""
    assert one.facts is not None and other.facts is not None
    # what else ran on the node was seen twice
    seen = {(fact.kind(), fact.subject.process) for fact in one.facts if isinstance(fact, Process)}
    added = [fact for fact in other.facts if (fact.kind(), fact.subject.process) not in seen]
    own = {fact.subject.pid for fact in added}
    for place, fact in enumerate(added):
        if isinstance(fact, Process):
            above = tuple(
                pid if pid in own or pid <= 1 else pid + ANOTHER_SHELL for pid in (fact.parent, *fact.ancestors)
            )
            added[place] = msgspec.structs.replace(fact, parent=above[0], ancestors=above[1:])
    facts = one.facts.plus(added, other.facts.absents, other.facts.looked_for)
    return Specimen(f"{one.name} + {other.name}", one.right | other.right, facts=facts)


# --- judging


def judged(specimen: Specimen) -> Report:
    """The report on a specimen, as triage or attach makes it."""
    if specimen.logs is not None:
        return triage_of(specimen.logs)
    return examine(
        "attach",
        LOADED,
        known=specimen.facts,
        rows=running_job.rows,
        waiting=lambda facts: not facts[Job] or any(job.hung is not False for job in facts[Job]),
        all_here=running_job.all_here,
    )


def outcome(specimen: Specimen, damage: str, seed: int) -> Outcome:
    """What is said of a damaged specimen."""
    report = judged(specimen)
    verdict = report.verdict
    said, confidence = verdict.finding, verdict.confidence
    if not specimen.right:
        # a healthy job may be told that a rank is late; an error it must not get
        errors = [each for each in report.findings if each.severity is Severity.ERROR]
        said = errors[0].id if errors else None
        confidence = min((each.confidence for each in errors), key=lambda each: each.rank, default=None)
    return Outcome(
        name=specimen.name,
        damage=damage,
        seed=seed,
        right=tuple(sorted(specimen.right)),
        said=said or verdict.status,
        confidence=confidence.value if confidence and said else "",
    )


def shaken(specimen: Specimen, damage: str, seed: int) -> Specimen:
    """The specimen with this damage; the same one for the same seed."""
    # not hash(), which differs from run to run
    chance = random.Random(f"{specimen.name} {damage} {seed}")
    if specimen.logs is not None:
        return specimen._replace(logs=OF_LOGS[damage](specimen.logs, chance))
    assert specimen.facts is not None
    # who is not seen is missing, as far as anybody can tell
    right = specimen.right | {"DDP101"} if specimen.right and damage == "a rank unseen" else specimen.right
    return specimen._replace(right=right, facts=OF_FACTS[damage](specimen.facts, chance))


def mixed(specimen: Specimen, partners: Sequence[Specimen], seed: int) -> Specimen:
    """The specimen together with another one of its sort."""
    chance = random.Random(f"{specimen.name} mixed {seed}")
    other = chance.choice(partners)
    return mixed_logs(specimen, other, chance) if specimen.logs is not None else mixed_facts(specimen, other)


def outcomes(specimens: Sequence[Specimen], seeds: Iterable[int], among: Sequence[Specimen] = ()) -> Iterator[Outcome]:
    """Each specimen as it is, damaged in each way with each seed, and mixed with one of `among`, or of their own."""
    for specimen in specimens:
        yield outcome(specimen, "none", 0)
        of_logs = specimen.logs is not None
        partners = [each for each in among or specimens if (each.logs is not None) == of_logs and each is not specimen]
        for seed in seeds:
            for damage in OF_LOGS if of_logs else OF_FACTS:
                yield outcome(shaken(specimen, damage, seed), damage, seed)
            if partners:
                yield outcome(mixed(specimen, partners, seed), "mixed", seed)


def logs_of(folder: Path) -> Logs:
    """Name -> text of the logs in a folder."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.log"))}


def of_logs() -> list[Specimen]:
    """All recorded logs: of live faults, of faults of the real libnccl, and of healthy jobs."""
    found = [
        Specimen(path.name, frozenset(expected_of(path)[0]), logs_of(path))
        for path in (*cases("live"), *cases("faulty"))
    ]
    return found + [Specimen(path.name, frozenset(), logs_of(path)) for path in cases("healthy")]


def of_cases(path: Path) -> list[Specimen]:
    """The public reports of a file as benchmarks/cases.py reads it, those of which the text tells."""
    return [
        Specimen(
            case["id"],
            frozenset((case["finding"], *case["also_accepted"])),
            {"report.log": "\n".join(case["evidence"]) + "\n"},
        )
        for case in told(path)
    ]


def of_facts(folder: Path) -> list[Specimen]:
    """What was recorded of live faults and controls: `<fault>.jsonl`."""
    from faults import CONTROLS, FAULTS

    right = {fault.name: frozenset(fault.expected) for fault in (*FAULTS, *CONTROLS)}
    found = []
    for file in sorted(folder.glob("*.jsonl")):
        facts = saved.from_lines(file.read_text(encoding="utf-8"))
        raw = Facts(
            (fact for fact in facts if not isinstance(fact, (Examined, ReportedRank))), facts.absents, facts.looked_for
        )
        found.append(Specimen(file.stem, right[file.stem], facts=raw))
    return found


def record(folder: Path, only: set[str]) -> None:
    """Start each live fault and control, and keep the facts that attaching to it sees, redacted."""
    from fakes.nccl import folder_of_versions
    from faults import CONTROLS, FAULTS, a_member, running
    from live_faults import command

    folder.mkdir(parents=True, exist_ok=True)
    for fault in (*FAULTS, *CONTROLS):
        if fault.why_not() or (only and fault.name not in only) or (folder / f"{fault.name}.jsonl").exists():
            continue
        try:
            with tempfile.TemporaryDirectory() as scratch, running(fault) as started:
                bundle = Path(scratch, "job.bundle")
                done = command("bundle", "-o", str(bundle), "--from", str(a_member(fault, started)))
                if not bundle.exists():
                    print(fault.name, "not recorded:", done.stderr[-300:], flush=True)
                    continue
                text = read_manifest(bundle)[1]
                places = {
                    ROOT: "/job",
                    sys.prefix: "/venv",
                    folder_of_versions(): "/nccl",
                    sys.base_prefix: "/opt/python",
                }
                for place, name in (*places.items(), (Path.home(), "/home/me")):
                    text = text.replace(str(place), name)
                (folder / f"{fault.name}.jsonl").write_text(text, encoding="utf-8")
        except (TimeoutError, AssertionError) as error:
            print(fault.name, "not recorded:", error, flush=True)


def summary(found: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Damage -> how often the right cause, none, a wrong likely one, a wrong certain one was named."""
    table: dict[str, Counter[str]] = {}
    for each in found:
        row = table.setdefault(each.damage, Counter())
        row["judged"] += 1
        row["right"] += bool(each.confidence) and not each.wrong
        row["abstained"] += not each.confidence
        row["wrong"] += each.wrong
        row["wrong and certain"] += each.wrong_and_certain
    return {damage: dict(row) for damage, row in table.items()}


def main() -> int:
    """Print the table and each wrong verdict; 1 if one of them is certain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--facts", type=Path, default=KEPT_FACTS)
    parser.add_argument(
        "--cases", type=Path, help="public reports to damage as well, as benchmarks/cases.py reads them"
    )
    parser.add_argument("--record", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="also each wrong verdict that is likely")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    if options.record:
        record(options.record, only)
        return 0
    everything = [*of_logs(), *(of_cases(options.cases) if options.cases else ()), *of_facts(options.facts)]
    specimens = [each for each in everything if not only or each.name in only]
    found = list(outcomes(specimens, range(options.seeds)))
    for each in found:
        if each.wrong_and_certain or (options.verbose and each.wrong):
            print(
                each.name,
                f"{each.damage} #{each.seed}",
                "|".join(each.right) or "healthy",
                each.said,
                each.confidence,
                sep=" | ",
            )
    rows = summary(found)
    print(f"{'damage':24}{'judged':>8}{'right':>8}{'abstained':>11}{'wrong':>8}{'wrong and certain':>20}")
    for damage, row in rows.items():
        print(
            f"{damage:24}{row['judged']:>8}{row['right']:>8}{row['abstained']:>11}"
            f"{row['wrong']:>8}{row['wrong and certain']:>20}"
        )
    if options.json:
        options.json.write_text(json.dumps({"mutations": rows}, indent=1) + "\n", encoding="utf-8")
    return 1 if any(each.wrong_and_certain for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
