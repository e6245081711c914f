"""DDP508: ranks that ddp-doctor started here did not form a group, for a reason that no other check names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ddp_doctor.facts.names import Interface
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.model import INIT, Check, Confidence, Facts, Finding, Fix, Severity, Stage
from ddp_doctor_checks import communicator

ENOUGH_SECONDS = 8.0
"""A healthy trial takes a tenth of a second; one given less time than this may just be on a very busy machine."""
PROGRAM = (
    "import torch, torch.distributed as d; d.init_process_group('gloo'); x = torch.ones(1); d.all_reduce(x); print(x)"
)


class TrialFailed(Check):
    id, name = "DDP508", "trial-failed"
    title = "Ranks started as a trial on this node did not form a group"
    needs = (TrialRank,)
    also_reads = (*communicator.READS, Interface)
    acts_at = INIT | {Stage.PYTHON, Stage.FIRST_COLLECTIVE}
    residual = True

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        trial = [rank for rank in facts[TrialRank] if rank.outcome != "passed"]
        failed = [rank for rank in trial if rank.outcome == "failed"]
        down = next((each for each in facts[Interface] if each.loopback and not each.up), None)
        if trial and down:
            first = min(trial, key=lambda rank: rank.stage)
            yield self.finding(
                f"the loopback interface {down.name} is down, and {_ranks(first)} could not form a group without it",
                because="nothing on this node can connect to 127.0.0.1, nor to this node's own addresses, so its ranks "
                "reach no store that one of them hosts",
                evidence=[down.evidence(), *(rank.evidence() for rank in trial)],
                fixes=[Fix(title="bring it up", commands=(f"ip link set {down.name} up",), needs="root")],
                confidence=Confidence.LIKELY,
            )
        elif failed:
            first = min(failed, key=lambda rank: rank.stage)
            yield self.finding(
                f"{_ranks(first)} failed at {first.stage.label}: {first.error}",
                because="they had a store of their own on a free loopback port, so neither MASTER_ADDR nor another "
                "node has a part in it: a job of this kind fails on this node too",
                evidence=[rank.evidence() for rank in trial],
                fixes=_fixes(first),
                confidence=Confidence.LIKELY,
            )
        elif trial:
            # one that says nothing is the one the others wait for
            first = min(trial, key=lambda rank: (bool(rank.error), rank.stage))
            waited = max(rank.seconds for rank in trial)
            yield self.finding(
                f"{_ranks(first)} did not form a group in {waited:.0f} s; rank {first.rank} stands at {first.stage.label}",
                because="this takes a tenth of a second on a healthy node; all of them are on this node, and their "
                "store is their own",
                evidence=[rank.evidence() for rank in trial],
                fixes=_fixes(first),
                severity=Severity.ERROR if max(waited, first.given) >= ENOUGH_SECONDS else Severity.WARNING,
                confidence=Confidence.LIKELY,
            )


def _ranks(rank: TrialRank) -> str:
    return f"{rank.world_size} trial ranks ({rank.backend})"


def _fixes(rank: TrialRank) -> Iterator[Fix]:
    if "127.0.0.1" in rank.error and "errno: 101" in rank.error:
        yield Fix(title="the loopback interface is down: bring it up", commands=("ip link set lo up",), needs="root")
    if rank.stage is Stage.GLOO_MESH:
        yield Fix(
            title="on a single node, keep Gloo on the loopback interface",
            commands=("export GLOO_SOCKET_IFNAME=lo",),
        )
    python = shlex.quote(rank.source.rpartition(" with ")[2] or "python")
    launch = f"-m torch.distributed.run --standalone --nproc-per-node={rank.world_size} --no-python"
    yield Fix(
        title="do the same without ddp-doctor, with all that torch has to say",
        commands=(f'TORCH_CPP_LOG_LEVEL=INFO {python} {launch} {python} -c "{PROGRAM}"',),
        needs="nothing",
    )
