"""DDP119: a re-run script never reaches the call that starts training."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import INIT, Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.launch.relaunch_unreached_live import from_job


class RelaunchUnreached(Check):
    id, name = "DDP119", "relaunch-unreached"
    title = "A re-run script never reaches the call that starts training"
    needs = ((LogEvent, JobRank),)
    acts_at = frozenset({Stage.STORE_WAIT}) | INIT | {Stage.PYTHON}
    explains = ("DDP101", "DDP604", "DDP505")
    told = Told(
        because="the launcher starts the other ranks by running the script again; a run that does not reach the same call "
        "by itself (a request, a cell, input()) leaves rank 0 waiting",
        fixes=(
            Fix(
                title="let a launcher start all ranks before the program begins",
                commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                needs="code change, job restart",
            ),
            Fix(
                title="or have the ranks forked or spawned from where you are",
                commands=('Trainer(strategy="ddp_notebook")   # in a notebook, before anything uses CUDA',),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
