"""DDP606: another rank failed first."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class PeerDied(Check):
    id, name = "DDP606", "peer-died"
    title = "Another rank failed first"
    needs = (LogEvent,)
    acts_at = frozenset(
        {
            Stage.STORE_CONNECT,
            Stage.STORE_WAIT,
            Stage.GLOO_MESH,
            Stage.COMM_BOOTSTRAP,
            Stage.TRANSPORT,
            Stage.FIRST_COLLECTIVE,
            Stage.DDP_VERIFY,
            Stage.TRAINING,
        }
    )
    residual = True
    told = Told(
        because="a rank ended or left a step out, and all that the others print follows from that",
        fixes=(
            Fix(
                title="find the rank that failed first: the earliest error over all ranks' logs",
                commands=(
                    "ddp-doctor triage LOG...   # the logs of all ranks",
                    "torchrun --log-dir=logs --redirects=3 --tee=3 --standalone \\",
                    "    --nproc-per-node=2 train.py   # keeps one log per rank",
                ),
                needs="job restart",
            ),
        ),
    )
