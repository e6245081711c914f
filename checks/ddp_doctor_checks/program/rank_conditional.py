"""DDP601: a collective that only some ranks reach."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.script import ConditionalCollective
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.program.rank_conditional_live import from_job

NEEDS = "code change, job restart"


class RankConditional(Check):
    id, name = "DDP601", "rank-conditional"
    title = "A collective that only some ranks reach"
    needs = ((ConditionalCollective, JobRank),)
    acts_at = frozenset(
        {Stage.STORE_WAIT, Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.FIRST_COLLECTIVE, Stage.TRAINING}
    ) | {Stage.INITIALIZED, Stage.DDP_VERIFY}
    explains = ("DDP604", "DDP603")
    told = Told(
        because="every rank must call every collective; one inside a condition on the rank is called by some and waited "
        "for by all",
        fixes=(
            Fix(
                title="call it on all ranks, and use the bare model where only one rank evaluates",
                commands=(
                    "dist.barrier()   # outside of `if rank == 0:`",
                    "model.module(batch)   # on one rank, instead of model(batch)",
                ),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for found in facts[ConditionalCollective]:
            evidence = [found.evidence()]
            where = found.at.source
            if found.inner is not None:
                evidence.append(found.inner.evidence(found.kind(), "which calls"))
                where += f", by way of {found.inner.source}"
            if found.condition is not None:
                evidence.append(found.condition.evidence(found.kind(), "the ranks part at"))
            yield self.finding(
                f"only some ranks reach {found.call} ({where})",
                because="a collective returns when every rank of its group has called it; those that do wait for those that "
                "went past, and the latter hang at their next collective or exit",
                evidence=evidence,
                fixes=[_fix(found)],
                confidence=Confidence.CERTAIN if found.proven else Confidence.LIKELY,
            )


def _fix(found: ConditionalCollective) -> Fix:
    if found.rewrite:
        return Fix(title="let every rank call it", diff=found.rewrite, needs=NEEDS)
    if found.leaving and found.condition is not None:
        return Fix(
            title=f"make the call before some ranks leave at line {found.condition.line}, with what it needs, and keep "
            "behind it only what is one rank's own work",
            commands=(found.at.code, f"{found.condition.code.partition(':')[0]}:", f"    {found.leaving}"),
            needs=NEEDS,
        )
    before = f"{found.condition.code}  # line {found.condition.line}" if found.condition else "if rank == 0:"
    return Fix(
        title="move the call to where every rank passes, and keep under the condition only what is one rank's own work",
        commands=(before, "    ...  # no collective in here, and no return before the next one", found.at.code),
        needs=NEEDS,
    )
