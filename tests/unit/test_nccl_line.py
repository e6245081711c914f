"""Every grammar NCCL has printed its lines in, to the same parts."""

from __future__ import annotations

import pytest

from ddp_doctor.readers.nccl_log import NcclLine, parse_all, parse_line


@pytest.mark.parametrize(
    ("line", "level", "message", "device", "file"),
    [
        (
            "vm:7:9 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>",
            "INFO",
            "Bootstrap : Using eth0:10.0.0.5<0>",
            0,
            "",
        ),
        ("vm:7:9 [32767] NCCL INFO cudaDriverVersion 0", "INFO", "cudaDriverVersion 0", 32767, ""),
        (
            "vm:7:9 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
            "WARN",
            "Bootstrap : no socket interface found",
            0,
            "bootstrap.cc",
        ),
        (
            "[2026-11-30 17:23:07] vm:7:9 [0] bootstrap.cc:115 NCCL WARN Bootstrap : no socket interface found",
            "WARN",
            "Bootstrap : no socket interface found",
            0,
            "bootstrap.cc",
        ),
        (
            "[2026-11-30 17:23:07.250] vm:7:9 [-1] transport/net_ib/init.cc:526 (ncclIbInit) NCCL WARN lib wrapper",
            "WARN",
            "lib wrapper",
            -1,
            "transport/net_ib/init.cc",
        ),
        (
            "vm:7:9 [1] init.cc:9 (ncclInit) NCCL ATTN Socket magic mismatch",
            "ATTN",
            "Socket magic mismatch",
            1,
            "init.cc",
        ),
        ("vm:7:9 NCCL CALL ncclGetUniqueId(0x1)", "CALL", "ncclGetUniqueId(0x1)", None, ""),
        ("vm:7:9 [0] 12.345 initTransportsRank:55 NCCL TRACE rank 0", "TRACE", "rank 0", 0, ""),
        ("vm:7 NCCL DIAG [OK]   CUDA driver version: 12080", "DIAG", "[OK]   CUDA driver version: 12080", None, ""),
        ("[default1]:vm:7:9 [1] NCCL INFO init.cc:80 -> 5", "INFO", "init.cc:80 -> 5", 1, ""),
    ],
)
def test_each_grammar(line: str, level: str, message: str, device: int | None, file: str) -> None:
    found = parse_line(line)
    assert found is not None
    assert (found.level, found.message, found.device, found.file) == (level, message, device, file)
    assert (found.host, found.pid) == ("vm", 7)


def test_a_bare_version_line() -> None:
    assert parse_line("NCCL version 2.21.5+cuda12.4\n") == NcclLine(
        level="VERSION", message="NCCL version 2.21.5+cuda12.4"
    )


def test_glued_lines_are_all_found() -> None:
    glued = "rank0 -> 0 (no error)vm:7:9 [0] NCCL INFO Connected all ringsvm-2:8:9 [1] NCCL INFO Connected all trees"
    assert [found.message for found in parse_all(glued)][-1] == "Connected all trees"
    assert [found.pid for found in parse_all(glued)] == [7, 8]


@pytest.mark.parametrize(
    "line", ["using NCCL backend", "NCCL_DEBUG=INFO python train.py", "", "NCCL INFO without a process"]
)
def test_what_is_not_nccls_own_is_nothing(line: str) -> None:
    assert parse_line(line) is None
