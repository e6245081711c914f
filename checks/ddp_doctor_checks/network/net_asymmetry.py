"""DDP306: the nodes use different networks or plugins."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.log import LogEvent
from ddp_doctor.facts.rdma import HcaPort
from ddp_doctor.model import Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks import hcas
from ddp_doctor_checks.network.net_asymmetry_hcas import from_hcas


class NetAsymmetry(Check):
    id, name = "DDP306", "net-asymmetry"
    title = "The nodes use different networks or plugins"
    needs = ((LogEvent, HcaPort),)
    also_reads = hcas.READS
    acts_at = frozenset({Stage.COMM_BOOTSTRAP, Stage.COMM_TOPOLOGY, Stage.TRANSPORT, Stage.FIRST_COLLECTIVE})
    told = Told(
        because="every node chooses its network by itself; with another plugin, HCA set or topology the two ends do not "
        "fit",
        fixes=(
            Fix(
                title="compare what the nodes choose",
                commands=(
                    "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET",
                    "grep -hoE 'Using network .*|NET/.*' LOG... | sort | uniq -c",
                ),
                needs="job restart",
            ),
            Fix(
                title="use the same image everywhere, or no external plugin on any node",
                commands=("export NCCL_NET_PLUGIN=none",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for found in from_hcas(facts):
            yield self.finding(**found)
