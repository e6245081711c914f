"""The launch environment as it is read: allow-list, redaction, conf files with NCCL's precedence and parsing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import msgspec
import pytest

from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts
from ddp_doctor.probes.variables import conf_files, nccl_version, take
from ddp_doctor.readers.nccl_conf import entries


def taken(environ: dict[str, str], seconds: float = 10.0) -> list[Variable]:
    seen = list(take(Host(seconds, environ=environ), Facts()))
    return [item for item in seen if isinstance(item, Variable)]


def test_only_what_changes_a_launch_is_looked_at() -> None:
    environ = {"RANK": "x", "AWS_SECRET_ACCESS_KEY": "s", "NCCL_DEBUG": "INFO", "RANKING": "1", "HOME": "/nowhere"}
    assert [variable.text() for variable in taken(environ)] == ["NCCL_DEBUG=INFO", "RANK=x"]


def test_credentials_stay_where_they_are() -> None:
    environ = {"https_proxy": "http://me:pw@proxy:3128", "RAY_AUTH_TOKEN": "abc", "HOME": "/nowhere"}
    assert sorted(variable.value for variable in taken(environ)) == ["<redacted>", "http://<redacted>@proxy:3128"]


def test_bytes_that_are_no_text_can_be_reported() -> None:
    (variable,) = taken({"RANK": "\udcff1", "HOME": "/nowhere"})
    assert variable.value == r"\xff1" and json.loads(msgspec.json.encode(variable))["value"] == r"\xff1"
    assert variable.source == "environment" and variable.inherited


def test_what_the_process_set_itself_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    (variable,) = [item for item in taken(dict(os.environ)) if item.name == "LOCAL_RANK"]
    assert not variable.inherited and variable.source == "set by the process itself"
    (given,) = taken({"LOCAL_RANK": "4"})
    assert given.inherited


def test_environment_beats_conf_file_and_the_first_line_of_it(tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_DEBUG=INFO\nNCCL_IB_DISABLE=1\nNCCL_IB_DISABLE=0\nNCCL_P2P_LEVEL = SYS\nCUDA_HOME=/x\n")
    found = {
        variable.source: (variable.text(), variable.in_effect)
        for variable in taken({"NCCL_CONF_FILE": str(conf), "NCCL_DEBUG": "WARN"})
        if variable.source != "environment" and not variable.source.startswith("/etc")
    }
    assert found == {
        f"{conf}:1": ("NCCL_DEBUG=INFO", False),
        f"{conf}:2": ("NCCL_IB_DISABLE=1", True),
        f"{conf}:3": ("NCCL_IB_DISABLE=0", False),
        f"{conf}:4": ("NCCL_P2P_LEVEL = SYS", False),
    }


def test_which_conf_files_a_version_reads(tmp_path: Path) -> None:
    host = Host(10.0, environ={"HOME": "/tmp/h", "NCCL_CONF_FILE": "/tmp/c", "PATH": os.environ["PATH"]})
    assert conf_files(host, None) == conf_files(host, (2, 23)) == ("/tmp/c", "/etc/nccl.conf")
    own_home = os.path.expanduser(f"~{os.popen('id -un').read().strip()}")
    assert conf_files(host, (2, 21)) == (f"{own_home}/.nccl.conf", "/etc/nccl.conf")
    host = Host(10.0, environ={"HOME": "/tmp/h", "PATH": os.environ["PATH"]})
    assert conf_files(host, (2, 30)) == ("/tmp/h/.nccl.conf", "/etc/nccl.conf")
    assert conf_files(host, (2, 29)) == (f"{own_home}/.nccl.conf", "/etc/nccl.conf")


def test_the_version_is_that_of_the_installed_wheel() -> None:
    install = TorchInstall(python="python", nccl_wheels=("nvidia-nccl-cu12 2.27.5",))
    assert nccl_version(Facts([install])) == (2, 27)
    assert nccl_version(Facts()) is None


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("NCCL_X=1", None, [("NCCL_X", "1")]),
        ("NCCL_X = 1 # two", None, [("NCCL_X ", " 1 # two")]),
        ("export NCCL_X=1", None, [("export NCCL_X", "1")]),
        ("#NCCL_X=1", None, []),
        (" #NCCL_X=1", None, [(" #NCCL_X", "1")]),
        ("NCCL_X", None, []),
        ("NCCL_X=a=b", None, [("NCCL_X", "a=b")]),
        ("NCCL_X=1\r", (2, 29), [("NCCL_X", "1\r")]),
        ("NCCL_X=1\r", (2, 30), [("NCCL_X", "1")]),
    ],
)
def test_a_line_as_nccl_reads_it(line: str, version: tuple[int, ...] | None, expected: list[tuple[str, str]]) -> None:
    assert [(name, value) for _, name, value in entries(line + "\n", version)] == expected


def test_a_conf_file_that_does_not_answer_is_named(tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    os.mkfifo(conf)  # opening it waits for a writer, as a file on a dead server waits for the server
    started = time.monotonic()
    host = Host(10.0, probe_seconds=0.5, environ={"NCCL_CONF_FILE": str(conf), "RANK": "0"})
    seen = list(take(host, Facts()))
    assert time.monotonic() - started < 3
    (absent,) = [item for item in seen if isinstance(item, Absent)]
    assert absent.status == "timeout" and absent.reason.startswith(f"{conf} and /etc/nccl.conf: no answer in 0.")
    assert [item.text() for item in seen if isinstance(item, Variable)][-1] == "RANK=0"
