"""DDP104: ranks are forked from a process that has already used CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.attendance import Attendee
from ddp_doctor.facts.script import ForkStart
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.launch.fork_after_cuda_meeting import from_meeting

NEEDS = "code change, job restart"


class ForkAfterCuda(Check):
    id, name = "DDP104", "fork-after-cuda"
    title = "Ranks forked after the parent used CUDA"
    needs = ((ForkStart, Attendee),)
    acts_at = frozenset({Stage.PYTHON, Stage.INITIALIZED, Stage.COMM_BOOTSTRAP, Stage.FIRST_COLLECTIVE})
    told = Told(
        because="a CUDA context and an OpenMP thread pool do not survive fork: the child has the parent's state without "
        "its threads and handles",
        fixes=(
            Fix(
                title="start the ranks by spawn, or from a script with a launcher",
                commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                needs="code change, job restart",
            ),
            Fix(
                title="in a notebook, restart the kernel and touch CUDA only inside the launched function; see what touches it",
                commands=(
                    'python -c "import torch, MODULE; print(torch.cuda.is_initialized())"   # MODULE: your imports',
                ),
                needs="code change, kernel restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for met in from_meeting(facts):
            yield self.finding(**met)
        for fork in facts[ForkStart]:
            sure = fork.proven and not fork.only_asked and fork.method == "fork"
            when = "" if fork.method == "fork" else " (fork is the default on Linux up to Python 3.13)"
            yield self.finding(
                f"{fork.api} forks ({fork.at.source}) after {fork.parent_call} ({fork.parent.source}), "
                f"and the child uses CUDA{when}",
                because="a CUDA context does not survive a fork: the child raises `Cannot re-initialize CUDA in forked "
                "subprocess`, or hangs, and the other ranks wait for it"
                + ("; in most releases of torch merely asking for devices is enough" if fork.only_asked else ""),
                evidence=[
                    fork.evidence(),
                    fork.parent.evidence(fork.kind(), "before it, the parent"),
                    fork.child.evidence(fork.kind(), "after it, the child"),
                ],
                fixes=_fixes(fork),
                severity=Severity.WARNING if fork.only_asked else Severity.ERROR,
                confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
            )


def _fixes(fork: ForkStart) -> list[Fix]:
    if fork.rewrite:
        return [Fix(title="start the children afresh", diff=fork.rewrite, needs=NEEDS)]
    if fork.api == "notebook_launcher":
        title = (
            f"restart the kernel, and let only the launched function use CUDA: move line {fork.parent.line} into it, as"
        )
        return [
            Fix(title=title, commands=("def train():", f"    {fork.parent.code}"), needs="code change, kernel restart")
        ]
    title = "start the children afresh instead of forking, under the main guard"
    lines = (
        "import torch.multiprocessing as mp",
        "",
        'if __name__ == "__main__":',
        "    mp.spawn(worker, nprocs=world_size)",
    )
    return [Fix(title=title, commands=lines, needs=NEEDS)]
