"""torch's own NCCL backend with `device_id`: a real CUDA build of torch and its libnccl on a described node.

`DDP_DOCTOR_TEST_CUDA_PYTHON` names the interpreter with that torch; its CUDA runtime is replaced by the fakes', so torch's
own kernels do nothing, and the all-reduce is NCCL's host code with the sum formed on the host.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec
import pytest
from fakes.nccl import Stage, healthy
from fakes.node import Driver, have_compiler

from ddp_doctor.facts.communicator import CommunicatorRank
from ddp_doctor.facts.software import TorchRuntime, TrialRank
from ddp_doctor.host import Host, Options
from ddp_doctor.model import Absent, Facts
from ddp_doctor.probes.torch_ranks import take_nccl

PYTHON = os.environ.get("DDP_DOCTOR_TEST_CUDA_PYTHON", "")
KNOWN = Facts(
    [
        TorchRuntime(outcome="imported", nccl_backend=True),
        *(CommunicatorRank(rank=rank, world_size=2, device=rank, outcome="passed") for rank in range(2)),
    ]
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="DDP_DOCTOR_TEST_CUDA_PYTHON names no interpreter with a CUDA build of torch"
    ),
    pytest.mark.skipif(not have_compiler(), reason="the fake CUDA runtime is built with gcc, which is missing"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the fake CUDA runtime is for x86-64"),
]


def tried(folder: Path, *, with_gpus: bool = True, **environ: str) -> list[object]:
    node = msgspec.structs.replace(healthy(2), driver=Driver(version="580.65.06", cuda="13.0"))
    fakes = Stage(folder).environ_for_torch(node, "node", 2) if with_gpus else {}
    plain = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    host = Host(150.0, environ=plain | fakes | environ, python=PYTHON, options=Options(active="always"))
    return list(take_nccl(host, KNOWN))


def test_ranks_of_torch_form_a_communicator_inside_init_process_group(tmp_path: Path) -> None:
    ranks = [item for item in tried(tmp_path) if isinstance(item, TrialRank)]
    assert [(rank.rank, rank.backend, rank.outcome, rank.value_ok) for rank in ranks] == [
        (0, "nccl", "passed", True),
        (1, "nccl", "passed", True),
    ]


def test_what_nccl_says_comes_through_torch(tmp_path: Path) -> None:
    ranks = [item for item in tried(tmp_path, NCCL_SOCKET_IFNAME="nonexistent") if isinstance(item, TrialRank)]
    failed = [rank for rank in ranks if rank.outcome == "failed"]
    assert failed and {rank.stage.label for rank in failed} == {"comm-bootstrap"}
    assert any("no socket interface found" in rank.error for rank in failed)


def test_a_torch_that_cannot_initialise_cuda_tells_why(tmp_path: Path) -> None:
    (absent,) = tried(tmp_path, with_gpus=False)
    assert isinstance(absent, Absent) and absent.kind == "TrialRank"
    assert absent.reason.startswith("torch.cuda cannot be initialised: RuntimeError: Found no NVIDIA driver")
