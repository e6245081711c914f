"""`run --share DIR` on hosts that have no way to each other over the network: one report all the same, and nothing stays."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import nodes
import pytest
from nodes import Node, Started

pytestmark = [pytest.mark.live, pytest.mark.skipif(bool(nodes.missing()), reason=nodes.missing())]
NOTHING_IN = ("iif lo accept", "tcp dport 1-65535 drop")


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Path]:
    """A folder that all hosts see, empty in the end."""
    folder = tmp_path / "share"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def run(hosts: list[Node], share: Path, *arguments: str, master: str = "") -> Started:
    return Started(hosts, "--format", "json", "--share", str(share), *arguments, master=master)


def test_hosts_that_drop_each_other_s_packets_are_one_report(tmp_path: Path, share: Path) -> None:
    excluded = tmp_path / "failing"
    with nodes.network(tmp_path / "net", 2) as hosts:
        for host in hosts:
            host.firewall(*NOTHING_IN)
        first, second = run(hosts, share, "--failing-nodes", str(excluded)).said()
    assert first.report["target"]["merged"] == f"2 of 2 ranks merged over the shared folder {share}"
    assert second.out == ""
    assert first.codes == second.codes == (1,)
    assert "DDP302" in first.found(), first.report["verdict"]
    assert excluded.read_text() == "node0,node1\n"
    assert max(first.seconds, second.seconds) < 30


def test_where_the_port_answers_the_folder_is_left_alone(tmp_path: Path, share: Path) -> None:
    excluded = tmp_path / "failing"
    excluded.write_text("of another run")
    with nodes.network(tmp_path / "net", 2) as hosts:
        first, second = run(hosts, share, "--failing-nodes", str(excluded)).said()
    assert first.report["target"]["merged"] == "2 of 2 ranks merged over a TCP port of the doctor's own"
    assert first.found() == {} and excluded.read_bytes() == b""
    assert first.codes == second.codes == (0,) and second.out == ""


@pytest.mark.slow
def test_a_host_to_which_nobody_comes_has_merged_nothing(tmp_path: Path, share: Path) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        for host in hosts:
            host.firewall(*NOTHING_IN)
        started = run(hosts, share, "--wait", "6")
        started.kill(1)
        first = started.said()[0]
    assert first.report["target"]["merged"] == "1 of 2 ranks came"


@pytest.mark.slow
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "full", str(full)], check=True)
    try:
        (full / "data").write_bytes(bytes(1 << 16))
        with nodes.network(tmp_path / "net", 2) as hosts:
            for host in hosts:
                host.firewall(*NOTHING_IN)
            told = run(hosts, full).said()
        assert [path.name for path in full.iterdir()] == ["data"]
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)
    assert f"{full}: No space left on device" in told[0].found()["DDP101"]["summary"]
    assert max(said.seconds for said in told) < 60


@pytest.mark.slow
def test_hosts_that_each_look_for_rank_0_on_themselves_are_one_report(tmp_path: Path, share: Path) -> None:
    with nodes.network(tmp_path / "net", 3) as hosts:
        told = run(hosts, share, master="127.0.0.1").said()
    reports = [said for said in told if said.out]
    assert len(reports) == 1, [said.out for said in told]
    assert reports[0].report["target"]["merged"] == f"3 of 3 ranks merged over the shared folder {share}"
    assert "DDP111" in reports[0].found(), reports[0].found().keys()
    assert {said.codes for said in told} == {(1,)}


@pytest.mark.slow
def test_ranks_merge_without_the_host_of_rank_0(tmp_path: Path, share: Path) -> None:
    excluded = tmp_path / "failing"
    with nodes.network(tmp_path / "net", 3) as hosts:
        started = run(hosts, share, "--failing-nodes", str(excluded))
        started.kill(0)
        told = started.said()[1:]
    (spoken,) = [said for said in told if said.out]
    assert spoken.report["target"]["merged"] == f"2 of 3 ranks merged over the shared folder {share}"
    assert spoken.found()["DDP101"]["ranks"] == [0]
    assert len({said.codes for said in told}) == 1


@pytest.mark.slow
def test_a_host_that_is_killed_in_between_is_named_and_the_others_end(tmp_path: Path, share: Path) -> None:
    with nodes.network(tmp_path / "net", 3) as hosts:
        for host in hosts:
            host.firewall(*NOTHING_IN)
        started = run(hosts, share)
        time.sleep(5.0)
        started.kill(2)
        first, second, _ = started.said()
    assert first.report["target"]["merged"] == f"3 of 3 ranks merged over the shared folder {share}"
    assert {"rank": 2, "where": "did not come"}.items() <= first.report["ranks"][0].items(), first.report["ranks"]
    assert second.out == "" and first.codes == second.codes
    assert max(first.seconds, second.seconds) < 60 + 2


@pytest.mark.slow
def test_a_folder_that_a_host_does_not_see_is_named(tmp_path: Path) -> None:
    with nodes.network(tmp_path / "net", 2) as hosts:
        for host in hosts:
            host.firewall(*NOTHING_IN)
        first, second = run(hosts, tmp_path / "away").said()
    assert f"{tmp_path}/away: No such file or directory" in first.found()["DDP101"]["summary"]
    assert second.codes == (1,)
