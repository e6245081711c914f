"""Lines of NCCL's own diagnostics, as 2.32.3 prints them, as copies between GPUs."""

from __future__ import annotations

from trial import rank

from ddp_doctor.facts.p2p import PairCopy
from ddp_doctor.interpret.nccl_diagnostics import interpret
from ddp_doctor.model import Facts

PAIR = "srcRank=0 srcCudaDev=0 srcNvmlDev=2 dstRank=1 dstCudaDev=1 dstNvmlDev=5 path=PHB handle="
WRONG = f"vm:7 NCCL DIAG [INFO] p2p: write mismatch {PAIR}CUMEM_POSIX_FD expected=0x4000000000000001 got=0x0000000000000000 verify=0x0000000000000000; check the affected pair with 'nvidia-smi topo -p2p p'"  # noqa: E501
REFUSED = f"vm:7 NCCL DIAG [INFO] p2p: peer-memory import failed {PAIR}LEGACY_CUDA_IPC reason=CUDA failure: invalid argument; check CUDA IPC support"  # noqa: E501
HARMLESS = (
    "vm:7 NCCL DIAG === NCCL Diagnostics ===",
    "vm:7 NCCL DIAG [OK] net bw: skipped (single host or no network transport)",
    "vm:7 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair (2 peer accesses)",
    "vm:7 NCCL DIAG NCCL diagnostics completed in 121.4 ms across 2 ranks",
)


def seen(*lines: str) -> list[PairCopy]:
    return [fact for fact in interpret(Facts([rank(0, lines=lines)])) if isinstance(fact, PairCopy)]


def test_wrong_data_is_named_with_the_pair_and_its_mechanism() -> None:
    (copy,) = seen(*HARMLESS, WRONG)
    assert (copy.first, copy.second, copy.mechanism, copy.outcome, copy.step) == (2, 5, "cumem", "wrong-data", "write")
    assert copy.error == "0x0000000000000000 instead of 0x4000000000000001"


def test_memory_that_cannot_be_joined() -> None:
    (copy,) = seen(REFUSED)
    assert (copy.mechanism, copy.outcome, copy.step) == ("ipc", "failed", "open")
    assert copy.error == "CUDA failure: invalid argument"


def test_what_is_well_says_nothing_of_pairs() -> None:
    assert seen(*HARMLESS) == []
