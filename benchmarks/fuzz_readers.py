"""Feeds damaged and hostile bytes to every reader: `python benchmarks/fuzz_readers.py [--inputs 200000] [--seed 1]`.

Inputs are mutations of the signatures' samples and of recorded logs, dumps, archives and bundles. A reader may refuse
with ValueError (or the parser's own words of it); nothing else may escape, nothing may be slow, and no control character
may come through into what is shown. The same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import sys
import tarfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ddp_doctor import saved
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Facts, Report, Subject, Target, Tool, Verdict
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader
from ddp_doctor.readers.cuda_mask import read_mask
from ddp_doctor.readers.faulthandler_dump import read_faulthandler
from ddp_doctor.readers.flight_recorder import read_recording
from ddp_doctor.readers.line import read_line
from ddp_doctor.readers.many import read_stream
from ddp_doctor.readers.nccl_conf import entries
from ddp_doctor.readers.nccl_log import parse_all
from ddp_doctor.readers.nvidia_smi import read_query
from ddp_doctor.readers.pyspy_dump import read_dump
from ddp_doctor.readers.report import read_reports
from ddp_doctor.readers.torchrun import read_error_file
from ddp_doctor.redact import Redactor

SLOW_SECONDS = 2.0
LOGS = Path(__file__).parent.parent / "tests" / "cases" / "logs"
LOADED = load_packs(third_party=False)
READER = LogReader(LOADED.signatures())

RECORDING = {
    "version": "2.1",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [
        {
            "record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "is_p2p": False,
            "profiling_name": "nccl:all_reduce", "input_sizes": [[2, 8]], "state": "scheduled",
        }
    ],
}  # fmt: skip
ERROR_FILE = {
    "message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1796000000"}}
}
FRAME = {"name": "init_process_group", "filename": "torch/distributed/x.py", "line": 3, "locals": None}
STACKS = [{"pid": 7, "thread_id": 1, "thread_name": "rank0", "active": True, "os_thread_id": 9, "frames": [FRAME]}]
FAULTHANDLER = 'Thread 0x00007f1 [rank0] (most recent call first):\n  File "/a/train.py", line 12 in worker\n'
DUMP = 'Process 7: python train.py\nPython v3.11\n\nThread 9 (idle): "MainThread"\n    wait (threading.py:320)\n'


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def _redact(text: str) -> object:
    redactor = Redactor()
    redactor.learn(text)
    return redactor.text(text) and None


READERS: dict[str, Callable[[bytes], object]] = {
    "stream": lambda data: read_stream(io.BytesIO(data), "fuzz", READER),
    "log": lambda data: READER.read(data, "fuzz.log"),
    "line": read_line,
    "nccl line": _text(lambda text: list(parse_all(text))),
    "nccl conf": _text(lambda text: list(entries(text))),
    "recording": lambda data: read_recording(data, "trace_0"),
    "error file": _text(lambda text: read_error_file(text, "error.json", READER)),
    "py-spy": _text(lambda text: read_dump(text, "dump")),
    "faulthandler": _text(lambda text: read_faulthandler(text, "dump")),
    "nvidia-smi": _text(lambda text: read_query(text, Subject())),
    "mask": _text(lambda text: read_mask(text, count=4)),
    "facts": _text(saved.from_lines),
    "report": _text(lambda text: read_reports(text, "report.json")),
    "redactor": _text(_redact),
}


def seeds() -> dict[str, list[bytes]]:
    """What is mutated, by the reader it is meant for; `log` is what all others get as well."""
    samples = [signature.sample.encode() for signature in LOADED.signatures()]
    logs = [*samples, b"\n".join(samples), *(file.read_bytes()[:4000] for file in sorted(LOGS.rglob("*.log")))]
    facts = Facts([Variable(name="RANK", value="0")], looked_for=["Variable"])
    report = Report(
        tool=Tool(version="0", command="run", seconds=1.0), target=Target(), verdict=Verdict(status="healthy")
    )
    found = {
        "log": logs,
        "recording": [json.dumps(RECORDING).encode(), *(pickle.dumps(RECORDING, protocol) for protocol in (2, 4, 5))],
        "error file": [json.dumps(ERROR_FILE).encode()],
        "py-spy": [json.dumps(STACKS).encode(), DUMP.encode()],
        "faulthandler": [FAULTHANDLER.encode()],
        "nvidia-smi": [b"0, GPU-1, H100, 00000000:01:00.0, 81559, 80000, 1559\n"],
        "mask": [b"0,1,MIG-x"],
        "nccl conf": [b"NCCL_DEBUG=INFO\n# x\nNCCL_SOCKET_IFNAME=^lo\n"],
        "facts": [saved.to_lines(saved.to_tables(facts)).encode()],
        "report": [report.to_json().encode()],
    }
    log = b"\n".join(samples[:40])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../a.log", log)
        archive.writestr("b.gz", gzip.compress(log))
    tarred = io.BytesIO()
    with tarfile.open(fileobj=tarred, mode="w:gz") as archive_of_tar:
        info = tarfile.TarInfo("/etc/x")
        info.size = len(log)
        archive_of_tar.addfile(info, io.BytesIO(log))
    packs = [gzip.compress(log), bz2.compress(log), lzma.compress(log)]
    found["stream"] = [
        packed.getvalue(),
        tarred.getvalue(),
        *packs,
        *(each for kind in found.values() for each in kind[:4]),
    ]
    return found


SNIPPETS = (
    b"\x1b]0;owned\x07", b"\x1b[2J", b"\x00", b"\xff\xfe", b"\r\n", b"\n\n", b"%s{}{0}", b"NCCL WARN ", b"[rank", b"9" * 40,
    b"Traceback (most recent call last):\n", b'  File "x", line 1, in y\n', b"{" * 60, b"[" * 60, b"(" * 30, b'{"kind": ',
    b"\xe2\x80\xae", b"\xc2\x9b31m", b"cos\nsystem\n(S'id'\ntR.", b"\x80\x04\x95", b"exitcode: -", b"1e999", b"-", b": ",
)  # fmt: skip


def mutated(random_: random.Random, pool: list[bytes]) -> bytes:
    """One input: a seed, cut, doubled, flipped, spliced with another, or with something nasty inside."""
    data = bytearray(random_.choice(pool))
    for _ in range(random_.randint(0, 6)):
        place = random_.randrange(len(data) + 1)
        what = random_.randrange(7)
        if what == 0 and data:
            data[place % len(data)] = random_.randrange(256)
        elif what == 1:
            del data[place : place + random_.randint(1, 40)]
        elif what == 2:
            data[place:place] = random_.choice(SNIPPETS)
        elif what == 3:
            other = random_.choice(pool)
            data[place:] = other[random_.randrange(len(other) + 1) :][:4000]
        elif what == 4:
            data[place:place] = data[place : place + 80] * random_.randint(1, 20)
        elif what == 5:
            data[place:place] = random_.randbytes(random_.randint(1, 30))
        else:
            data[place:place] = bytes([random_.randrange(32, 127)]) * random_.choice((3, 300, 3000))
    return bytes(data[:20_000])


def attempt(name: str, data: bytes) -> str:
    """How a reader took one input: `read` or `refused`; raises AssertionError for what must not happen."""
    started = time.process_time()
    try:
        result = READERS[name](data)
        outcome = "read"
    except ValueError:
        result, outcome = None, "refused"
    seconds = time.process_time() - started
    assert seconds < SLOW_SECONDS, f"{name}: {seconds:.1f} s"
    facts = getattr(result, "facts", result)
    for fact in facts if isinstance(facts, list) else ():
        for text in (fact.source, fact.text()) if isinstance(fact, LogEvent) else ():
            assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in text), f"{name}: {text!r}"
    return outcome


def run(inputs: int, seed: int) -> Counter[tuple[str, str]]:
    """How often each reader read and refused; raises at the first input that breaks one, with the input."""
    random_ = random.Random(seed)
    kinds = seeds()
    names = list(READERS)
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(inputs):
        name = names[number % len(names)]
        own = name in kinds and random_.random() < 0.6
        data = mutated(random_, kinds[name] if own else kinds["log"])
        try:
            counts[name, attempt(name, data)] += 1
        except BaseException as error:
            raise RuntimeError(f"input {number} of seed {seed} breaks {name}: {error!r}: {data[:300]!r}") from error
    return counts


def main() -> int:
    """Print the counts; 1 at the first input that breaks a reader."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    try:
        counts = run(options.inputs, options.seed)
    except RuntimeError as broken:
        print(broken)
        return 1
    for name in READERS:
        print(f"{name:14} read {counts[name, 'read']:>7}  refused {counts[name, 'refused']:>7}")
    print(f"{options.inputs} inputs, seed {options.seed}, {time.monotonic() - started:.0f} s: nothing escaped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
