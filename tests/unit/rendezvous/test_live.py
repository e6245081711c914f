"""The checks of the rendezvous and the network on a running job's ranks, as values."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.network.firewall_nat import FirewallNat
from ddp_doctor_checks.network.wrong_interface import WrongInterface
from ddp_doctor_checks.rendezvous.bad_master_addr import BadMasterAddr
from ddp_doctor_checks.rendezvous.dns_or_self_name import DnsOrSelfName
from ddp_doctor_checks.rendezvous.elastic_state import ElasticState
from ddp_doctor_checks.rendezvous.file_store import FileStore
from ddp_doctor_checks.rendezvous.foreign_listener import ForeignListener
from ddp_doctor_checks.rendezvous.loopback_name import LoopbackName
from job_facts import UNREADABLE, collective, connection, job, listener, pid_of, process, waiting

from ddp_doctor.facts.job import FileStoreState, Resolved
from ddp_doctor.model import Check, Confidence

EVERY = [
    FirewallNat, WrongInterface, BadMasterAddr, DnsOrSelfName, ElasticState, FileStore, ForeignListener, LoopbackName,
]  # fmt: skip
STORE = "/shared/rendezvous"


@pytest.mark.parametrize("check", EVERY, ids=lambda check: check.name)
def test_clear_two_ranks_in_one_collective(check: type[Check]) -> None:
    ranks = job(collective(0, "all_reduce"), collective(1, "all_reduce"))
    sockets = connection(0, "LISTEN"), connection(1, "ESTABLISHED")
    assert run_check(check, *ranks, process(0), process(1), *sockets).findings == ()


@pytest.mark.parametrize("check", [FirewallNat, FileStore], ids=lambda check: check.name)
def test_unknown_without_rights(check: type[Check]) -> None:
    assert run_check(check, UNREADABLE).outcome.status == "unknown"


def test_hit_a_foreign_listener() -> None:
    judged = run_check(ForeignListener, *job(waiting(1, 0, doing="handshake")), process(1), listener())
    (finding,) = judged.findings
    assert judged.outcome.status == "hit"
    assert (finding.confidence, finding.ranks) == (Confidence.CERTAIN, (1,))
    assert "that wait has no timeout" in finding.because


def test_clear_the_store_of_an_agent() -> None:
    agent = listener(command="pt_elastic", threads=("pt_elastic", "pt_tcpstore_uv"))
    assert run_check(ForeignListener, *job(waiting(1, 0, doing="handshake")), process(1), agent).findings == ()


def test_clear_a_listener_in_another_network_namespace() -> None:
    ranks = job(waiting(1, 0, doing="refused"))
    assert run_check(ForeignListener, *ranks, process(1, network=2), listener()).findings == ()


def test_clear_a_listener_that_the_job_itself_may_own() -> None:
    """Without rights nobody's descriptors show, the job's own neither."""
    ranks = job(waiting(0, 1, doing="refused"))
    stranger = listener(owner=None, threads=())
    assert run_check(ForeignListener, *ranks, process(0), stranger).outcome.status == "hit"
    assert run_check(ForeignListener, *ranks, process(0, sockets_read=False), stranger).findings == ()


def test_hit_a_name_without_an_address() -> None:
    asked = Resolved(source="the resolver", name="no-such-host", error="Name or service not known", network=1)
    ranks = job(waiting(1, 0, doing="refused", master_address="no-such-host"))
    (finding,) = run_check(DnsOrSelfName, *ranks, process(1), asked).findings
    assert finding.ranks == (1,)


def test_hit_ids_of_agents_differ() -> None:
    agents = [
        waiting(number, role="launcher", rank=None, doing="waiting-for-nodes", call="next_rendezvous")
        for number in (0, 1)
    ]
    words = [("torchrun", "--rdzv-endpoint=node0:29400", f"--rdzv-id={name}", "train.py") for name in "ab"]
    processes = [process(number, arguments=words[number]) for number in (0, 1)]
    (finding,) = run_check(ElasticState, *job(*agents), *processes).findings
    assert "with different ids: a, b" in finding.summary


def test_hit_files_differ() -> None:
    ranks = job(waiting(0, 1, init_method="file:///a"), waiting(1, 0, init_method="file:///b"))
    (finding,) = run_check(FileStore, *ranks).findings
    assert finding.confidence is Confidence.CERTAIN and finding.ranks == (0, 1)


def test_hit_a_file_of_a_dead_run() -> None:
    ranks = job(waiting(0, 1, init_method=f"file://{STORE}", since_s=5.0))
    stale = FileStoreState(source=STORE, path=STORE, exists=True, written={"/default_pg/0//cpu//0/0": 2}, age_s=4.0)
    fresh = FileStoreState(source=STORE, path=STORE, exists=True, written={"/default_pg/0//cpu//0/0": 1}, age_s=4.0)
    assert [finding.id for finding in run_check(FileStore, *ranks, stale).findings] == ["DDP206"]
    assert run_check(FileStore, *ranks, fresh).outcome.status == "clear"


def test_hit_rank_0_asks_another_host() -> None:
    ranks = job(waiting(0, doing="no-answer", master_address="10.0.0.9"), waiting(1, 0, doing="refused"))
    (finding,) = run_check(BadMasterAddr, *ranks, connection(0, "LISTEN", local="0.0.0.0", local_port=29500)).findings
    assert finding.ranks == (0, 1)


def test_hit_gloo_on_loopback() -> None:
    ranks = job(waiting(1, 0, doing="gloo-mesh"))
    gloo = connection(1, "LISTEN", local="127.0.1.1", local_port=41401, peer="0.0.0.0", peer_port=0)
    (finding,) = run_check(LoopbackName, *ranks, gloo, connection(1, "CLOSE_WAIT")).findings
    assert finding.ranks == (1,)
    near = connection(1, "ESTABLISHED", local="127.0.0.1", peer="127.0.0.1")
    assert run_check(LoopbackName, *ranks, gloo, near).findings == ()


def test_hit_dropped_packets_to_the_store() -> None:
    (finding,) = run_check(FirewallNat, *job(waiting(1, 0, doing="no-answer")), connection(1, "SYN_SENT")).findings
    assert finding.ranks == (1,) and "port 29500" in finding.summary


def test_hit_an_address_that_nobody_reaches() -> None:
    ranks = job(waiting(0, 1, doing="gloo-mesh"), waiting(1, 0, doing="gloo-mesh"))
    tries = connection(0, "SYN_SENT", peer="10.66.0.1", peer_port=41401)
    listens = connection(1, "LISTEN", local="10.66.0.1", local_port=41401, peer="0.0.0.0", peer_port=0)
    sockets = tries, listens, connection(0, "ESTABLISHED")
    (finding,) = run_check(WrongInterface, *ranks, *sockets).findings
    assert finding.ranks == (1,)
    assert run_check(FirewallNat, *ranks, *sockets).findings == ()
    assert pid_of(1) == 4101
