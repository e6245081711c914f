"""The habits of signatures and separators: each sample matches, each near miss does not, and harmless lines stay so."""
# ruff: noqa: E501

from __future__ import annotations

import sys
from pathlib import Path

import ddp_doctor_checks
import pytest

from ddp_doctor.examine import examine
from ddp_doctor.model import Confidence, Facts, Report, Severity
from ddp_doctor.packs import load_packs
from ddp_doctor.readers import LogReader
from ddp_doctor.readers.events import Recogniser
from ddp_doctor.readers.line import read_line
from ddp_doctor.signatures import Signature

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOADED = load_packs(third_party=False)
READER = LogReader(LOADED.signatures())
NAMES = {signature.name for signature in LOADED.signatures()}
TABLE = tomllib.loads((Path(ddp_doctor_checks.__file__).parent / "ids.toml").read_text(encoding="utf-8"))
IDS = {id for area in TABLE.values() for id in area}

each_signature = pytest.mark.parametrize("signature", LOADED.signatures(), ids=lambda signature: signature.name)


def triage(*lines: str) -> Report:
    return examine(
        "triage", LOADED, known=Facts(READER.read("\n".join(lines).encode(), "train.log")), waiting=lambda facts: True
    )


def names_of(signature: Signature, text: str) -> set[str]:
    return {found.name for found, _ in Recogniser([signature]).matches(read_line(text).text)}


@each_signature
def test_the_sample_matches_and_the_near_miss_does_not(signature: Signature) -> None:
    assert names_of(signature, signature.sample) == {signature.name}
    assert not signature.near or names_of(signature, signature.near) == set()


@each_signature
def test_a_signature_speaks_of_things_that_exist(signature: Signature) -> None:
    leads = {*signature.leads, *(condition.finding for condition in signature.when)}
    assert leads <= IDS
    others = {name for condition in signature.when for name in (*condition.seen, *condition.unless)}
    assert others <= NAMES
    groups = signature.compiled().groupindex
    assert {name for condition in signature.when for name in (condition.differs, condition.repeats) if name} <= set(
        groups
    )


@each_signature
def test_only_causes_claim(signature: Signature) -> None:
    if signature.confidence is not Confidence.POSSIBLE:
        assert signature.sort in ("cause", "harmless")


def test_names_are_given_once() -> None:
    assert len(NAMES) == len(LOADED.signatures())


def test_separators_tell_existing_findings_apart() -> None:
    for separator in LOADED.pack.separators:
        assert set(separator.between) <= IDS
        assert separator.title and separator.commands


@each_signature
def test_a_harmless_line_alone_is_at_most_a_note(signature: Signature) -> None:
    if signature.sort in ("harmless", "progress"):
        report = triage(signature.sample)
        assert report.verdict.status == "unknown" and report.verdict.finding is None
        assert {finding.severity for finding in report.findings} <= {Severity.NOTE}


@pytest.mark.parametrize(
    "line",
    [
        "NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
        "Could not enable P2P between dev 0(=3000) and dev 1(=88000)",
        "NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
        "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "NCCL INFO Failed to open libibverbs.so[.1]",
        "NCCL INFO NET/IB : No device found.",
        "NCCL INFO Could not find real path of /sys/class/net/eth0/device",
        "[W socket.cpp:464] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [HOST]:29500 (system error: 10049 - unknown error).",
        "[W socket.cpp:663] [c10d] The IPv6 network addresses of (node-a, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "[W ProcessGroupNCCL.cpp:1569] Rank 0 using best-guess GPU 0 to perform barrier as devices used by this process are "
        "currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        "master_addr is only used for static rdzv_backend and when rdzv_endpoint is not specified.",
        "Time to load utils op: 0.35 seconds",
        "NCCL INFO dlvsym failed on mlx5dv_reg_dmabuf_mr",
        "NCCL INFO Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1",
        "NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.",
    ],
)
def test_lines_that_people_worry_about_are_at_most_notes(line: str) -> None:
    report = triage(line)
    assert {finding.severity for finding in report.findings} <= {Severity.NOTE}
    assert report.verdict.finding is None


def test_the_truth_about_the_peer_to_peer_line() -> None:
    report = triage("NCCL INFO P2P is disabled between connected GPUs 0 and 1.")
    (note,) = [finding for finding in report.findings if finding.id == "DDP412"]
    assert (note.severity, note.confidence) == (Severity.NOTE, Confidence.CERTAIN)
    assert "2.19.1 and newer NCCL_IGNORE_DISABLED_P2P=1 only silences the line" in note.because


SEED = (
    "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/2",
    "host:3886:3998 [1] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can repress this message with "
    "NCCL_IGNORE_DISABLED_P2P=1.",
    "host:3886:3998 [1] NCCL INFO Could not enable P2P between dev 0(=3000) and dev 1(=88000)",
    "host:3812:3996 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with "
    "NCCL_IGNORE_DISABLED_P2P=1.",
)


def test_the_first_report_is_undecided_by_its_lines() -> None:
    report = triage(*SEED)
    verdict = report.verdict
    assert (verdict.status, verdict.finding, verdict.candidates) == ("unknown", None, ("DDP103",))
    assert verdict.separate is not None
    assert verdict.separate.commands == ("ddp-doctor attach PID", "ddp-doctor run --script train.py")
    assert {finding.id: finding.severity for finding in report.findings} == {
        "DDP412": Severity.NOTE,
        "DDP103": Severity.NOTE,
    }


def test_the_first_failure_decides_and_echoes_fold() -> None:
    report = triage(
        "node-a:10:11 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, "
        "error: No space left on device (28)",
        "node-a:12:13 [2] proxy.cc:1326 NCCL WARN Socket recv failed",
        "[rank2]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error",
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 12 closing signal SIGTERM",
    )
    assert (report.verdict.finding, report.verdict.confidence) == ("DDP405", Confidence.CERTAIN)
    assert [finding.id for finding in report.findings] == ["DDP405"]
    folded = [item.text for item in report.findings[0].folded]
    assert len(folded) == 3 and any("Socket recv failed" in text for text in folded)


def test_the_earlier_cause_of_two_leads() -> None:
    one = "[2026-11-30 10:00:05] node-a:1:2 [0] init.cc:1 NCCL WARN Mismatched NCCL version detected : rank 1 version 22705"
    other = "[2026-11-30 10:00:01] node-b:3:4 [0] bootstrap.cc:1 NCCL WARN Bootstrap : no socket interface found"
    assert triage(one, other).verdict.finding == "DDP301" or "DDP301" not in {check.id for check in LOADED.checks()}


def test_an_ambiguous_line_ends_in_candidates_and_the_probe_that_separates() -> None:
    verdict = triage("RuntimeError: NCCL Error 2: unhandled system error").verdict
    assert (verdict.status, verdict.finding) == ("unknown", None)
    assert verdict.candidates[0] == "DDP405" and len(verdict.candidates) > 2
    assert verdict.separate is not None and "df -h /dev/shm" in verdict.separate.commands


def test_a_work_around_is_no_diagnosis() -> None:
    verdict = triage("with NCCL_P2P_DISABLE=1 it works").verdict
    assert verdict.finding is None


HEALTHY = """\
vm:1:1 [0] NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>
vm:1:1 [0] NCCL INFO cudaDriverVersion 12080
vm:1:1 [0] NCCL INFO NCCL version 2.30.7+cuda12.9
vm:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
vm:1:1 [0] NCCL INFO NET/IB : No device found.
vm:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0>
vm:1:1 [0] NCCL INFO Using network Socket
vm:1:1 [0] NCCL INFO [Rank 0] ncclCommInitRank comm 0x7f rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xb4 - Init START
vm:1:1 [0] NCCL INFO RAS client listening socket at 127.0.0.1<28028>
vm:1:1 [0] NCCL INFO Bootstrap timings total 0.122350 (create 0.000107, send 0.000187, recv 0.070002, ring 0.022761, delay 0.000001)
vm:1:1 [0] NCCL INFO P2P is disabled between connected GPUs 0 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.
vm:1:1 [0] NCCL INFO Rank 0: 1 Net devices
vm:1:1 [0] NCCL INFO comm 0x7f rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0
vm:1:1 [0] NCCL INFO Channel 00/04 : 0 1
vm:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct
vm:1:1 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x7f rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xb4 - Init COMPLETE
Epoch 1, step 10: loss = 0.71
"""


def test_a_healthy_log_gives_nothing_but_notes() -> None:
    report = triage(*HEALTHY.splitlines())
    assert {finding.severity for finding in report.findings} <= {Severity.NOTE}
    assert (report.verdict.finding, report.verdict.candidates) == (None, ())
