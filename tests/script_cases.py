"""What tests of script reading share: a script in, findings out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec

from ddp_doctor.interpret.script import script_facts
from ddp_doctor.judge import Judgement, judge
from ddp_doctor.model import Facts, Finding
from ddp_doctor.packs import load_packs

CASES = Path(__file__).parent / "cases" / "scripts"
CHECKS = load_packs(third_party=False).checks()
HEADER = re.compile(r"# expect: (DDP\d{3}) (error|warning|note) line (\d+)(?: of (\S+))?$")


class Expected(msgspec.Struct, frozen=True):
    """What the first line of a faulty script says about it."""

    id: str
    severity: str
    source: str


def expected(script: Path) -> Expected:
    match = HEADER.match(script.read_text(encoding="utf-8").splitlines()[0])
    assert match, f"{script.name} begins with no `# expect:` line"
    id, severity, line, other = match.groups()
    return Expected(id, severity, f"{other or script.name}:{line}")


def read(script: Path) -> Facts:
    """The facts of a script, with the files beside it at hand, paths relative to its folder."""

    def load(name: str) -> str | None:
        beside = script.parent / name
        return beside.read_text(encoding="utf-8") if beside.is_file() else None

    return script_facts(script.name, script.read_bytes(), load)


def judged(facts: Facts) -> tuple[Judgement, ...]:
    judgements = judge(CHECKS, facts)
    assert [judgement.outcome for judgement in judgements if judgement.outcome.status == "crashed"] == []
    return judgements


def findings(script: Path) -> list[Finding]:
    return [finding for judgement in judged(read(script)) for finding in judgement.findings]


def lint_text(text: str, path: str = "train.py") -> Facts:
    return script_facts(path, text.encode())


def apply(diff: str, folder: Path) -> None:
    """Apply a printed diff as a person would: paste it into patch."""
    done = subprocess.run(
        ["patch", "-p0", "--no-backup-if-mismatch", "--fuzz=0"], input=diff, text=True, cwd=folder, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
