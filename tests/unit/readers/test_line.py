"""Lines without what is put around them."""

from __future__ import annotations

import pytest

from ddp_doctor.readers.line import LONGEST, harmless_text, read_line

NCCL = "node-a:17:18 [0] NCCL INFO Using network Socket"


@pytest.mark.parametrize(
    ("raw", "rank", "host"),
    [
        (NCCL, None, "node-a"),
        (f"[rank3]:{NCCL}", 3, "node-a"),
        (f"[default3]:{NCCL}", 3, "node-a"),
        (f"3: {NCCL}", 3, "node-a"),
        (f"[pod/trainer-0/pytorch] {NCCL}", None, "node-a"),
        (f"(RayWorkerWrapper pid=1978, ip=10.0.0.2) {NCCL}", None, "node-a"),
        (f"2026-11-30T10:00:00.123Z {NCCL}", None, "node-a"),
        (f"[2026-11-30 17:37:19.994] {NCCL}", None, "node-a"),
        (f"\x1b[31m{NCCL}\x1b[0m\r", None, "node-a"),
        (f"PY rank0 init -> 0 (no error){NCCL}", None, "node-a"),
    ],
)
def test_prefixes_of_launchers_and_collectors(raw: str, rank: int | None, host: str) -> None:
    line = read_line(raw)
    assert (line.rank, line.pid, line.nccl) == (rank, 17, "INFO")
    assert line.host.endswith(host)
    assert line.message == "Using network Socket"


def test_warn_lines_of_all_versions() -> None:
    for raw in (
        "vm:1:2 [0] bootstrap.cc:115 NCCL WARN Bootstrap : no socket interface found",
        "[2026-11-30 17:23:07] vm:1:2 [0] bootstrap.cc:115 NCCL WARN Bootstrap : no socket interface found",
        "[2026-11-30 17:23:07] vm:1:2 [-1] bootstrap.cc:115 (ncclInit) NCCL WARN Bootstrap : no socket interface found",
    ):
        line = read_line(raw)
        assert (line.nccl, line.message, line.host) == ("WARN", "Bootstrap : no socket interface found", "vm")


def test_times_compare() -> None:
    first = read_line("[W1130 17:22:27.669479334 TCPStore.cpp:340] [c10d] x").at
    later = read_line("[W1130 17:22:28.5 TCPStore.cpp:340] [c10d] x").at
    assert first is not None and later is not None and 0.8 < later - first < 0.9
    assert read_line("no time here").at is None


def test_nothing_that_moves_a_cursor_is_left() -> None:
    nasty = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\u202ee\x00f\x08g"
    shown = harmless_text(nasty)
    assert shown.isprintable() and shown.startswith("abc")


def test_a_long_line_is_cut() -> None:
    assert len(read_line(b"x" * (LONGEST * 4)).text) == LONGEST
