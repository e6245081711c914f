"""`attach` on several hosts, over a real OpenSSH server and a real Slurm: one verdict on all of their ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import slurm
import sshd
from jobs import HANGS, end, free_port, hanging

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(sshd.missing()), reason=f"not installed: {sshd.missing()}")]
PYTHONPATH = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
NODES = {"node-a": "10.78.0.1", "node-b": "10.78.0.2"}
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")


def attach(path: str, *arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
    """The exit code, the report and what was said beside it."""
    command = [*prefix, sys.executable, "-m", "ddp_doctor", "attach", "--format", "json", *arguments]
    environ = os.environ | {"PATH": path, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


@contextmanager
def nodes() -> Iterator[dict[str, tuple[str, ...]]]:
    """What to put before a command to run it on each of two hosts: names, processes and network of their own."""
    with ExitStack() as stack:
        holders = {}
        for name in NODES:
            inside = f"hostname {name} && ip link set lo up && exec sleep infinity"
            command = [
                "unshare",
                "--uts",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                inside,
            ]
            holder = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            stack.callback(end, holder)
            children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
            deadline = time.monotonic() + 10
            while not (pids := children.read_text().split()) or Path(f"/proc/{pids[0]}/comm").read_text() != "sleep\n":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            holders[name] = pids[0]
        first, second = holders.values()
        link = f"ip link add eth0 netns {first} type veth peer name eth0 netns {second}"
        subprocess.run(link.split(), check=True)
        prefixes = {}
        for name, pid in holders.items():
            prefixes[name] = ("nsenter", "--target", pid, "--uts", "--net", "--pid", "--mount")
            for words in (f"address add {NODES[name]}/24 dev eth0", "link set eth0 up"):
                subprocess.run([*prefixes[name], "ip", *words.split()], check=True)
        yield prefixes


@contextmanager
def rank(prefix: tuple[str, ...], number: int, world: int, **variables: str) -> Iterator[None]:
    """`meet.py` as a rank on a host."""
    # the first process of each host has one and the same PID
    ready = Path(variables["READY"]) / str(number)
    ready.mkdir()
    variables |= {"READY": str(ready)}
    told = {"RANK": str(number), "WORLD_SIZE": str(world), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    process = subprocess.Popen(
        [*prefix, sys.executable, str(HANGS / "meet.py")],
        env=os.environ | told | variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        end(process)


@contextmanager
def ended_after(folder: Path) -> Iterator[None]:
    """The ranks that marked themselves in a folder do not outlive the block, as Slurm's do once its daemons have gone."""
    try:
        yield
    finally:
        for mark in folder.iterdir():
            try:
                os.kill(int(mark.name), signal.SIGKILL)
            except ProcessLookupError:
                pass


def when_ready(folder: Path, count: int) -> None:
    """Return once so many ranks stand where they will stay."""
    deadline = time.monotonic() + 60
    while len([path for path in folder.rglob("*") if path.is_file()]) < count:
        assert time.monotonic() < deadline, "the ranks did not come up"
        time.sleep(0.1)
    time.sleep(1.0)


def attach_to_both(folder: Path, size: int, *variables: dict[str, str]) -> tuple[int, dict[str, Any], str]:
    """What `attach --hosts` says of a job of that size, of which each of the two hosts has one rank with these variables."""
    place = {"MASTER_ADDR": NODES["node-a"], "MASTER_PORT": str(free_port()), "READY": str(folder / "ready")}
    (folder / "ready").mkdir()
    with ExitStack() as stack:
        prefixes = stack.enter_context(nodes())
        ports = {}
        for name, address in NODES.items():
            server = sshd.server(folder / "ssh", prefixes[name], address, PYTHONPATH=PYTHONPATH)
            ports[name] = (address, stack.enter_context(server))
        for number, (name, own) in enumerate(zip(NODES, variables, strict=True)):
            stack.enter_context(rank(prefixes[name], number, size, **place, **own))
        when_ready(folder / "ready", len(NODES))
        path = sshd.client(folder / "ssh", ports)
        return attach(path, "--hosts", ",".join(NODES), prefix=prefixes["node-a"])


@pytest.mark.slow
@pytest.mark.root
@root
def test_one_verdict_on_the_ranks_of_two_hosts(tmp_path: Path) -> None:
    _, report, said = attach_to_both(tmp_path, 2, {}, {"MODE": "prepare"})
    assert "was not looked at" not in said
    assert report["target"]["hosts"] == ["node-a", "node-b"] and report["target"]["world_size"] == 2
    assert [(row["rank"], row["host"]) for row in report["ranks"]] == [(0, "node-a"), (1, "node-b")]
    waits = report["ranks"][0]["waits_for"]
    assert [wait["rank"] for wait in waits] == [1]
    assert report["verdict"]["finding"] == "DDP604", report["verdict"]
    assert report["findings"][0]["ranks"] == [1] and "node-b" in report["findings"][0]["hosts"]


@pytest.mark.slow
@pytest.mark.root
@root
def test_a_rank_that_runs_on_neither_host_is_named_with_both(tmp_path: Path) -> None:
    code, report, _ = attach_to_both(tmp_path, 3, {}, {})
    assert code == 1 and report["verdict"]["finding"] == "DDP101", report["verdict"]
    (found,) = [each for each in report["findings"] if each["id"] == "DDP101"]
    assert found["ranks"] == [2] and "node-a or node-b" in found["summary"]


def test_a_host_that_cannot_be_reached_is_named_and_the_others_are_looked_at(tmp_path: Path) -> None:
    with sshd.server(tmp_path / "ssh", PYTHONPATH=PYTHONPATH) as port, hanging("meet.py", RANK="0", WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1", READY=str(tmp_path / "ready")):  # fmt: skip
        (tmp_path / "ready").mkdir()
        when_ready(tmp_path / "ready", 1)
        known = {"here": ("127.0.0.1", port), "away": ("127.0.0.1", sshd.unused_port())}
        _, report, said = attach(sshd.client(tmp_path / "ssh", known), "--hosts", "here,away")
    assert "away was not looked at: ssh: connect to host 127.0.0.1" in said and "Connection refused" in said
    assert {run["name"]: run["status"] for run in report["probes"]} == {"ssh here": "ok", "ssh away": "absent"}
    assert any(row["rank"] == 0 and row["pid"] for row in report["ranks"])


def test_a_host_without_the_doctor_is_named(tmp_path: Path) -> None:
    # where it is installed, an interpreter without what is installed
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n"
    )
    with sshd.server(tmp_path / "ssh", PYTHONPATH=str(tmp_path), PYTHONNOUSERSITE="1") as port:
        path = sshd.client(tmp_path / "ssh", {"here": ("127.0.0.1", port)})
        code, report, said = attach(path, "--hosts", "here")
    assert code == 5 and report["verdict"]["status"] == "nothing"
    assert "here was not looked at: ddp-doctor is not installed there" in said


def test_a_host_that_does_not_answer_costs_the_time_that_was_given(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh").write_text("#!/bin/sh\nexec sleep 1000\n")
    (programs / "ssh").chmod(0o755)
    started = time.monotonic()
    _, report, said = attach(f"{programs}:{os.environ['PATH']}", "--hosts", "a,b", "--timeout", "5")
    assert time.monotonic() - started < 7
    assert "a was not looked at: no answer in" in said and "b was not looked at: no answer in" in said
    assert [run["status"] for run in report["probes"]] == ["timeout", "timeout"]


def test_a_host_that_wants_a_password_is_named(tmp_path: Path) -> None:
    with sshd.server(tmp_path / "ssh", PYTHONPATH=PYTHONPATH) as port:
        path = sshd.client(tmp_path / "ssh", {"here": ("127.0.0.1", port)})
        (tmp_path / "ssh" / "authorized").write_text("")
        code, report, said = attach(path, "--hosts", "here")
    assert code == 5 and report["verdict"]["status"] == "nothing"
    assert "here was not looked at: " in said and "Permission denied" in said


def test_an_interrupt_ends_what_runs_on_the_other_host(tmp_path: Path) -> None:
    with sshd.server(tmp_path / "ssh", PYTHONPATH=PYTHONPATH) as port:
        path = sshd.client(tmp_path / "ssh", {"here": ("127.0.0.1", port)})
        command = [sys.executable, "-m", "ddp_doctor", "attach", "--hosts", "here", "--probe-timeout=40.125"]
        environ = os.environ | {"PATH": path, "PYTHONPATH": PYTHONPATH}
        process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        interrupted(process, "--probe-timeout=40.125")


def interrupted(process: subprocess.Popen[str], option: str) -> None:
    """Interrupt an `attach` with this option whose other half waits for a probe; both have to end at once."""
    remote, worker = there(option)
    os.kill(worker, signal.SIGSTOP)  # a probe that gives no answer
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    while alive(remote) or alive(worker):
        assert time.monotonic() - started < 10, "it still runs there"
        time.sleep(0.05)
    assert process.returncode == 130


def there(option: str) -> tuple[int, int]:
    """The PID of the doctor on the other host, and of one of its workers."""
    deadline = time.monotonic() + 30
    found: int | None = None
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if found is None and entry.name.isdigit():
                words = words_of(int(entry.name))
                found = int(entry.name) if "observe" in words and option in words and words[0] != "ssh" else None
        if found is not None and "-m" in words_of(found):
            for children in Path(f"/proc/{found}/task").glob("*/children"):
                for worker in children.read_text().split():
                    if any(word.endswith("guard.py") for word in words_of(int(worker))):
                        return found, int(worker)
    raise AssertionError("no worker was seen there")


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.root
@root
@pytest.mark.skipif(bool(slurm.missing()), reason=f"not installed: {slurm.missing()}")
def test_a_slurm_job_is_one_verdict_on_its_nodes(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.mkdir()
    script = tmp_path / "job.sh"
    task = f"RANK=$SLURM_PROCID WORLD_SIZE=2 MODE=$([ $SLURM_PROCID = 1 ] && echo prepare) exec {sys.executable}"
    script.write_text(
        "#!/bin/sh\n"
        f"export READY={ready} MASTER_ADDR=doctor-a MASTER_PORT={free_port()} PYTHONPATH={PYTHONPATH}\n"
        f"srun --kill-on-bad-exit=0 sh -c '{task} {HANGS}/meet.py'\n"
    )
    with slurm.cluster(tmp_path) as first, ended_after(ready):
        submit = [*first, "sbatch", "--parsable", "--nodes=2", "--ntasks=2", f"--chdir={tmp_path}", str(script)]
        job = subprocess.run(submit, capture_output=True, text=True, check=True).stdout.strip()
        when_ready(ready, 2)
        path = f"{os.environ['PATH']}:/usr/sbin"
        _, report, said = attach(path, "--slurm-job", job, prefix=tuple(first))
        command = [*first, "env", f"PYTHONPATH={PYTHONPATH}", sys.executable, "-m", "ddp_doctor", "attach"]
        waits = [*command, "--slurm-job", job, "--probe-timeout=41.125"]
        interrupted(
            subprocess.Popen(waits, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), "--probe-timeout=41.125"
        )
        wrong = subprocess.run(
            [*first, "env", f"PYTHONPATH={PYTHONPATH}", sys.executable, "-m", "ddp_doctor", "attach", "--slurm-job", "99"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        subprocess.run([*first, "scancel", job], check=True)
    assert [(row["rank"], row["host"]) for row in report["ranks"]] == [(0, "doctor-a"), (1, "doctor-b")], (
        report["ranks"],
        said,
    )
    assert report["verdict"]["finding"] == "DDP604", report["verdict"]
    assert wrong.returncode == 5 and wrong.stdout == "" and "99" in wrong.stderr
