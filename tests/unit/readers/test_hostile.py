"""Hostile bytes: a small part of benchmarks/fuzz_readers.py, and lines that would make a pattern slow."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader
from ddp_doctor.readers.events import MATCHED
from ddp_doctor.readers.line import LONGEST, read_line
from ddp_doctor.readers.many import read_paths
from ddp_doctor.signatures import Signature

SIGNATURES = load_packs(third_party=False).signatures()
RUNS = (" ", "a", "0", "a ", "_", "-", "/", ".", "1.", "A-", "0,")


def fuzzer() -> Any:
    path = Path(__file__).parents[3] / "benchmarks" / "fuzz_readers.py"
    spec = importlib.util.spec_from_file_location("fuzz_readers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_readers"] = module
    spec.loader.exec_module(module)
    return module


def test_every_reader_takes_damaged_bytes() -> None:
    counts = fuzzer().run(2800, seed=7)
    assert sum(counts.values()) == 2800
    assert all(counts[name, "read"] for name in ("stream", "log", "recording", "facts", "report", "redactor"))


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)
def test_no_signature_is_slow(signature: Signature) -> None:
    pattern = signature.compiled()
    beginning = signature.sample[: len(signature.sample) * 2 // 3]
    started = time.process_time()
    for run in (*RUNS, f"{signature.anchors[0]} "):
        long = (run * MATCHED)[:MATCHED]
        for text in (long, (beginning + long)[:MATCHED], long + signature.anchors[0]):
            pattern.search(text)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("run", RUNS)
def test_no_prefix_is_slow(run: str) -> None:
    started = time.process_time()
    read_line((run * LONGEST)[:LONGEST])
    assert time.process_time() - started < 1.0


def test_a_pipe_that_never_ends_is_read_until_the_time_is_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        os.write(writing, b"NCCL WARN Bootstrap : no socket interface found\n")
        closing = threading.Timer(20, os.close, [writing])
        closing.start()
        started = time.monotonic()
        read = read_paths(["-"], LogReader(SIGNATURES), stdin=file, seconds=0.5)
        assert time.monotonic() - started < 10
        closing.cancel()
        os.close(writing)
    assert read.files == 1 and read.facts
    assert "did not end in 0.5 s" in read.problems[0].reason
