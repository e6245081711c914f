#!/bin/bash
# Examines the nodes of a job from inside an allocation like the job's:  sbatch doctor.sh
# Give it the #SBATCH lines of the job itself: partition, account, GPUs, constraints.
#SBATCH --job-name=ddp-doctor
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@NPROC@
#SBATCH --time=00:10:00
#SBATCH --output=ddp-doctor-%j.txt
set -eu
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-29500}"
# Rank 0 prints one report on all ranks, which meet at a port of the first node (--meet-port names another).
# With --fail-on never the exit code is 0 whatever is found, so no site policy requeues the job or kills the step.
srun --kill-on-bad-exit=0 python -m ddp_doctor run --fail-on never "$@"
