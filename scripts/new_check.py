"""Drafts a check, its page and its test: `python scripts/new_check.py stray-traffic DDP307 --area network --title "..."`.

The three files lie where they belong, which is all the registration there is; an id that is new goes into the table of
ids. Each place that needs a thought says DRAFT, and while one does, the drafted test and the meta-tests fail.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AREAS = ("launch", "rendezvous", "network", "gpu", "software", "program")
PACK = Path("checks", "ddp_doctor_checks")
IDS = PACK / "ids.toml"

MODULE = '''\
"""{id}: DRAFT: in one sentence, what is wrong when this check hits."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.model import ANY_STAGE, Check, Facts, Finding


class {class_name}(Check):
    id, name = "{id}", "{slug}"
    title = "{title}"
    needs = ()  # DRAFT: the kinds of facts that diagnose() reads
    acts_at = ANY_STAGE  # DRAFT: the stages in which this cause can stop a rank
    residual = False

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        raise NotImplementedError("DRAFT: yield self.finding(...) for each instance that the facts show")
'''

PAGE = """\
# {id} {slug} - {title}

error - certain - needs: DRAFT - since {version}

## What you see

DRAFT: where the job stands and what it prints, as a person meets it.

## Why it hangs

DRAFT: who waits for whom, and why it never comes.

## How ddp-doctor knows

DRAFT: which facts, from where, and what would refute it.

## Fix

DRAFT: what to type, and what that needs.

## False alarms

DRAFT: the healthy setting that looks most like this one.

## References

DRAFT: public reports and source lines.
"""

TEST = '''\
"""{id} {slug}: DRAFT: what these cases are taken from."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.{area}.{stem} import {class_name}


def test_hit() -> None:
    pytest.fail("DRAFT: facts of a real fault, outcome hit, and what the finding says")


def test_near_miss_stays_clear() -> None:
    judgement = run_check({class_name})
    assert judgement.outcome.status == "clear", "DRAFT: the healthy setting that looks most like the fault"


def test_missing_evidence_is_unknown() -> None:
    judgement = run_check({class_name})
    assert judgement.outcome.status == "unknown", "DRAFT: an Absent of a needed kind, and how to get it"
'''


def main() -> int:
    """Write the drafts and say where; exit code 2 and nothing written where the arguments do not fit the tree."""
    parser = argparse.ArgumentParser(description="Drafts a check with its page and its test.")
    parser.add_argument("slug", help="name of the failure mode, such as stray-traffic")
    parser.add_argument("id", help="DDP, the hundred of the area, two digits, such as DDP307")
    parser.add_argument("--area", required=True, choices=AREAS, help="where the fault lives")
    parser.add_argument("--title", required=True, help="the failure mode in a few words, as a heading")
    given = parser.parse_args()
    ids = (ROOT / IDS).read_text(encoding="utf-8")
    refusal = why_not(given.slug, given.id, given.area, given.title, ids)
    if refusal:
        print(f"new_check: {refusal}", file=sys.stderr)
        return 2
    stem = given.slug.replace("-", "_")
    values = {
        "id": given.id,
        "slug": given.slug,
        "stem": stem,
        "area": given.area,
        "title": given.title,
        "class_name": "".join(word.capitalize() for word in given.slug.split("-")),
        "version": release(),
    }
    drafts = {
        PACK / given.area / f"{stem}.py": MODULE,
        PACK / given.area / f"{stem}.md": PAGE,
        Path("tests", "unit", given.area, f"test_{stem}.py"): TEST,
    }
    standing = [str(path) for path in drafts if (ROOT / path).exists()]
    if standing:
        print(f"new_check: {standing[0]} exists already", file=sys.stderr)
        return 2
    for path, draft in drafts.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(draft.format(**values), encoding="utf-8")
        print(path)
    if given.id not in known_ids(ids):
        (ROOT / IDS).write_text(with_id(ids, given.area, given.id, given.slug), encoding="utf-8")
        print(f"{IDS}: {given.id}")
    return 0


def why_not(slug: str, id: str, area: str, title: str, ids: str) -> str:
    """What is wrong with the arguments, in a sentence, or an empty string."""
    hundred = AREAS.index(area) + 1
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug):
        return f"{slug!r} is no slug: lower-case words joined by hyphens, such as stray-traffic"
    if not re.fullmatch(r"DDP[1-9]\d\d", id):
        return f"{id!r} is no id: DDP and three digits, such as DDP307"
    if not re.fullmatch(rf"DDP{hundred}\d\d", id):
        return f"{id} is not of the area {area}, whose ids are DDP{hundred}01 to DDP{hundred}99"
    if not title.strip() or re.search(r'["\\\n{}]', title):
        return "the title is one line without quotation marks, backslashes and braces"
    known = known_ids(ids)
    if known.get(id, slug) != slug:
        return f"{id} is {known[id]}, and an id is never reused"
    other = next((other for other, name in known.items() if name == slug and other != id), None)
    if other:
        return f"{slug} is {other} already"
    return ""


def known_ids(ids: str) -> dict[str, str]:
    """Id -> slug, from the text of the table of ids."""
    return dict(re.findall(r'^(DDP\d+) = "([^"]+)"$', ids, flags=re.MULTILINE))


def with_id(ids: str, area: str, id: str, slug: str) -> str:
    """The table of ids with one more line, in order within its area."""
    before, head, section = ids.partition(f"[{area}]\n")
    lines, rest = section.split("\n\n", 1)
    ordered = sorted([*lines.splitlines(), f'{id} = "{slug}"'])
    return f"{before}{head}" + "\n".join(ordered) + f"\n\n{rest}"


def release() -> str:
    """The version that the check will first be in, as `0.1`."""
    source = (ROOT / "ddp_doctor" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(\d+\.\d+)', source, flags=re.MULTILINE)
    return found.group(1) if found else "0"


if __name__ == "__main__":
    sys.exit(main())
