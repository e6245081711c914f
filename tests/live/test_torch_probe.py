"""The torch probe on this interpreter's real torch: healthy, broken in the ways torch breaks, and with ranks that hang."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checking import run_check
from ddp_doctor_checks.software.torch_unusable import TorchUnusable
from ddp_doctor_checks.software.trial_failed import TrialFailed

from ddp_doctor.facts.software import TorchCuda, TorchInstall, TorchRuntime, TrialRank
from ddp_doctor.host import Host, Options
from ddp_doctor.model import Absent, Facts, Stage
from ddp_doctor.probes import interpreter, torch_ranks

pytest.importorskip("torch")
pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]

PATCH_RANK_1 = """
import ctypes, os, signal, sys
def patch():
    # with a CUDA build there is one more fork, which asks torch.cuda
    if "torch.distributed" in sys.modules:
        import torch.distributed
        real = torch.distributed.init_process_group
        torch.distributed.init_process_group = lambda *args, **named: (
            {stuck} if named["rank"] == 1 else real(*args, **named)
        )
os.register_at_fork(after_in_child=patch)
"""


def observe(host: Host, trial_seconds: float = torch_ranks.TRIAL_SECONDS) -> Facts:
    """What both probes of torch say; afterwards no worker is left."""
    seen = [*interpreter.take(host, Facts()), *torch_ranks.take(host, Facts(), trial_seconds=trial_seconds)]
    assert workers_of(os.getpid()) == []
    assert host.undead == {}
    absents = [item for item in seen if isinstance(item, Absent)]
    return Facts([item for item in seen if not isinstance(item, Absent)], absents)


def workers_of(doctor: int) -> list[int]:
    """PIDs of torch workers, forked ranks among them, that this doctor started and that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.endswith(b"workers/torch_ranks.py") for word in words) and str(doctor).encode() in words:
                found.append(int(entry.name))
    return found


@pytest.fixture
def environ_with(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """This environment with one more module on PYTHONPATH."""

    def make(file: str, text: str, **more: str) -> dict[str, str]:
        folder = tmp_path / "modules"
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
        return {**os.environ, "PYTHONPATH": str(folder), **more}

    return make


def test_a_healthy_torch_forms_a_group() -> None:
    facts = observe(Host(60, python=sys.executable))
    install, runtime, cuda = facts.first(TorchInstall), facts.first(TorchRuntime), facts.first(TorchCuda)
    assert install and install.path and install.version
    assert runtime and runtime.outcome == "imported" and runtime.version == install.version
    assert runtime.cuda == install.cuda and runtime.gloo and runtime.libuv and not runtime.printed
    assert cuda and cuda.built == bool(runtime.cuda or runtime.hip)
    ranks = facts[TrialRank]
    assert [rank.outcome for rank in ranks] == ["passed"] * len(ranks)
    assert len(ranks) >= 2 and all(rank.value_ok and rank.address for rank in ranks)
    assert {rank.stage for rank in ranks} == {Stage.FIRST_COLLECTIVE}
    for check in (TorchUnusable, TrialFailed):
        assert run_check(check, *facts).outcome.status == "clear"


def test_as_many_ranks_as_asked_for() -> None:
    ranks = observe(Host(60, python=sys.executable, options=Options(nproc=3)))[TrialRank]
    assert [(rank.rank, rank.world_size, rank.outcome) for rank in ranks] == [(n, 3, "passed") for n in range(3)]


def test_the_variables_of_a_job_neither_stop_it_nor_are_its_files_touched(tmp_path: Path) -> None:
    files = ["NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "TORCHELASTIC_ERROR_FILE", "TORCH_FR_DUMP_TEMP_FILE"]
    for name in files:
        (tmp_path / name).write_text("the job's own\n", encoding="utf-8")
    job = {name: str(tmp_path / name) for name in files} | {
        "NCCL_DEBUG": "INFO",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "RANK": "5",
        "LOCAL_RANK": "5",
        "WORLD_SIZE": "8",
        "MASTER_ADDR": "no-such-host.invalid",
        "MASTER_PORT": "99999",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
        "PYTHONWARNINGS": "always",
    }
    facts = observe(Host(60, python=sys.executable, environ=os.environ | job))
    assert {rank.outcome for rank in facts[TrialRank]} == {"passed"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
    assert {(tmp_path / name).read_text(encoding="utf-8") for name in files} == {"the job's own\n"}


def test_what_others_print_does_not_disturb_the_conversation(environ_with: Callable[..., dict[str, str]]) -> None:
    noise = "import os\nfor fd in (1, 2): os.write(fd, b'{\"torch\": {}}\\n\\xff\\x00' * 1000)\n"
    facts = observe(Host(60, python=sys.executable, environ=environ_with("sitecustomize.py", noise)))
    assert {rank.outcome for rank in facts[TrialRank]} == {"passed"}


@pytest.mark.parametrize(
    ("text", "outcome", "words"),
    [
        ("raise ImportError('libcudart.so.12: no such file')", "raised", "ImportError: libcudart.so.12: no such file"),
        ("import sys; sys.exit('no licence')", "raised", "SystemExit: no licence"),
        ("def f(:", "raised", "SyntaxError"),
        ("import os; os.kill(os.getpid(), 11)", "died", "killed by SIGSEGV"),
        ("import os; os._exit(3)", "died", "exit code 3"),
        ("import time; time.sleep(1000)", "timeout", "did not end in"),
        ("import ctypes; ctypes.PyDLL(None).sleep(1000)", "timeout", "did not end in"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "timeout", "did not end in"),
    ],
)
def test_a_broken_torch_is_named(
    text: str, outcome: str, words: str, environ_with: Callable[..., dict[str, str]]
) -> None:
    environ = environ_with("torch.py", text)
    started = time.monotonic()
    facts = observe(Host(2.0 if outcome == "timeout" else 30, python=sys.executable, environ=environ))
    assert time.monotonic() - started < 2.5
    runtime = facts.first(TorchRuntime)
    assert runtime and runtime.outcome == outcome
    assert words in runtime.error
    if "exit" not in text and "SIGSTOP" not in text:
        assert "/modules/torch.py:1" in runtime.error
    assert facts.lacking(TorchCuda) and facts.lacking(TrialRank)
    judged = run_check(TorchUnusable, *facts, *facts.absents)
    if outcome == "timeout":  # two seconds are too few to call a slow import broken
        assert judged.outcome.status == "unknown" and "did not end in" in judged.outcome.reason
        return
    (finding,) = judged.findings
    for command in finding.fixes[0].commands:
        subprocess.run(command, shell=True, check=True)
    mended = observe(Host(60, python=sys.executable, environ=environ))
    assert run_check(TorchUnusable, *mended).outcome.status == "clear"


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = str(tmp_path / "bare/bin/python")
    facts = observe(Host(30, python=bare))
    runtime = facts.first(TorchRuntime)
    assert runtime and runtime.error == "ModuleNotFoundError: No module named 'torch'"
    (finding,) = run_check(TorchUnusable, *facts, *facts.absents).findings
    assert finding.summary == f"{bare} has no torch"
    # the first fix, in the environment that trains
    trains = str(Path(sys.executable).parent)
    printed = finding.fixes[0].commands[0].replace("ddp-doctor run --python", "echo")
    chosen = subprocess.run(
        ["sh", "-c", printed], env=os.environ | {"PATH": f"{trains}:/bin:/usr/bin"}, capture_output=True, text=True
    )
    mended = observe(Host(60, python=chosen.stdout.strip()))
    assert run_check(TorchUnusable, *mended).outcome.status == "clear"


def test_an_interpreter_that_cannot_be_started(tmp_path: Path) -> None:
    facts = observe(Host(30, python=str(tmp_path / "nothing")))
    assert {absent.kind for absent in facts.absents} == {"TorchInstall", "TorchRuntime", "TorchCuda", "TrialRank"}
    assert run_check(TorchUnusable, *facts.absents).outcome.status == "unknown"


@pytest.mark.parametrize(
    "stuck", ["ctypes.PyDLL(None).sleep(1000)", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["holds-gil", "stopped"]
)
def test_a_rank_that_hangs_is_named_and_reaped(stuck: str, environ_with: Callable[..., dict[str, str]]) -> None:
    environ = environ_with("sitecustomize.py", PATCH_RANK_1.format(stuck=stuck))
    host = Host(60, python=sys.executable, environ=environ, options=Options(nproc=2))
    facts = observe(host, trial_seconds=3.0)
    waiting, hanging = facts[TrialRank]
    assert (waiting.outcome, hanging.outcome) == ("timeout", "timeout")
    assert "wait timeout" in waiting.error and not hanging.error
    assert hanging.stage is Stage.GLOO_MESH and 1 < hanging.seconds < 4
    (finding,) = run_check(TrialFailed, *facts).findings
    assert "rank 1 stands at gloo-mesh" in finding.summary


def test_a_rank_that_dies_is_named_at_once(environ_with: Callable[..., dict[str, str]]) -> None:
    environ = environ_with("sitecustomize.py", PATCH_RANK_1.format(stuck="os.kill(os.getpid(), 11)"))
    started = time.monotonic()
    facts = observe(Host(60, python=sys.executable, environ=environ, options=Options(nproc=2)))
    runtime = facts.first(TorchRuntime)
    assert runtime and time.monotonic() - started - runtime.seconds < 2
    assert [(rank.outcome, rank.error) for rank in facts[TrialRank]] == [
        ("unfinished", ""),
        ("failed", "killed by SIGSEGV"),
    ]


def test_the_hosts_deadline_holds_when_everything_hangs(environ_with: Callable[..., dict[str, str]]) -> None:
    stop = "import os, signal\nos.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGSTOP))\n"
    host = Host(5.0, python=sys.executable, environ=environ_with("sitecustomize.py", stop), options=Options(nproc=2))
    started = time.monotonic()
    facts = observe(host)
    assert time.monotonic() - started < 5.5
    told = {rank.outcome for rank in facts[TrialRank]} or {absent.status for absent in facts.lacking(TrialRank)}
    assert told == {"timeout"}


def test_an_interface_that_does_not_exist_is_in_the_words_of_gloo() -> None:
    environ = os.environ | {"GLOO_SOCKET_IFNAME": "eth99"}
    facts = observe(Host(60, python=sys.executable, environ=environ, options=Options(nproc=2)))
    for rank in facts[TrialRank]:
        assert (rank.outcome, rank.stage, rank.interface) == ("failed", Stage.GLOO_MESH, "eth99")
        assert "Unable to find address for: eth99" in rank.error
    (finding,) = run_check(TrialFailed, *facts).findings
    (fix,) = [fix for fix in finding.fixes if "loopback" in fix.title]
    name, _, value = fix.commands[0].removeprefix("export ").partition("=")
    mended = observe(Host(60, python=sys.executable, environ=environ | {name: value}, options=Options(nproc=2)))
    assert run_check(TrialFailed, *mended).outcome.status == "clear"


@pytest.mark.slow
def test_the_printed_reproduction_runs() -> None:
    failed: Any = functools.partial(TrialRank, source=f"2 ranks started with {sys.executable}", backend="gloo")
    rank = failed(rank=0, world_size=2, stage=Stage.STORE_WAIT, outcome="failed", error="x")
    command = run_check(TrialFailed, rank).findings[0].fixes[-1].commands[0]
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.count("tensor([2.])")) == (0, 2)


SHOW = """
import sys
from ddp_doctor.host import Host, Options
from ddp_doctor.model import Facts
from ddp_doctor.probes import torch_ranks
print("started", flush=True)
for item in torch_ranks.take(Host(60, python=sys.executable, options=Options(nproc=2)), Facts(), trial_seconds=3.0):
    if item.__class__.__name__ == "TrialRank": print(item.text())
"""


@pytest.mark.parametrize("stuck", ["ctypes.PyDLL(None).sleep(1000)", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_a_killed_doctor_leaves_no_worker(stuck: str, environ_with: Callable[..., dict[str, str]]) -> None:
    environ = environ_with("sitecustomize.py", PATCH_RANK_1.format(stuck=stuck))
    environ["PYTHONPATH"] += f":{ROOT}"
    doctor = subprocess.Popen([sys.executable, "-c", SHOW], env=environ, stdout=subprocess.PIPE)
    try:
        give_up = time.monotonic() + 30
        while len(workers_of(doctor.pid)) < 3 and time.monotonic() < give_up:
            time.sleep(0.02)
        assert len(workers_of(doctor.pid)) == 3
    finally:
        doctor.send_signal(signal.SIGKILL)
        doctor.communicate()
    time.sleep(1.0)
    assert workers_of(doctor.pid) == []


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"), reason="needs root")
def test_a_loopback_interface_that_is_down_and_the_printed_fix() -> None:
    error = "(127.0.0.1, 1) (errno: 101 - Network is unreachable)"
    rank = TrialRank(rank=0, world_size=2, backend="gloo", stage=Stage.STORE_CONNECT, outcome="failed", error=error)
    (fix,) = run_check(TrialFailed, rank).findings[0].fixes[0].commands
    both = f"'{sys.executable}' -c '{SHOW}'; {fix}; '{sys.executable}' -c '{SHOW}'"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    shown = subprocess.run(
        ["unshare", "-n", "sh", "-c", both], env=environ, capture_output=True, text=True, timeout=120
    )
    _, before, after = shown.stdout.split("started\n")
    assert "errno: 101 - Network is unreachable" in before and "127.0.0.1" in before
    assert after.count("passed at first-collective") == 2
