"""Redaction: nothing planted survives, and what was equal or near stays so."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import pytest

from ddp_doctor.redact import GONE, Redactor

HOST, OTHER, DOMAIN = "gpu-17", "trainbox", "ml.acme.example.com"
PLANTED = (
    HOST, OTHER, DOMAIN, "acme", "alice", "bob.smith", "10.0.3.17", "10.0.3.18", "203.0.113.77", "2001:db8:5::17",
    "fe80::d4c0:1ff:fe22:3344", "0a:1b:2c:3d:4e:5f", "hunter2", "hf_AbCdEfGhIjKlMnOp", "ghp_0123456789abcdefghij",
    "s3cr3tvalue", "eyJhbGciOiJIUzI1NiJ9", "0123456789abcdef0123456789abcdef01234567", "ip-10-0-3-17",
)  # fmt: skip

LINES = (
    f"{HOST}:3886:3998 [1] init.cc:1 NCCL WARN Bootstrap : Using eth0:10.0.3.17<0>",
    f"[{OTHER}:77] connect to ({HOST}.{DOMAIN}, 29500)",
    f"MASTER_ADDR={OTHER}.{DOMAIN}",
    "  host      : ip-10-0-3-17",
    f"No route to host {OTHER}; ping {HOST} works",
    "/home/alice/train.py and ~alice/x, bob.smith@ml.acme.example.com",
    "inet 10.0.3.18/24, 203.0.113.77, [2001:db8:5::17]:29500, fe80::d4c0:1ff:fe22:3344%eth0, 0a:1b:2c:3d:4e:5f",
    "export HF_TOKEN=hf_AbCdEfGhIjKlMnOp; pip install https://bob.smith:hunter2@pypi.ml.acme.example.com/simple",
    'wandb_api_key: "0123456789abcdef0123456789abcdef01234567"',
    "curl -H 'Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2ln' --password hunter2",
    "git clone ghp_0123456789abcdefghij, db_password = 's3cr3tvalue'",
)


def redacted(*lines: str) -> tuple[str, Redactor]:
    redactor = Redactor(users=("alice",))
    for line in lines:
        redactor.learn(line)
    return "\n".join(redactor.text(line) for line in lines), redactor


def test_nothing_planted_survives() -> None:
    text, redactor = redacted(*LINES)
    assert [value for value in PLANTED if value.lower() in text.lower()] == []
    counts = redactor.counts
    assert counts["hosts"] >= 3 and counts["addresses"] >= 6 and counts["users"] >= 2 and counts["secrets"] >= 6


def test_what_was_equal_stays_equal() -> None:
    text, _ = redacted(*LINES)
    first, second, *rest = text.splitlines()
    stand_in = first.split(":")[0]
    assert re.fullmatch(r"host-\d+", stand_in)
    assert f"({stand_in}.domain-" in second
    assert f"ping {stand_in} works" in rest[2]


@pytest.mark.parametrize("size", [8, 12, 20, 24, 26, 30])
def test_addresses_of_one_subnet_stay_in_one_subnet(size: int) -> None:
    redactor = Redactor()
    pairs = [
        ("10.0.3.17", "10.0.3.18"),
        ("10.0.3.17", "10.0.9.2"),
        ("10.0.3.17", "10.200.3.17"),
        ("8.8.8.8", "8.8.4.4"),
    ]
    for one, other in pairs:
        before = ipaddress.ip_address(other) in ipaddress.ip_network(f"{one}/{size}", strict=False)
        new, new_other = redactor.text(one), redactor.text(other)
        assert new != one
        assert (ipaddress.ip_address(new_other) in ipaddress.ip_network(f"{new}/{size}", strict=False)) == before
        assert ipaddress.ip_address(new).is_private == ipaddress.ip_address(one).is_private


def test_a_network_stays_one() -> None:
    text = Redactor().text("route 10.0.3.0/24 via 10.0.3.1")
    network, gateway = text.split()[1], text.split()[3]
    assert ipaddress.ip_address(gateway) in ipaddress.ip_network(network)


@pytest.mark.parametrize(
    "text",
    [
        "NCCL version 2.27.5+cuda12.9 at 12:34:56, libnccl.so.2, v1.2.3.4",
        "127.0.0.1:29500 ::1 0.0.0.0 255.255.240.0 172.17.0.1 localhost",
        "c10d::TCPStore::get(/default_pg/0//cpu//0/1) 0000:3b:00.0",
        "Exception in thread rank0: No route to host",
        "misc/shmutils.cc:88 NCCL WARN x",
        "https://pytorch.org/docs and github.com",
        "max_tokens=512 is no secret, nor is self.net or torch.distributed",
    ],
)
def test_what_tells_nothing_about_anybody_stays(text: str) -> None:
    expected = text.replace("max_tokens=512", f"max_tokens={GONE}")  # a token too many is better than one too few
    assert redacted(text)[0] == expected


def test_tables_are_redacted_at_every_depth() -> None:
    table: dict[str, Any] = {
        "kind": "Variable",
        "name": "WANDB_API_KEY",
        "value": "whatever",
        "subject": {"host": HOST, "pid": 7},
        "more": [{"hosts": [OTHER], "user": "alice", f"{HOST}.log": ["10.0.3.17", 5, None, True]}],
    }
    redactor = Redactor()
    redactor.learn(table)
    new = redactor.value(table)
    assert [value for value in PLANTED if value in str(new)] == [] and "whatever" not in str(new)
    assert (new["subject"]["pid"], new["value"]) == (7, GONE)


def test_a_list_of_nodes() -> None:
    text, _ = redacted("SLURM_NODELIST=rack-a-[01-03]", "rack-a-02:1:2 [0] NCCL INFO x")
    listed, line = text.splitlines()
    assert re.fullmatch(r"SLURM_NODELIST=host-\d+,host-\d+,host-\d+", listed)
    assert line.split(":")[0] in listed
