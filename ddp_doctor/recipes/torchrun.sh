#!/bin/sh
# Examines the nodes of a job before the job does: run this on each of its nodes, as you would run the job itself.
#   HEAD=gpu-17:29500 sh doctor.sh       (one of the nodes, and a free port; the same on all; not needed for one node)
# The exit code is 0 whatever is found: torchrun starts its ranks again after another. Rank 0 prints
# one report on all ranks, which meet at a port of the head that is made from the job's id (--meet-port names another).
set -eu
if [ @NODES@ -eq 1 ]; then
    set -- --standalone --nproc-per-node=@NPROC@ -m ddp_doctor run --fail-on never "$@"
else
    set -- --nnodes=@NODES@ --nproc-per-node=@NPROC@ --rdzv-backend=c10d --rdzv-id=ddp-doctor \
        --rdzv-endpoint="${HEAD:?say which node is the head, as HEAD=gpu-17:29500}" \
        -m ddp_doctor run --fail-on never "$@"
fi
exec torchrun --max-restarts=0 "$@"
