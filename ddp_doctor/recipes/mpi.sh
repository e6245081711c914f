#!/bin/sh
# Examines the nodes of a job that mpirun (Open MPI) starts:  HOSTS=hostfile sh doctor.sh
# The hostfile is the job's, one line for each node: gpu-17 slots=@NPROC@
# The exit code is 0 whatever is found: mpirun complains at length about another. Rank 0 prints one
# report on all ranks, which meet at a port of the first host that is made from the job's id (--meet-port names another).
set -eu
MASTER_ADDR=${MASTER_ADDR:-$(if [ -n "${HOSTS:-}" ]; then sed -n 's/^\([^# ][^ ]*\).*/\1/p' "$HOSTS" | head -n 1; else hostname; fi)}
MASTER_PORT=${MASTER_PORT:-29500}
export MASTER_ADDR MASTER_PORT
exec mpirun -np @RANKS@ --map-by ppr:@NPROC@:node ${HOSTS:+--hostfile "$HOSTS"} -x PATH -x MASTER_ADDR -x MASTER_PORT \
    python -m ddp_doctor run --fail-on never "$@"
