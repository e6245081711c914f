"""DDP109: nodes start different numbers of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.launch import Variable
from ddp_doctor.interpret.launcher import is_set, number, tasks_per_node
from ddp_doctor.model import Check, Facts, Finding, Fix, Severity, Told


class UnevenNodes(Check):
    """Every node starts the same number of ranks, which scripts that compute rank = node * n + local rank rely on."""

    id, name = "DDP109", "uneven-nodes"
    title = "Nodes start different numbers of ranks"
    needs = (Variable,)
    told = Told(
        because="the nodes count different numbers of ranks, so the smaller group never fills or a rank lies beyond it",
        fixes=(
            Fix(
                title="start the same number of ranks on every node, with the same total",
                commands=(
                    "torchrun --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d \\",
                    "    --rdzv-endpoint=$HEAD:29500 \\",
                    "    --rdzv-id=$JOB train.py   # HEAD and JOB alike on all nodes",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for subject in facts.by_subject(Variable):
            mine = {found.name: found for found in facts.of(Variable, subject) if is_set(found)}
            for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
                counts = tasks_per_node(mine[name].value) if name in mine else ()
                if len(set(counts)) > 1:
                    yield self._uneven(
                        f"Slurm starts {' and '.join(map(str, sorted(set(counts))))} tasks per node", [mine[name]]
                    )
                    break
            world, local, nodes = (
                number(mine[name].value) if name in mine else None
                for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
            )
            if world and local and world > local > 0 and world != local * (nodes or world // local):
                names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE")
                yield self._uneven(
                    f"{world} ranks are not {local} on each node", [mine[name] for name in names if name in mine]
                )

    def _uneven(self, summary: str, variables: list[Variable]) -> Finding:
        return self.finding(
            f"{summary}: the nodes are not alike",
            because="torch itself takes that; a script that computes rank = node * ranks_per_node + local_rank, and Lightning "
            "with num_nodes and devices, leaves a gap in the ranks that all others wait for",
            evidence=[variable.evidence() for variable in variables],
            fixes=[
                Fix(title="start the same number on each node", commands=("srun --ntasks-per-node=N python train.py",)),
                Fix(title="or read the rank instead of computing it", commands=('rank = int(os.environ["RANK"])',),
                    needs="code change"),
            ],
            severity=Severity.NOTE,
        )  # fmt: skip
