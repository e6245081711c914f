"""DDP502: a release of torch or NCCL is known to stop here."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class LibRegression(Check):
    id, name = "DDP502", "lib-regression"
    title = "A release of torch or NCCL is known to stop here"
    needs = (LogEvent,)
    acts_at = frozenset(
        {Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.TRANSPORT, Stage.FIRST_COLLECTIVE, Stage.TRAINING}
    )
    told = Told(
        because="one release, or a switch of it, is known to stop in this place",
        fixes=(
            Fix(
                title="compare with the notes of the release, and try the next one",
                commands=(
                    'python -c "import torch; print(torch.__version__, torch.cuda.nccl.version())"',
                    "pip install -U torch",
                ),
                needs="job restart",
            ),
            Fix(
                title="run without the debugging switch", commands=("unset CUDA_LAUNCH_BLOCKING",), needs="job restart"
            ),
        ),
    )
