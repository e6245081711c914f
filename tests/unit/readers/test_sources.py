"""Archives, folders and hostile input."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import tarfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ddp_doctor.facts.log import LogEvent, Recorded
from ddp_doctor.model import Fact
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader, sources
from ddp_doctor.readers.flight_recorder import read_recording
from ddp_doctor.readers.many import Read, read_paths

READER = LogReader(load_packs(third_party=False).signatures())
LINE = b"NCCL WARN Bootstrap : no socket interface found\n"


def read(*paths: Path | str) -> Read:
    return read_paths([str(path) for path in paths], READER, seconds=30)


def signatures(found: Read) -> list[str]:
    return sorted({fact.signature for fact in found.facts if isinstance(fact, LogEvent)} & {"no-interface"})


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, bytes])
def test_packed_logs(tmp_path: Path, pack: Any) -> None:
    log = tmp_path / "a.log.packed"  # by content, not by name
    log.write_bytes(pack(LINE))
    found = read(log)
    assert (signatures(found), found.files, found.problems) == (["no-interface"], 1, [])


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_tar(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "logs.tar"
    with tarfile.open(path, mode) as archive:
        for name, content in {"../../etc/evil\x1b[2J": LINE, "rank1.log.gz": gzip.compress(LINE)}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    found = read(path)
    assert (signatures(found), found.files) == (["no-interface"], 2)
    assert all(fact.source.isprintable() for fact in found.facts)
    assert os.listdir(tmp_path) == ["logs.tar"]


def test_zip(tmp_path: Path) -> None:
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../rank0.log", LINE)
        archive.writestr("inner.zip", b"PK\x03\x04")
    found = read(path)
    assert (signatures(found), found.files) == (["no-interface"], 1)
    assert [problem.reason for problem in found.problems] == ["an archive inside an archive; unpack it first"]


def test_a_bomb_is_left_when_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_UNPACKED", 4 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(LINE + b"a" * (64 << 20)))
    found = read(path)
    assert "unpacks to far more" in found.problems[0].reason


def test_a_truncated_archive_gives_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    whole = gzip.compress(LINE + os.urandom(1 << 20).hex().encode())
    path.write_bytes(whole[: len(whole) // 2])
    found = read(path)
    assert signatures(found) == ["no-interface"]
    assert "truncated" in found.problems[0].reason


def test_a_line_of_a_gigabyte(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("wb") as file:
        file.write(LINE + b"x" * 100_000)
        file.truncate(1 << 30)  # a sparse file: zeros, and no end of line
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + LINE)
    found = read(path)
    assert signatures(found) == ["no-interface"]


def test_folders_without_what_they_link_to(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank0.log").write_bytes(LINE)
    (tmp_path / "elsewhere.log").write_bytes(LINE)
    (tmp_path / "logs" / "link.log").symlink_to(tmp_path / "elsewhere.log")
    (tmp_path / "logs" / "loop").symlink_to(tmp_path / "logs")
    os.mkfifo(tmp_path / "logs" / "pipe")
    found = read(tmp_path / "logs")
    assert (found.files, found.problems) == (1, [])


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF" + bytes(4096))
    (tmp_path / "empty").write_bytes(b"")
    found = read(tmp_path / "program", tmp_path / "empty", tmp_path / "absent")
    assert found.files == 0
    assert sorted(problem.reason for problem in found.problems) == [
        "No such file or directory",
        "binary, of no kind that is known here",
    ]


class Evil:
    """A pickle of this would write a file when it is loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.target}",))


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    target = tmp_path / "was-run"
    path = tmp_path / "trace_0"
    path.write_bytes(pickle.dumps({"entries": [Evil(target)]}))
    found = read(path)
    assert not target.exists()
    assert "refused" in found.problems[0].reason


def test_a_pickle_that_would_take_all_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="more memory than its size explains"):
        read_recording(b"\x80\x02}r\xff\xff\xff\x7f.", "trace_0")


def entry(number: int, call: str, sizes: list[list[int]]) -> dict[str, Any]:
    return {
        "collective_seq_id": number,
        "profiling_name": call,
        "input_sizes": sizes,
        "process_group": ("0", "default_pg"),
        "state": "scheduled",
        "is_p2p": False,
    }


def test_recorders_of_two_ranks(tmp_path: Path) -> None:
    for rank, call in enumerate(("nccl:all_reduce", "nccl:barrier")):
        content = {"version": "2.10", "entries": [entry(1, "nccl:broadcast", [[2]]), entry(2, call, [[4]])]}
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(pickle.dumps(content))
    records = [fact for fact in read(tmp_path).facts if isinstance(fact, Recorded)]
    assert [(record.subject.rank, record.sequence, record.call) for record in records] == [
        (0, 1, "nccl:broadcast"),
        (0, 2, "nccl:all_reduce"),
        (1, 1, "nccl:broadcast"),
        (1, 2, "nccl:barrier"),
    ]


def test_a_recording_that_folds_itself_up_is_no_shape() -> None:
    folded: Any = [1]
    for _ in range(60):
        folded = [folded, folded]
    (record,) = read_recording(pickle.dumps({"entries": [entry(1, "nccl:broadcast", folded)]}), "trace_0")
    assert record.sizes.count("[") <= 64


@pytest.mark.parametrize("data", [b"\x80\x04", b"\x80\x05.", b"\x80\x02K\x01.", b'{"pg_config": 1, "entries": 3}'])
def test_damaged_recordings(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a flight recorder's dump"):
        read_recording(data, "trace_0")


class Slowly(LogReader):
    """Reads no more than twenty blocks a second."""

    def read_blocks(self, blocks: Iterable[bytes], source: str, base: int = 0) -> list[Fact]:
        return super().read_blocks((time.sleep(0.05) or block for block in blocks), source, base)


def test_of_a_log_that_takes_too_long_the_beginning_counts(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_bytes(LINE + b"step 1: loss 0.5\n" * 2_000_000)
    found = read_paths([str(log)], Slowly(load_packs(third_party=False).signatures()), seconds=4)
    assert (signatures(found), found.files) == (["no-interface"], 1)
    (cut,) = found.problems
    assert cut.source == str(log) and "no time for more than its first" in cut.reason


def test_noise_is_no_log(tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.write_bytes(random.Random(7).randbytes(300_000))
    found = read(noise)
    assert (found.facts, found.files) == ([], 0) and "binary" in found.problems[0].reason
    noise.write_bytes("步骤 1: 损失 0.5\n".encode("gbk") * 500 + LINE)
    assert signatures(read(noise)) == ["no-interface"]


def test_a_file_that_goes_away_while_a_folder_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_bytes(LINE)
    walk = os.walk

    def walk_and_lose(*arguments: Any, **options: Any) -> Any:
        for folder, folders, files in walk(*arguments, **options):
            (tmp_path / "b.log").unlink()
            yield folder, folders, files

    monkeypatch.setattr(sources.os, "walk", walk_and_lose)
    found = read(tmp_path)
    assert (signatures(found), found.files, found.problems) == (["no-interface"], 2, [])
