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

import ddp_doctor_checks
import pytest

from ddp_doctor.facts.log import LogEvent, Recorded
from ddp_doctor.model import Fact
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader, sources
from ddp_doctor.readers.document import looks_like_document
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


def zstd_of(data: bytes) -> bytes:
    """A zstd frame that holds data as it is."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x20" + bytes([len(data)])
    return frame + (1 | len(data) << 3).to_bytes(3, "little") + data


def test_zstd_is_read_or_the_command_that_unpacks_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log.zst").write_bytes(zstd_of(LINE))
    with tarfile.open(tmp_path / "logs.tar", "w") as archive:
        info = tarfile.TarInfo("rank1.log.zst")
        info.size = len(zstd_of(LINE))
        archive.addfile(info, io.BytesIO(zstd_of(LINE)))
    for path in tmp_path.iterdir():
        found = read(path)
        if sources._unzstd is None:
            assert found.files == 0 and "`zstd -d`" in found.problems[0].reason
        else:
            assert (signatures(found), found.files, found.problems) == (["no-interface"], 1, [])


def test_damaged_zstd_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    for content in (b"\x28\xb5\x2f\xfd" + b"\xff" * 40, zstd_of(LINE)[:8] + b"\xff" * 20):
        path.write_bytes(content)
        assert read(path).facts == []
    path.write_bytes(zstd_of(LINE)[:-9])
    assert all(LINE.startswith(fact.text().encode()) for fact in read(path).facts)


@pytest.mark.parametrize(
    "path", ["/proc", "/proc/self/status", "/proc/self/environ", "/sys/kernel", "/dev", "/dev/null"]
)
def test_file_systems_of_the_kernel_are_refused(path: str) -> None:
    found = read(path)
    assert (found.files, found.facts) == (0, [])
    assert "kernel" in found.problems[0].reason


def test_a_link_through_the_kernels_file_system_is_no_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_bytes(LINE)
    monkeypatch.chdir(tmp_path)
    assert signatures(read("/proc/self/cwd/a.log")) == ["no-interface"]


def test_a_pipe_is_for_standard_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "`-`" in read(tmp_path / "pipe").problems[0].reason


DOCUMENT = """\
# When ranks do not start

The store of rank 0 is the first place where the ranks meet, and a rank that cannot reach it waits there for as long as
the time-out that was given to the call. What is printed then depends on the version.

## Shared memory that is too small

A container has 64 MiB of it unless it is started with more, and NCCL needs several for each connection. It prints
`NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)` and ends.

## Interfaces

The line `NCCL WARN Bootstrap : no socket interface found` tells that the variable names an interface which is not there.
The name is compared from its beginning, and a caret in front of it means all the others.

- The interface must be the same on all nodes, or at least it must reach them.
- It has to be set where the ranks are started, not only in the shell of the person who starts them.
- A list of names is possible, and the first of them that has an address is taken by all ranks on this node.
"""


def test_what_a_manual_quotes_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(DOCUMENT)
    found = read(tmp_path)
    assert (found.files, found.facts) == (0, [])
    assert "no evidence" in found.problems[0].reason


def test_what_a_person_tells_of_his_own_job_is_read(tmp_path: Path) -> None:
    told = (
        DOCUMENT.replace("The line `", "I see `")
        .replace("- The interface", "- My interface")
        .replace("It has", "I have")
    )
    (tmp_path / "question.txt").write_text(told)
    assert signatures(read(tmp_path)) == ["no-interface"]


def test_recorded_logs_are_no_documents() -> None:
    folder = Path(__file__).parents[2] / "cases" / "logs"
    told = [path for path in folder.rglob("*.log") if looks_like_document(path.read_text(encoding="utf-8"))]
    assert told == []


def test_our_own_pages_are_documents() -> None:
    pages = sorted(Path(ddp_doctor_checks.__file__).parent.glob("*/*.md"))
    assert len(pages) > 50
    assert [page for page in pages if not looks_like_document(page.read_text(encoding="utf-8"))] == []
