"""DDP119: a re-run script never reaches the call that starts training."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class RelaunchUnreached(Check):
    id, name = "DDP119", "relaunch-unreached"
    title = "A re-run script never reaches the call that starts training"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.STORE_WAIT})
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
