"""DDP304: the RDMA fabric does not carry the ranks' traffic."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.facts.rdma import HcaPort
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks import hcas
from ddp_doctor_checks.network.rdma_fabric_ports import from_ports


class RdmaFabric(Check):
    id, name = "DDP304", "rdma-fabric"
    title = "The RDMA fabric does not carry the ranks' traffic"
    needs = ((LogEvent, HcaPort),)
    also_reads = hcas.READS
    acts_at = frozenset(
        {Stage.COMM_BOOTSTRAP, Stage.TRANSPORT, Stage.FIRST_COLLECTIVE, Stage.DDP_VERIFY, Stage.TRAINING}
    )
    told = Told(
        because="RDMA packets leave and do not arrive: a GID that does not route, a port that is down, or HCAs on "
        "separate fabrics",
        fixes=(
            Fix(
                title="look at ports and GIDs on every node",
                commands=("ibv_devinfo -v | grep -E 'hca_id|state|link_layer|GID'",),
                needs="nothing",
            ),
            Fix(
                title="prove it: the job must pass without RDMA (a test, not the fix)",
                commands=("export NCCL_IB_DISABLE=1",),
                needs="job restart",
            ),
            Fix(
                title="use the connected ports, and on RoCE with NCCL up to 2.20 the routable GID",
                commands=(
                    "export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1 NCCL_IB_GID_INDEX=3   # the names and the index seen above",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for found in from_ports(facts):
            yield self.finding(**found)
