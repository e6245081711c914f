"""DDP205: torchrun's settings (PET_*) contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.launch import Variable
from ddp_doctor.interpret.launcher import is_set, number
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.rendezvous.elastic_state_live import from_job

ON_THIS_MACHINE = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[?::1\]?)?(:\d*)?")


class ElasticState(Check):
    """The defaults that PET_* variables give torchrun describe one job that all nodes can join."""

    id, name = "DDP205", "elastic-state"
    title = "torchrun's settings contradict each other"
    needs = ((Variable, JobRank),)
    acts_at = frozenset({Stage.NOT_STARTED})
    explains = ("DDP101",)
    told = Told(
        because="agents with another rendezvous id, or with one that an earlier job closed, never form a group",
        fixes=(
            Fix(
                title="give all nodes of one job the same id, another for each job, and restart all agents",
                commands=(
                    "torchrun --rdzv-id=$JOB --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 --nnodes=2 \\",
                    "    --nproc-per-node=4 train.py",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for subject in facts.by_subject(Variable):
            mine = {found.name: found for found in facts.of(Variable, subject) if is_set(found)}
            if "PET_NNODES" in mine:
                yield from self._nodes(mine)

    def _nodes(self, mine: Mapping[str, Variable]) -> Iterator[Finding]:
        nnodes = mine["PET_NNODES"]
        sizes = [number(part) for part in nnodes.value.split(":")]
        least, most = sizes[0], sizes[-1]
        if len(sizes) > 2 or least is None or most is None or not 1 <= least <= most:
            yield self._contradiction(
                f"{nnodes.text()} is neither a number nor MIN:MAX",
                "torchrun ends before it starts a worker",
                [nnodes],
                Fix(title="remove it and give --nnodes", commands=("unset PET_NNODES",)),
                Severity.ERROR,
            )
            return
        node = number(mine["PET_NODE_RANK"].value) if "PET_NODE_RANK" in mine else None
        if node is not None and node >= most:
            yield self._contradiction(
                f"{mine['PET_NODE_RANK'].text()} does not exist among {most} nodes: they count from 0",
                "the node that is missing never joins, and torchrun waits for it on all the others",
                [mine["PET_NODE_RANK"], nnodes],
                Fix(title="number the nodes from 0", commands=("unset PET_NODE_RANK PET_NNODES",)),
                Severity.ERROR,
            )
        backend = mine["PET_RDZV_BACKEND"].value if "PET_RDZV_BACKEND" in mine else "static"
        endpoint = mine.get("PET_RDZV_ENDPOINT")
        if most > 1 and backend == "c10d" and ON_THIS_MACHINE.fullmatch(endpoint.value if endpoint else ""):
            yield self._contradiction(
                f"{nnodes.text()}, but the c10d rendezvous "
                f"{'has no endpoint' if endpoint is None else f'is on this machine ({endpoint.text()})'}",
                "each node opens a rendezvous of its own on localhost and waits there for the others, 600 s by default",
                [nnodes, mine["PET_RDZV_BACKEND"], *([endpoint] if endpoint else [])],
                Fix(title="name one node, the same on all (another port if 29400 is taken)",
                    commands=(f"export PET_RDZV_ENDPOINT={_master(mine)}:29400",)),
                Severity.WARNING,
            )  # fmt: skip
        if least > 1 and "PET_STANDALONE" in mine and mine["PET_STANDALONE"].value == "1":
            yield self._contradiction(
                f"{mine['PET_STANDALONE'].text()} and {nnodes.text()} exclude each other",
                "torchrun then makes each node a job of its own and ignores the number of nodes",
                [mine["PET_STANDALONE"], nnodes],
                Fix(title="keep the one that is meant", commands=("unset PET_STANDALONE",)),
                Severity.WARNING,
            )

    def _contradiction(
        self, summary: str, because: str, variables: list[Variable], fix: Fix, severity: Severity
    ) -> Finding:
        return self.finding(
            summary,
            because=because,
            evidence=[variable.evidence() for variable in variables],
            fixes=[fix],
            severity=severity,
            confidence=Confidence.LIKELY,  # options on torchrun's command line win over these
        )


def _master(mine: Mapping[str, Variable]) -> str:
    for name in ("PET_MASTER_ADDR", "MASTER_ADDR"):
        if name in mine and not ON_THIS_MACHINE.fullmatch(mine[name].value):
            return mine[name].value
    return "NODE0"
