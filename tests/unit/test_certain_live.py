"""What of a running job makes a cause certain, and how little less makes it likely again."""

from __future__ import annotations

import msgspec
import pytest
from checking import run_check
from ddp_doctor_checks.launch.master_inconsistent import MasterInconsistent
from ddp_doctor_checks.launch.missing_ranks import MissingRanks
from ddp_doctor_checks.launch.rank_config_mismatch import RankConfigMismatch
from ddp_doctor_checks.launch.world_size_mismatch import WorldSizeMismatch
from ddp_doctor_checks.program.rank_conditional import RankConditional
from ddp_doctor_checks.program.slow_rank import SlowRank
from ddp_doctor_checks.program.subgroup_misuse import SubgroupMisuse
from ddp_doctor_checks.rendezvous.dns_or_self_name import DnsOrSelfName
from ddp_doctor_checks.software.not_comm import NotComm
from ddp_doctor_checks.software.python_deadlock import PythonDeadlock
from job_facts import busy, collective, job, parted, pid_of, process, waiting

from ddp_doctor.facts.job import CallSite, JobRank, Resolved, Task
from ddp_doctor.facts.process import Frame, Stack
from ddp_doctor.model import Check, Confidence, Fact, Subject

WAITS = waiting(0, 1)
SITE = CallSite(file="/me/train.py", line=9, conditions=("if rank == 0:",), code="dist.barrier()")


def aged(rank: JobRank, seconds: int) -> JobRank:
    """The rank, started that long after the others."""
    return msgspec.structs.replace(rank, subject=msgspec.structs.replace(rank.subject, start_time=77 + 100 * seconds))


def sleeping(number: int, wchan: str) -> list[Fact]:
    rank = busy(number, state="waiting", cpu=0.0)
    task = Task(id=pid_of(number), name="python", state="S", wchan=wchan)
    return [*job(WAITS, rank, culprits=(number,)), process(number, tasks=(task,))]


def conditional(*ranks: JobRank, sites: tuple[CallSite, ...] = (SITE,)) -> list[Fact]:
    return [*job(*ranks), parted("rank-conditional", 0, sites=sites)]


BARRIER, REDUCE = collective(0, "barrier", 1), collective(1, "all_reduce", 0)


def grouped(doing: str) -> list[Fact]:
    ranks = (collective(0, "new_group", 1, doing="new-group"), collective(1, "new_group", 0, doing=doing))
    return [*job(*ranks), parted("group", 0, 1)]


def sized(other_port: int, seconds: int) -> list[Fact]:
    other = waiting(1, 2, world_size=3, master_port=other_port)
    return job(WAITS, aged(other, seconds))


def configured(*functions: str) -> list[Fact]:
    odd = waiting(1, 0, functions=(*functions, "init_process_group"))
    return [*job(WAITS, odd), process(0, now={"RANK": "0"}), process(1, now={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})]


def unresolved(error: str) -> list[Fact]:
    ranks = [waiting(number, 1 - number, doing="refused", master_address="node-0") for number in range(2)]
    return [*job(*ranks), process(0), process(1), Resolved(name="node-0", error=error, network=1)]


def with_gil(*culprits: int) -> list[Fact]:
    frame = Frame(function="stall", file="/me/train.py", line=8)
    thread = Subject(host="node-a", pid=pid_of(1), start_time=77, thread=pid_of(1))
    hog = Stack(subject=thread, frames=(frame,), owns_gil=True, active=False)
    return [*job(WAITS, busy(1, state="waiting", cpu=0.0), culprits=culprits), process(1), hog]


def locked(holder: int | None) -> list[Fact]:
    late = process(1, system_call="flock", file="/data/lock", lock_holder=holder)
    return [*job(WAITS, busy(1, state="waiting", cpu=0.0), culprits=(1,)), late]


@pytest.mark.parametrize(
    ("check", "sure", "unsure"),
    [
        (SlowRank, [*job(WAITS, busy(1), culprits=(1,)), process(1)], sleeping(1, "futex_wait")),
        (SlowRank, sleeping(1, "hrtimer_nanosleep"), sleeping(1, "pipe_read")),
        (RankConditional, conditional(BARRIER, REDUCE), conditional(BARRIER, REDUCE, sites=())),
        (
            RankConditional,
            conditional(BARRIER, REDUCE),
            conditional(*(msgspec.structs.replace(each, world_size=3) for each in (BARRIER, REDUCE))),
        ),
        (SubgroupMisuse, grouped("new-group"), grouped("collective")),
        (WorldSizeMismatch, sized(29500, 300), sized(29501, 300)),
        (WorldSizeMismatch, sized(29501, 3), sized(29501, 300)),
        (
            MasterInconsistent,
            job(WAITS, waiting(1, 0, master_port=29501)),
            job(WAITS, aged(waiting(1, 0, master_port=29501), 300)),
        ),
        (RankConfigMismatch, configured("_create_process_group_wrapper"), configured("_store_based_barrier")),
        (DnsOrSelfName, unresolved("Name or service not known"), unresolved("Temporary failure in name resolution")),
        (PythonDeadlock, with_gil(1), with_gil()),
        (NotComm, locked(4711), locked(None)),
    ],
)
def test_certain_where_it_was_seen_and_likely_where_not(
    check: type[Check], sure: list[Fact], unsure: list[Fact]
) -> None:
    (seen,), (guessed,) = run_check(check, *sure).findings, run_check(check, *unsure).findings
    assert (seen.confidence, guessed.confidence) == (Confidence.CERTAIN, Confidence.LIKELY)


def test_a_rank_is_only_possibly_missing_where_another_has_no_number() -> None:
    (likely,) = run_check(MissingRanks, *job(WAITS, missing=(1,))).findings
    (possible,) = run_check(MissingRanks, *job(WAITS, waiting(1, pid=4199, rank=None), missing=(1,))).findings
    assert (likely.confidence, possible.confidence) == (Confidence.LIKELY, Confidence.POSSIBLE)
