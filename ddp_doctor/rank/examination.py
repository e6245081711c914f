"""What a meeting's host does with it: look at its machine once for all ranks of it, and judge what everybody said."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ddp_doctor.facts.attendance import Attendance, Attendee
from ddp_doctor.model import Facts, RankRow, Report, Stage, Target

if TYPE_CHECKING:  # members of a meeting need none of it, and importing costs
    from ddp_doctor.collect import Probe
    from ddp_doctor.host import Host

MOST_ROWS = 64
LEAST_SECONDS = 1.0
NVIDIA = "/proc/driver/nvidia"


class Examination:
    """The work of a host. `end` is when it has to be over, in monotonic time."""

    def __init__(self, environ: Mapping[str, str], started: float, end: float) -> None:
        self._environ = dict(environ)
        self._started = started
        self._end = end

    def prepare(self) -> None:
        """Import what judging takes."""
        from ddp_doctor.packs import load_packs

        load_packs(third_party=False)
        import_module("ddp_doctor.examine")

    def observe(self, leader: Attendee) -> list[dict[str, Any]]:
        """What the probes of this machine bring, in the environment of the first of its ranks."""
        from ddp_doctor.collect import collect
        from ddp_doctor.saved import to_tables

        host = self._host(leader)
        try:
            return to_tables(collect(host, _probes(), Facts()).facts)
        finally:
            host.close()

    def ahead(self, leader: Attendee, tables: Sequence[dict[str, Any]]) -> bool:
        """Whether a store that only rank 0 can have opened answers at MASTER_PORT; torchrun's agent has one all along."""
        if leader.variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return False
        return any(each.get("kind") == "StoreAnswer" and each.get("verdict") == "store" for each in tables)

    def judge(
        self, party: Sequence[Attendee], attendance: Attendance, seen: Sequence[Sequence[dict[str, Any]]]
    ) -> bytes:
        """The report on all of it, as msgpack."""
        report = self.report(party, attendance, seen)
        return msgspec.msgpack.encode(report)

    def report(
        self, party: Sequence[Attendee], attendance: Attendance | None, seen: Sequence[Sequence[dict[str, Any]]]
    ) -> Report:
        """The report on these ranks and machines; `attendance` is None where there was nobody to meet."""
        from ddp_doctor.examine import examine
        from ddp_doctor.packs import load_packs
        from ddp_doctor.saved import from_tables

        facts = Facts((*party, *([attendance] if attendance else [])), (), (Attendee.kind(),))
        for tables in seen:
            observed = from_tables(enumerate(tables, 1))
            facts = facts.plus(observed, observed.absents, observed.looked_for)
        return examine(
            "preflight",
            load_packs(third_party=False),
            known=facts,
            describe=_target,
            rows=rows,
            started=self._started,
        )

    def _host(self, leader: Attendee) -> Host:
        from ddp_doctor.host import Host
        from ddp_doctor.probes import variables

        kept = {name: value for name, value in self._environ.items() if not variables.is_examined(name)}
        environ = kept | leader.variables
        if leader.init_method.startswith("tcp://"):
            environ |= {"MASTER_ADDR": leader.address, "MASTER_PORT": leader.port}
        seconds = max(LEAST_SECONDS, self._end - time.monotonic())
        return Host(seconds, environ=environ, python=sys.executable or "python3", cwd=None)


def _probes() -> tuple[Probe, ...]:
    """Those that disturb nothing and cost little; the driver is asked only where there is one."""
    from ddp_doctor.probes import interfaces, limits, names, process_tree, shm, store, variables

    modules: list[Any] = [variables, names, store, process_tree, interfaces, limits, shm]
    if Path(NVIDIA).exists() or any(name.startswith("nvidia") for name in os.listdir("/dev")):
        from ddp_doctor.probes import gpu_driver

        modules.append(gpu_driver)
    return tuple(probe for module in modules for probe in module.PROBES)


def _target(facts: Facts) -> Target:
    attendees = facts[Attendee]
    attendance = facts.first(Attendance)
    first = attendees[0] if attendees else None
    return Target(
        hosts=tuple(dict.fromkeys(each.subject.host for each in attendees)),
        world_size=attendance.world_size if attendance else first.world_size if first else None,
        rank_variables=any(each.rank is not None for each in attendees),
        torch=first.torch if first and first.torch else None,
        nccl=first.nccl if first and first.nccl else None,
    )


def rows(facts: Facts) -> list[RankRow]:
    """Where each rank stands; of a large job those that are missing or gone."""
    attendance = facts.first(Attendance)
    if attendance is None:
        return []
    return list(_all_rows(facts[Attendee], attendance))[:MOST_ROWS]


def _all_rows(attendees: Sequence[Attendee], attendance: Attendance) -> Iterator[RankRow]:
    few = attendance.world_size <= MOST_ROWS
    for rank in attendance.missing:
        yield RankRow(rank=rank, stage=Stage.NOT_STARTED.label, where="did not come")
    for each in attendees:
        if few or each.gone:
            yield RankRow(
                rank=each.rank,
                host=each.subject.host,
                pid=each.subject.pid,
                stage=Stage.PYTHON.label,
                state="exited" if each.gone == "ended" else "running",
                where=each.where,
            )
