"""DDP605: new_group is not called alike by all ranks."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.script import GroupCreation
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.program.subgroup_misuse_live import from_job

NEEDS = "code change, job restart"


class SubgroupMisuse(Check):
    id, name = "DDP605", "subgroup-misuse"
    title = "new_group not called alike by all ranks"
    needs = ((GroupCreation, JobRank),)
    acts_at = frozenset(
        {Stage.STORE_WAIT, Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.FIRST_COLLECTIVE, Stage.TRAINING}
    ) | {Stage.INITIALIZED, Stage.DDP_VERIFY}
    explains = ("DDP604", "DDP603")
    told = Told(
        because="new_group is a collective of all ranks: members or not, each rank must make every group, in the same "
        "order",
        fixes=(
            Fix(
                title="make all groups on all ranks",
                commands=(
                    "groups = [dist.new_group(ranks) for ranks in ALL_LISTS_OF_RANKS]",
                    "mine = next(g for g, ranks in zip(groups, ALL_LISTS_OF_RANKS) if dist.get_rank() in ranks)",
                ),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for made in facts[GroupCreation]:
            evidence = [made.evidence()]
            if made.inner is not None:
                evidence.append(made.inner.evidence(made.kind(), "which calls"))
            if made.fault == "some-ranks":
                summary = f"only some ranks call new_group ({made.at.source})"
                if made.condition is not None:
                    evidence.append(made.condition.evidence(made.kind(), "the ranks part at"))
            else:
                named = "; ".join(f"rank {rank} names {members}" for rank, members in made.members[:2])
                summary = f"the ranks name different members in one new_group ({made.at.source}): {named}"
            yield self.finding(
                summary,
                because="new_group is a collective of the default group: every rank calls it for every group, with the same "
                "members and in the same order, also for groups it does not belong to",
                evidence=evidence,
                fixes=[_fix(made)],
                confidence=Confidence.CERTAIN if made.proven else Confidence.LIKELY,
            )


def _fix(made: GroupCreation) -> Fix:
    if made.rewrite:
        return Fix(title="let every rank create it", diff=made.rewrite, needs=NEEDS)
    return Fix(
        title="let every rank create every group, and keep its own",
        commands=(
            "for members in all_members:  # the same list of lists on every rank",
            "    group = dist.new_group(members)",
            "    if rank in members:",
            "        own_group = group",
        ),
        needs=NEEDS,
    )
