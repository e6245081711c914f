"""Records the logs of tests/cases/logs: `python tests/record_logs.py healthy|faulty|torch|live [VERSION...|FAULT...]`.

Healthy and faulty ranks of the real libnccl on a described node, real ranks of torch with its talkative settings, and what
the ranks of every live fault print until torch gives up.
Host names, addresses and the folders of this machine are replaced; a log that is there already is kept.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "live"), str(HERE.parent), str(HERE.parent / "checks")]

import faults as live  # noqa: E402
from fakes.nccl import Stage, healthy, why_not  # noqa: E402
from fakes.node import read_node  # noqa: E402
from jobs import HANGS  # noqa: E402
from nccl_faults import FAULTS, two_networks  # noqa: E402

from ddp_doctor.probes.communicator import Plan, form  # noqa: E402

LOGS = HERE / "cases" / "logs"
VERSIONS = ("2.18.3", "2.21.5", "2.27.5", "2.30.7", "2.31.2", "2.32.3")
BETWEEN = ("2.19.3", "2.20.5", "2.25.1", "2.26.2", "2.28.9", "2.29.3")
"""Versions of which a healthy log per transport is enough."""
SHARED_MEMORY = {"NCCL_P2P_DISABLE": "1", "NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0"}
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
MOST_LINES = 400

SETTINGS: dict[str, tuple[int, dict[str, str], str]] = {
    "two-ranks": (2, {}, ""),
    "four-ranks-legacy-ipc": (4, {"NCCL_CUMEM_ENABLE": "0"}, ""),
    "shared-memory": (2, SHARED_MEMORY, ""),
    "sockets": (2, SOCKETS, ""),
    "two-hosts": (2, {"NCCL_HOSTID": "node-{rank}"}, ""),
    "consumer-cards": (2, {}, "rtx4090x2"),
    "all-subsystems": (2, {"NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,P2P,SHM,GRAPH,TUNING"}, ""),
}


def cleaned(lines: Iterable[str]) -> str:
    """The lines under another host's name, without this machine's addresses and folders."""
    text = "\n".join(lines) + "\n"
    text = re.sub(r"(?m)^(\[[^\]]*\] )?[\w.-]+(?=:\d+:\d+ )", r"\1node-a", text)
    text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(os.uname().nodename)}(?![A-Za-z0-9])", "node-a", text)
    text = re.sub(
        r"(?<![\d.])(?!127\.|10\.77\.|172\.17\.0\.1\b|0\.0\.0\.0)(?:\d{1,3}\.){3}\d{1,3}(?=<|:\d)", "192.0.2.7", text
    )
    text = re.sub(r"/tmp/[\w./-]+|/home/[\w./-]+|/root/[\w./-]+|/work/[\w./-]+", "/job", text)
    return re.sub(r"0x[0-9a-f]{9,}", lambda found: found[0][:12], text)


def write(folder: Path, logs: dict[str, Sequence[str]], **told: str) -> None:
    """The logs of one case; `told` goes into expected.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in logs.items():
        kept = [*lines[: MOST_LINES // 2], *lines[-MOST_LINES // 2 :]] if len(lines) > MOST_LINES else lines
        (folder / name).write_text(cleaned(kept), encoding="utf-8")
    if told:
        (folder / "expected.toml").write_text("".join(f'{key} = "{value}"\n' for key, value in told.items()))


def record(folder: Path, plans: Sequence[Plan], stage: Stage, **told: str) -> None:
    """Run these ranks and keep what NCCL printed."""
    ranks = form(stage.host(), plans, quiet=4.0)
    write(folder, {f"rank{place}.log": rank.lines for place, rank in enumerate(ranks)}, **told)
    print(folder.name, [rank.outcome for rank in ranks], flush=True)


def record_healthy(versions: Sequence[str]) -> None:
    for version in versions:
        for name, (count, environ, node) in SETTINGS.items():
            if version in BETWEEN and name not in ("two-ranks", "shared-memory", "sockets"):
                continue
            folder = LOGS / "healthy" / f"nccl-{version}-{name}"
            if folder.exists() or why_not(version):
                continue
            with tempfile.TemporaryDirectory() as scratch:
                stage = Stage(Path(scratch))
                machine = read_node(node) if node else healthy(count)
                plans = [
                    stage.plan(
                        rank,
                        count,
                        version,
                        node=machine,
                        environ={key: value.format(rank=rank) for key, value in environ.items()},
                    )
                    for rank in range(count)
                ]
                record(folder, plans, stage)


def record_faulty(versions: Sequence[str]) -> None:
    for fault in FAULTS:
        for version in versions:
            folder = LOGS / "faulty" / f"{fault.id}-{fault.name.replace(' ', '-')}-{version}"
            if folder.exists() or why_not(version) or not fault.exists_in(version):
                continue
            try:
                with tempfile.TemporaryDirectory() as scratch, two_networks() if fault.between_hosts else nullcontext():
                    stage = Stage(Path(scratch))
                    record(folder, fault.plans(stage, version), stage, id=fault.id, verdict="unknown")
            except (TimeoutError, subprocess.CalledProcessError, FileNotFoundError) as error:
                print(folder.name, "not recorded:", error, flush=True)


TORCH = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 2)
if "bare" not in sys.argv:  # torch 2.13 for CPUs dies in DDP() with DETAIL
    model = DDP(model)
group = dist.new_group(list(range(dist.get_world_size()))) if "groups" in sys.argv else None
for step in range(3):
    loss = model(torch.randn(8, 4)).sum()
    loss.backward()
    for weight in model.parameters():
        dist.all_reduce(weight.grad)
    if "quiet" not in sys.argv:
        print(f"step {step} loss = {loss.item():.4f}", flush=True)
dist.barrier(group=group)
dist.destroy_process_group()
"""

TALKATIVE: dict[str, tuple[list[str], dict[str, str], list[str]]] = {
    "plain": ([], {}, []),
    "info": ([], {"TORCH_CPP_LOG_LEVEL": "INFO"}, []),
    "detail": ([], {"TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, ["bare"]),
    "detail-groups": ([], {"TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, ["bare", "groups"]),
    "info-quiet-script": ([], {"TORCH_CPP_LOG_LEVEL": "INFO", "LOGLEVEL": "INFO"}, ["quiet"]),
    "c10d-rendezvous": (
        ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"],
        {"LOGLEVEL": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"},
        [],
    ),
    "torch-logs": ([], {"TORCH_LOGS": "+distributed", "TORCH_CPP_LOG_LEVEL": "INFO"}, []),
    "static-rendezvous": (["--master-addr=localhost", "--master-port=29617"], {"TORCH_CPP_LOG_LEVEL": "INFO"}, []),
}


def record_torch() -> None:
    """Two ranks on Gloo under torchrun, with what each setting prints."""
    import torch

    for name, (options, environ, words) in TALKATIVE.items():
        folder = LOGS / "healthy" / f"torch-{torch.__version__.partition('+')[0]}-{name}"
        if folder.exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            script = Path(scratch) / "train.py"
            script.write_text(TORCH)
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nproc-per-node=2",
                *(options or ["--standalone"]),
            ]
            done = subprocess.run(
                [*command, str(script), *words],
                env=os.environ | environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
                timeout=120,
            )
            write(folder, {"torchrun.log": done.stdout.splitlines()})
            print(folder.name, flush=True)


FRAME = re.compile(r"(?:\[rank\d+\]: ?)?frame #(?:[5-9]|\d\d)")
"""The frames of C++ that tell nothing."""
GIVES_UP = 5.0
"""Seconds of patience that the live faults' ranks have; Gloo waits five times as long for a peer's connection."""


def record_live(names: Sequence[str]) -> None:
    """What each rank, or launcher, of the live faults prints until it ends, or until torch has said all it will say."""
    os.environ["HANG_TIMEOUT"] = str(GIVES_UP)
    for fault in live.FAULTS:
        folder = LOGS / "live" / fault.name
        if folder.exists() or (names and fault.name not in names):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            logs = Path(scratch)
            try:
                with live.running(fault, logs) as started:
                    deadline = time.monotonic() + 5.5 * GIVES_UP
                    while time.monotonic() < deadline and any(process.poll() is None for process in started):
                        time.sleep(0.2)
                    printed = {file.name: file.read_text(errors="replace") for file in sorted(logs.iterdir())}
            except TimeoutError as error:
                print(fault.name, "not recorded:", error, flush=True)
                continue
            folder.mkdir(parents=True)
            lines = 0
            for name, text in printed.items():
                text = text.replace(str(HANGS), "/job").replace(sys.prefix, "/venv")
                told = [line for line in text.splitlines() if not FRAME.match(line)]
                told = [*told[:60], *told[-40:]] if len(told) > 100 else told
                kept = cleaned(told) if told else ""
                lines += kept.count("\n")
                (folder / name).write_text(kept)
            (folder / "expected.toml").write_text(
                f'live = {list(fault.expected)}\nverdict = "unknown"\n'.replace("'", '"')
            )
            print(fault.name, lines, "lines", flush=True)


if __name__ == "__main__":
    what, *wanted = sys.argv[1:] or ["healthy"]
    if what == "torch":
        record_torch()
    elif what == "live":
        record_live(wanted)
    elif what == "faulty":
        record_faulty(wanted or VERSIONS)
    else:
        record_healthy(wanted or (*VERSIONS, *BETWEEN))
