"""DDP308 proxy-env: proxies matter to etcd and Ray only."""

from __future__ import annotations

import pytest
from checking import run_check
from ddp_doctor_checks.network.proxy_env import ProxyEnv

from ddp_doctor.facts.launch import Variable
from ddp_doctor.model import Absent

PROXY = Variable(name="http_proxy", value="http://proxy:3128")
ETCD = (
    Variable(name="PET_RDZV_BACKEND", value="etcd-v2"),
    Variable(name="PET_RDZV_ENDPOINT", value="etcd.cluster.local:2379"),
)


def test_etcd_behind_a_proxy_is_a_hit() -> None:
    judgement = run_check(ProxyEnv, *ETCD, PROXY)
    assert judgement.outcome.status == "hit"
    (finding,) = judgement.findings
    assert finding.fixes[0].commands[0] == "export no_proxy=etcd.cluster.local"


@pytest.mark.parametrize("exempt", ["etcd.cluster.local", ".cluster.local", "localhost, cluster.local", "*"])
def test_an_exempt_endpoint_stays_clear(exempt: str) -> None:
    assert run_check(ProxyEnv, *ETCD, PROXY, Variable(name="no_proxy", value=exempt)).outcome.status == "clear"


def test_plain_torchrun_is_never_judged() -> None:
    c10d = Variable(name="PET_RDZV_BACKEND", value="c10d")
    assert run_check(ProxyEnv, c10d, PROXY).outcome.status == "not-applicable"


def test_unread_variables_are_unknown() -> None:
    absent = Absent(kind="Variable", status="timeout", reason="no answer in 5.0 s")
    assert run_check(ProxyEnv, *ETCD, absent).outcome.status == "unknown"
