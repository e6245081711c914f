"""Bundles and reports as evidence: the same verdict from them as from what they were made of, and nothing planted inside."""
# ruff: noqa: E501

from __future__ import annotations

import json
import os
import pickle
import zipfile
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import ddp_doctor
from ddp_doctor import saved
from ddp_doctor.bundle import described, read_manifest, write_bundle
from ddp_doctor.examine import examine
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.process import Stack
from ddp_doctor.facts.report import Examined, ReportedRank
from ddp_doctor.model import Absent, Fact, Facts, RankRow, Report, Subject, Target, UnknownFact
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader
from ddp_doctor.readers.many import Read, read_paths
from ddp_doctor.readers.report import read_reports
from ddp_doctor.redact import Redactor, redacted_report
from ddp_doctor.render import json as render_json, markdown

LOADED = load_packs(third_party=False)
READER = LogReader(LOADED.signatures())
FULL = (
    "gpu-17:10:11 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)\n"
    "[rank2]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error\n"
)
PLANTED = ("gpu-17", "alice", "10.0.3.17", "hunter2", "hf_AbCdEfGhIjKlMnOp", "corp.example.com")
LOG = (
    FULL
    + "export HF_TOKEN=hf_AbCdEfGhIjKlMnOp; db_password=hunter2\n"
    + '  File "/home/alice/train.py", line 3, in <module>\n'
    + "gpu-17:10:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.3.17<0>\n"
    + "MASTER_ADDR=gpu-17.corp.example.com\n"
)


def triage(read: Read) -> Report:
    return examine("triage", LOADED, known=Facts(read.facts, read.absents, read.looked_for), waiting=lambda facts: True)


def bundle(folder: Path, *paths: Path, redact: bool = True) -> tuple[Path, Report]:
    read = read_paths([str(path) for path in paths], READER)
    report = triage(read)
    facts = Facts(read.facts, read.absents, read.looked_for)
    file = folder / "out.bundle"
    write_bundle(file, facts, report, [str(path) for path in paths], Redactor(users=("alice",)) if redact else None)
    return file, report


def everything_in(file: Path) -> str:
    with zipfile.ZipFile(file) as archive:
        members = [
            name + archive.read(name).decode() + archive.getinfo(name).comment.decode() for name in archive.namelist()
        ]
        return "\n".join([*members, archive.comment.decode()])


def test_a_bundle_of_logs_says_what_the_logs_say(tmp_path: Path) -> None:
    folder = tmp_path / "alice-logs"
    folder.mkdir()
    (folder / "gpu-17.log").write_text(LOG)
    (folder / "other.log").write_text("Epoch 1\n" * 10)
    file, before = bundle(tmp_path, folder)
    after = triage(read_paths([str(file)], READER))
    assert (before.verdict.finding, before.verdict.confidence) == ("DDP405", before.verdict.confidence)
    assert msgspec.structs.replace(after.verdict, summary="") == msgspec.structs.replace(before.verdict, summary="")
    assert [finding.id for finding in after.findings] == [finding.id for finding in before.findings]
    assert len(after.findings[0].evidence) == len(before.findings[0].evidence)  # its logs are not read twice
    assert [value for value in PLANTED if value in everything_in(file)] == []


def test_nothing_is_replaced_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG)
    file, _ = bundle(tmp_path, tmp_path / "a.log", redact=False)
    assert all(value in everything_in(file) for value in PLANTED)


def test_what_is_in_a_bundle_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG)
    (tmp_path / "trace_0").write_bytes(pickle.dumps({"entries": []}))
    file, _ = bundle(tmp_path, tmp_path / "a.log", tmp_path / "trace_0")
    manifest, lines = read_manifest(file)
    told = "\n".join(described(manifest, lines, verbose=True))
    assert manifest.replaced["secrets"] >= 2 and manifest.redacted
    assert "logs/0001-a.log" in told and "facts LogEvent" in told and "trace_0: no text" in told
    assert [value for value in PLANTED if value in told] == []


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 broken", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_bundle_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="is no bundle of ddp-doctor"):
        read_manifest(tmp_path / "x")


def test_facts_go_to_lines_and_back() -> None:
    facts = Facts(
        [
            Variable(subject=Subject(host="a"), name="RANK", value="0"),
            Stack(subject=Subject(pid=3, thread=4), thread_name="rank0"),
            UnknownFact(of_kind="FromTheFuture", raw={"subject": {"host": "a"}, "x": [1, {"y": None}], "absent": [3]}),
        ],
        [Absent(kind="Stack", about=Subject(pid=9), status="denied", reason="not yours")],
        ["Stack"],
    )
    again = saved.from_lines(saved.to_lines(saved.to_tables(facts)))
    assert list(again) == list(facts)
    assert (again.absents, again.looked_for) == (facts.absents, facts.looked_for)


def test_a_kind_or_field_of_a_newer_version_is_kept() -> None:
    lines = saved.to_lines([{"kind": "Variable", "name": ["now", "a", "list"]}, {"kind": "Nobody", "z": 1}])
    changed, unknown = saved.from_lines(lines)
    assert isinstance(changed, UnknownFact) and changed.of_kind == "Variable"
    assert isinstance(unknown, UnknownFact) and unknown.raw == {"z": 1}
    assert saved.to_lines([saved.encoded(changed), saved.encoded(unknown)]) == lines


@pytest.mark.parametrize(
    "kind", sorted(saved.kinds().values(), key=lambda kind: kind.kind()), ids=lambda kind: kind.kind()
)
def test_every_kind_of_fact_can_be_decoded(kind: type[Fact]) -> None:
    assert saved.kinds()[kind.kind()] is kind


def report_of(rank: int, finding: Any) -> Report:
    return Report(
        tool=ddp_doctor.model.Tool(version="0.1.0", command="run", seconds=1.0),
        target=Target(hosts=(f"node-{rank}",)),
        verdict=ddp_doctor.model.Verdict(status="problem"),
        ranks=(RankRow(rank=rank, host=f"node-{rank}", pid=10 + rank, stage="store-wait", state="waiting"),),
        findings=(msgspec.structs.replace(finding, ranks=(rank,), hosts=(f"node-{rank}",)),),
    )


def test_reports_of_several_ranks_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(FULL)
    finding = triage(read_paths([str(tmp_path / "a.log")], READER)).findings[0]
    texts = [render_json.render(report_of(rank, finding)) for rank in range(3)]
    (tmp_path / "rank0.json").write_text(texts[0])
    (tmp_path / "others.json").write_text(texts[1] + texts[2])
    read = read_paths([str(tmp_path / "rank0.json"), str(tmp_path / "others.json")], READER)
    merged = triage(read)
    assert (merged.verdict.finding, merged.findings[0].ranks) == ("DDP405", (0, 1, 2))
    assert sorted(fact.row.rank or 0 for fact in read.facts if isinstance(fact, ReportedRank)) == [0, 1, 2]


def test_a_damaged_report_is_said(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"schema": "ddp-doctor/report/1", "tool": 7}')
    read = read_paths([str(tmp_path / "r.json")], READER)
    assert "not a report of ddp-doctor" in read.problems[0].reason
    with pytest.raises(ValueError, match="not a report"):
        read_reports('{"schema": "ddp-doctor/report/1"', "x")


def test_markdown_for_a_ticket(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        LOG + "<script>alert(1)</script> @everybody NCCL WARN Bootstrap : no socket interface found ```\n"
    )
    report = triage(read_paths([str(tmp_path / "a.log")], READER))
    text = markdown.render(redacted_report(report, Redactor(users=("alice",))))
    assert text.startswith("## DDP405 shm-small (certain)\n")
    assert "```sh\ndocker run --shm-size=16g IMAGE" in text
    assert text.rstrip().endswith("```") and text.rpartition("### ")[2].startswith("Versions\n")
    assert [value for value in PLANTED if value in text] == []
    undecided = examine(
        "triage", LOADED, known=Facts(READER.read(b"unhandled system error", "x")), waiting=lambda facts: True
    )
    assert "Candidates: DDP405" in markdown.render(undecided)


def test_the_counts_of_a_redacted_report() -> None:
    report = examine(
        "triage", LOADED, known=Facts(READER.read(LOG.encode(), "/home/alice/a.log")), waiting=lambda facts: True
    )
    counts = redacted_report(report, Redactor()).redacted
    assert counts.hosts >= 1 and counts.users >= 1


def test_what_an_examination_was_of_survives() -> None:
    examined = Examined(command="attach", version="0.1.0", target=Target(hosts=("a",), world_size=2))
    (again,) = saved.from_lines(saved.to_lines([saved.encoded(examined)]))
    assert again == examined


def test_a_bundle_holds_no_clock_and_no_user(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LOG)
    file, _ = bundle(tmp_path, tmp_path / "a.log")
    with zipfile.ZipFile(file) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert json.loads(archive.read("manifest.json"))["schema"] == "ddp-doctor/bundle/1"
    assert os.path.basename(file) == "out.bundle"


NASTY = "/home/alice/x gpu-17:10:11 [0] NCCL INFO y gpu-17.corp.example.com 10.0.3.17 HF_TOKEN=hf_AbCdEfGhIjKlMnOp password=hunter2"


def filled(annotation: Any) -> Any:
    """A value of a type, with the planted text wherever it holds text."""
    if annotation is str:
        return NASTY
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, UnionType):
        return filled(next(each for each in arguments if each is not type(None)))
    if origin in (tuple, list):
        return origin([filled(each) for each in arguments if each is not Ellipsis])
    if origin is dict:
        return {"key" if arguments[0] is str else filled(arguments[0]): filled(arguments[1])}
    if annotation in (int, float, bool):
        return annotation(1)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next(iter(annotation))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        hints = get_type_hints(annotation)
        return annotation(**{field.name: filled(hints[field.name]) for field in msgspec.structs.fields(annotation)})
    return None


@pytest.mark.parametrize(
    "kind", sorted(saved.kinds().values(), key=lambda kind: kind.kind()), ids=lambda kind: kind.kind()
)
def test_no_field_of_any_kind_of_fact_keeps_what_was_planted(tmp_path: Path, kind: type[Fact]) -> None:
    fact = filled(kind)
    assert NASTY in str(fact)
    absent = Absent(kind=kind.kind(), about=filled(Subject), status="denied", reason=NASTY, how_to_get=NASTY)
    report = msgspec.structs.replace(triage(Read()), target=Target(hosts=("gpu-17",)))
    write_bundle(tmp_path / "b", Facts([fact], [absent], [kind.kind()]), report, [], Redactor(users=("alice",)))
    assert [value for value in PLANTED if value in everything_in(tmp_path / "b")] == []
