"""Probes run side by side in one deadline, and none can take the report down with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ddp_doctor.collect import Observation, Probe, closure, collect
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Fact, Facts


class Alpha(Fact, frozen=True, kw_only=True):
    """A fact for tests."""

    value: int


class Beta(Fact, frozen=True, kw_only=True):
    """A fact made from an Alpha."""

    value: int


def give_alpha(host: Host, known: Facts) -> Iterator[Observation]:
    yield Alpha(value=20)


def double(host: Host, known: Facts) -> Iterator[Observation]:
    for alpha in known[Alpha]:
        yield Beta(value=2 * alpha.value)


def hang(host: Host, known: Facts) -> Iterator[Observation]:
    threading.Event().wait()
    yield Alpha(value=0)


def crash(host: Host, known: Facts) -> Iterator[Observation]:
    yield Alpha(value=1)
    raise ZeroDivisionError("a defect")


ALPHA = Probe(name="alpha", gives=(Alpha,), take=give_alpha)
BETA = Probe(name="beta", gives=(Beta,), builds_on=(Alpha,), take=double)


def test_a_probe_starts_when_what_it_builds_on_is_there() -> None:
    collected = collect(Host(5), [BETA, ALPHA], Facts())
    assert [beta.value for beta in collected.facts[Beta]] == [40]
    assert [run.status for run in collected.runs] == ["ok", "ok"]


def test_only_what_is_needed_runs() -> None:
    other = Probe(name="other", gives=(), take=crash)
    assert [probe.name for probe in closure([ALPHA, BETA, other], [Beta])] == ["alpha", "beta"]
    assert [probe.name for probe in closure([ALPHA, BETA, other], [Alpha])] == ["alpha"]


def test_a_probe_that_hangs_is_left_at_the_deadline_and_named() -> None:
    started = time.monotonic()
    collected = collect(Host(0.3), [Probe(name="stuck", gives=(Alpha,), take=hang), BETA], Facts())
    assert time.monotonic() - started < 2.3
    assert collected.runs[0].status == "timeout"
    (absent,) = collected.facts.lacking(Alpha)
    assert absent.status == "timeout"


def test_a_probe_that_raises_keeps_what_it_saw() -> None:
    collected = collect(Host(5), [Probe(name="bad", gives=(Alpha, Beta), take=crash)], Facts())
    assert [alpha.value for alpha in collected.facts[Alpha]] == [1]
    assert (collected.runs[0].status, collected.runs[0].reason) == ("crashed", "ZeroDivisionError: a defect")
    assert collected.facts.lacking(Beta)[0].status == "crashed"


def test_no_gpu_probe_starts_beside_a_process_that_cannot_be_killed() -> None:
    host = Host(5)
    host.undead[4242] = "nvml"
    collected = collect(host, [Probe(name="gpu", gives=(Alpha,), take=give_alpha, risk="gpu")], Facts())
    assert not collected.facts[Alpha]
    assert collected.runs[0].status == "denied" and "PID 4242" in collected.runs[0].reason


def test_progress_names_what_is_still_out() -> None:
    told: list[tuple[str, ...]] = []
    collect(Host(0.3), [ALPHA, Probe(name="stuck", gives=(Beta,), take=hang)], Facts(), told.append)
    assert ("stuck",) in told


def test_an_absent_fact_decides_how_a_probe_went() -> None:
    def refuse(host: Host, known: Facts) -> Iterator[Observation]:
        yield Absent(kind="Alpha", status="denied", reason="it belongs to another user")

    collected = collect(Host(5), [Probe(name="alpha", gives=(Alpha,), take=refuse)], Facts())
    assert (collected.runs[0].status, collected.runs[0].reason) == ("denied", "it belongs to another user")


def test_without_threads_probes_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    collected = collect(Host(5), [BETA, Probe(name="bad", gives=(), take=crash), ALPHA], Facts())
    assert [beta.value for beta in collected.facts[Beta]] == [2, 40]
    assert [run.status for run in collected.runs] == ["ok", "crashed", "ok"]
