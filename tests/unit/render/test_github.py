"""Workflow commands, read back by the rules of GitHub's runner."""

from __future__ import annotations

import re

from reports import HOSTILE, everything, finding, report, undecided

from ddp_doctor.model import Evidence, RankRow, Severity
from ddp_doctor.render import github

COMMAND = re.compile(r"\s*::([A-Za-z-]+)(?: (.*?))?::(.*)")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """What the runner obeys: name, properties, data."""
    found = []
    for line in text.splitlines():
        assert "##[" not in line, "the runner obeys this older spelling anywhere in a line"
        match = COMMAND.match(line)
        if match:
            pairs = (pair.partition("=") for pair in (match[2] or "").split(",") if pair)
            found.append((match[1], {key: _unescaped(value) for key, _, value in pairs}, _unescaped(match[3])))
    return found


def _unescaped(text: str) -> str:
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_a_finding_marks_the_users_own_line() -> None:
    name, properties, data = commands(github.render(report(finding())))[0]
    assert name == "error"
    assert properties == {"file": "jobs/train.py", "line": "12", "title": "DDP103 thread-launch"}
    assert data.splitlines() == [
        "2 ranks run as threads of one process. Fix: start one process per rank",
        "torchrun --nproc-per-node=2 jobs/train.py",
    ]


def test_the_line_of_a_live_rank_comes_from_its_stack_and_never_from_torch() -> None:
    stack = Evidence(
        fact="Stack",
        source="pid 7 thread 8",
        value="init_process_group <- /x/site-packages/torch/distributed/c10d.py:9 f <- train.py:88 main   waiting",
    )
    _, properties, _ = commands(github.render(report(finding(evidence=(stack,)))))[0]
    assert (properties["file"], properties["line"]) == ("train.py", "88")
    nowhere = Evidence(fact="Port", source="/proc/net/tcp", value="29500")
    row = RankRow(rank=3, where="train.py:7 main")
    _, properties, _ = commands(github.render(report(finding(evidence=(nowhere,), ranks=(3,)), ranks=(row,))))[0]
    assert (properties["file"], properties["line"]) == ("train.py", "7")
    _, properties, _ = commands(github.render(report(finding(evidence=(nowhere,)))))[0]
    assert properties.keys() == {"title"}


def test_files_are_named_from_the_root_of_the_repository() -> None:
    absolute = Evidence(fact="Call", source="/w/repo/a, b:c.d/train.py:3", value="x")
    plain = Evidence(fact="Call", source="/w/repo/src/train.py:3", value="x")
    for item, root, file in ((plain, "/w/repo", "src/train.py"), (plain, "/w/rep", "/w/repo/src/train.py")):
        assert commands(github.render(report(finding(evidence=(item,))), root))[0][1]["file"] == file
    assert "file" not in commands(github.render(report(finding(evidence=(absolute,))), "/w/repo"))[0][1]


def test_the_worst_ten_are_annotations_and_nothing_is_lost() -> None:
    many = [finding(summary=f"fault {number}, 50%: yes", severity=Severity.WARNING) for number in range(12)]
    text = github.render(report(*many))
    annotated = [data for name, _, data in commands(text) if name == "warning"]
    assert [data.split(".")[0] for data in annotated] == [f"fault {number}, 50%: yes" for number in range(10)]
    assert ("group", {}, "2 more findings") in commands(text)
    assert "fault 11, 50%: yes" in text
    assert text.splitlines()[-1].startswith("12 warnings found")


def test_groups_are_closed_before_the_next_begins() -> None:
    names = [name for name, _, _ in commands(github.render(everything())) if "group" in name]
    assert names and names == ["group", "endgroup"] * (len(names) // 2)


def test_a_note_annotates_nothing() -> None:
    healthy = report(finding("DDP202", "loopback-name", Severity.NOTE))
    assert {name for name, _, _ in commands(github.render(healthy))} == {"group", "endgroup"}


def test_no_verdict_is_a_warning_with_the_next_step() -> None:
    name, properties, data = commands(github.render(undecided("ask the switch")))[0]
    assert (name, properties) == ("warning", {"title": "ddp-doctor: no verdict"})
    assert "candidates: DDP101, DDP302" in data and "next: ask the switch" in data


def test_a_log_commands_nothing() -> None:
    quiet, hostile = github.render(everything("words")), github.render(everything(HOSTILE))
    assert [name for name, _, _ in commands(hostile)] == [name for name, _, _ in commands(quiet)]
    assert [properties for _, properties, _ in commands(hostile)] == [
        properties for _, properties, _ in commands(quiet)
    ]
    assert "\x1b" not in hostile and "\u202e" not in hostile
    assert all("owned" in data for name, _, data in commands(github.render(undecided(HOSTILE))) if name == "warning")
