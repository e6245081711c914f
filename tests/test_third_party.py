"""Packs of other people: the template in examples/ installed as anyone would, and one that cannot be loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ddp_doctor_checks
import msgspec
import pytest

import ddp_doctor
from ddp_doctor.examine import examine
from ddp_doctor.host import Host
from ddp_doctor.model import Facts
from ddp_doctor.packs import Loaded, Pack, load_packs, page_of

TEMPLATE = Path(__file__).parents[1] / "examples" / "acme_cluster_checks"
OURS = [str(Path(module.__file__ or "").parents[1]) for module in (ddp_doctor, ddp_doctor_checks)]

BROKEN = {
    "acme_raises": "import no_such_module_anywhere",
    "acme_exits": "import sys\nsys.exit('not on this machine')",
    "acme_takes": (
        "from ddp_doctor import Check, Pack\n"
        "class Mine(Check):\n"
        "    id, name, title = 'ACME001', 'acme-other', 'Mine'\n"
        "def pack():\n"
        "    return Pack(checks=(Mine, Mine))\n"
    ),
    "acme_none": "def pack():\n    return None",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip installed the template; with it on the path its entry point is found."""
    pytest.importorskip("hatchling", reason="the template is built with hatchling")
    folder = tmp_path_factory.mktemp("acme")
    source = folder / "source"
    shutil.copytree(TEMPLATE, source)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    ran = subprocess.run(
        [*command, "--target", str(folder / "site"), str(source)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "site"


@pytest.fixture
def beside(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installed template, importable in this process for one test."""
    monkeypatch.syspath_prepend(str(installed))
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_cluster_checks"]:
        monkeypatch.delitem(sys.modules, name)
    return installed


def install_broken(folder: Path, name: str) -> None:
    """A distribution with nothing but a module and its entry point."""
    (folder / f"{name}.py").write_text(BROKEN[name], encoding="utf-8")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[ddp_doctor.checks]\n{name} = {name}\n", encoding="utf-8")


def ddp_doctor_command(path: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ddp_doctor", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *OURS]), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_installed_pack_is_found_with_its_page(beside: Path) -> None:
    loaded = load_packs()
    assert loaded.failures == ()
    assert loaded.owners["ACME001"] == "acme_cluster_checks"
    check = next(check for check in loaded.pack.checks if check.id == "ACME001")
    page = page_of(check)
    assert page is not None
    assert page.startswith(f"# ACME001 {check.name} - {check.title}\n")
    assert [kind.kind() for kind in loaded.pack.facts] == ["DrainNotice"]
    assert "ACME001" not in load_packs(third_party=False).owners


@pytest.mark.parametrize(
    ("words", "status"), [("kernel update, ticket 4711", "hit"), ("", "hit"), (None, "clear")], ids=str
)
def test_its_probe_and_its_check_take_part_in_an_examination(
    beside: Path, tmp_path: Path, words: str | None, status: str
) -> None:
    notice = tmp_path / "drain"
    if words is not None:
        notice.write_text(words, encoding="utf-8")
    acme = template()
    host = Host(20, environ={**os.environ, "ACME_DRAIN_NOTICE": str(notice)})
    report = examine("run", Loaded(pack=Pack(checks=acme.checks)), host=host, probes=acme.probes)
    assert [(outcome.id, outcome.status) for outcome in report.outcomes] == [("ACME001", status)]
    assert [finding.evidence[0].source for finding in report.findings] == [str(notice)] * (status == "hit")


def test_a_notice_that_cannot_be_read_in_time_is_unknown(beside: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "drain"
    os.mkfifo(fifo)
    acme = template()
    host = Host(20, probe_seconds=0.5, environ={**os.environ, "ACME_DRAIN_NOTICE": str(fifo)})
    report = examine("run", Loaded(pack=Pack(checks=acme.checks)), host=host, probes=acme.probes)
    assert [outcome.status for outcome in report.outcomes] == ["unknown"]
    assert f"cat {fifo}" in report.outcomes[0].reason


def test_two_packs_may_give_their_probes_one_name(beside: Path, tmp_path: Path) -> None:
    acme = template()
    twins = tuple(msgspec.structs.replace(probe, take=lambda host, facts: ()) for probe in acme.probes)
    host = Host(20, environ={**os.environ, "ACME_DRAIN_NOTICE": str(tmp_path)})
    report = examine("run", Loaded(pack=acme), host=host, probes=twins)
    assert [probe.name for probe in report.probes] == ["acme-drain-notice"] * 2
    assert report.tool.seconds < 10


def template() -> Pack:
    import acme_cluster_checks

    pack = acme_cluster_checks.pack()
    assert isinstance(pack, Pack)
    return pack


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("acme_raises", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("acme_exits", "SystemExit: not on this machine"),
        ("acme_takes", "ValueError: the check ACME001 exists already"),
        ("acme_none", "TypeError: acme_none.pack() returned NoneType, not ddp_doctor.Pack"),
    ],
)
def test_a_pack_that_does_not_load_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    install_broken(tmp_path, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_packs()
    assert [(failure.name, failure.module, failure.reason) for failure in loaded.failures] == [(name, name, reason)]
    assert loaded.pack.checks == load_packs(third_party=False).pack.checks

    report = examine("run", loaded, known=Facts())
    finding = next(finding for finding in report.findings if finding.id == "DDP901")
    assert name in finding.summary
    assert reason in finding.summary
    assert finding.severity.value == "warning"


def test_the_command_that_ddp901_prints_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_broken(tmp_path, "acme_raises")
    monkeypatch.syspath_prepend(str(tmp_path))
    report = examine("run", load_packs(), known=Facts())
    command = next(finding for finding in report.findings if finding.id == "DDP901").fixes[0].commands[0]
    ran = subprocess.run(
        command,
        shell=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *OURS])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" in ran.stderr
    assert "no_such_module_anywhere" in ran.stderr


def test_checks_lists_it(installed: Path) -> None:
    ran = ddp_doctor_command(installed, "checks")
    assert ran.returncode == 0, ran.stderr
    assert "ACME001" in ran.stdout
    assert "acme-draining-node" in ran.stdout


@pytest.mark.parametrize("asked", ["ACME001", "acme-draining-node"])
def test_explain_prints_its_page(installed: Path, asked: str) -> None:
    ran = ddp_doctor_command(installed, "explain", asked)
    assert ran.returncode == 0, ran.stderr
    assert "The node is being taken out of service" in ran.stdout
    assert "the node's firewall keeps what is connected" in ran.stdout


def test_run_reports_what_it_finds(installed: Path, tmp_path: Path) -> None:
    notice = tmp_path / "drain"
    notice.write_text("kernel update, ticket 4711\n", encoding="utf-8")
    arguments = ("run", "--select", "ACME001", "--format", "json")
    ran = ddp_doctor_command(installed, *arguments, ACME_DRAIN_NOTICE=str(notice))
    assert ran.returncode == 1, ran.stderr
    report = json.loads(ran.stdout)
    assert report["verdict"]["finding"] == "ACME001"
    assert report["findings"][0]["evidence"][0] == {
        "fact": "DrainNotice",
        "source": str(notice),
        "value": "kernel update, ticket 4711",
        "rank": None,
        "host": report["findings"][0]["evidence"][0]["host"],
    }


def test_run_goes_on_without_a_pack_that_does_not_load(tmp_path: Path) -> None:
    install_broken(tmp_path, "acme_exits")
    ran = ddp_doctor_command(tmp_path, "run", "--select", "DDP1", "--format", "json")
    assert ran.returncode in (0, 1), ran.stderr
    report = json.loads(ran.stdout)
    assert [finding["id"] for finding in report["findings"] if finding["id"].startswith("DDP9")] == ["DDP901"]
    assert report["outcomes"]
