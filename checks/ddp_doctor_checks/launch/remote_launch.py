"""DDP114: starting the other nodes by ssh fails."""

from __future__ import annotations

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import Check, Fix, Stage, Told


class RemoteLaunch(Check):
    id, name = "DDP114", "remote-launch"
    title = "Starting the other nodes by ssh fails"
    needs = (LogEvent,)
    acts_at = frozenset({Stage.NOT_STARTED})
    told = Told(
        because="this launcher starts the other nodes by ssh or pdsh, without asking for passwords; where that fails only "
        "the first node runs",
        fixes=(
            Fix(
                title="try it as the launcher does, for every host of the hostfile, this one included",
                commands=("ssh -o BatchMode=yes -o ConnectTimeout=5 NODE true && echo fine",),
                needs="nothing",
            ),
            Fix(
                title="make a key and bring it to every node",
                commands=("ssh-keygen -t ed25519 -N '' -f ~/.ssh/id_ed25519", "ssh-copy-id NODE"),
                needs="a login on the other nodes",
            ),
            Fix(
                title="or start one launcher per node and use no ssh",
                commands=(
                    "srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 \\",
                    "    --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 --rdzv-id=$SLURM_JOB_ID train.py",
                ),
                needs="job restart",
            ),
        ),
    )
