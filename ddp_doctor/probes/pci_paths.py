"""What stands between the GPUs on the PCI bus, read from the kernel: IOMMU groups, ACS of the bridges, virtualisation."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.gpu import GpuNode
from ddp_doctor.facts.pcie import Bridge, Machine, PciPath
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

HOW_TO_GET = "sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'"


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """A Machine, and a PciPath for each NVIDIA GPU on the bus; nothing where there is none."""
    node = facts.first(GpuNode)
    addresses = [device.address for device in (node.pci or ())] if node else []
    if not addresses:
        return
    subject = Subject(host=host.name)
    answer = host.ask("pci_paths", {"root": host.root, "addresses": addresses})
    look = ""
    for message in answer.messages:
        look = str(message.get("look", look))
        if "machine" in message:
            said = message["machine"]
            yield Machine(
                subject=subject,
                source="/proc/cpuinfo, /proc/cmdline, /sys/devices/virtual/dmi/id, /sys/kernel/iommu_groups",
                hypervisor=said["hypervisor"],
                product=said["product"],
                iommu_groups=said["iommu_groups"],
                iommu_options=tuple(said["iommu_options"]),
            )
        elif "path" in message:
            said = message["path"]
            yield PciPath(
                subject=subject,
                source=f"/sys/bus/pci/devices/{said['address']}",
                address=said["address"],
                bridges=msgspec.convert(said["bridges"], tuple[Bridge, ...]),
                iommu_group=said["iommu_group"],
                iommu=said.get("iommu", ""),
            )
    if answer.status != "ok":
        reason = f"{look}: {answer.reason}" if look else answer.reason
        yield Absent(kind=PciPath.kind(), about=subject, status=answer.status, reason=reason, how_to_get=HOW_TO_GET)


PROBES = (Probe(name="pci-paths", gives=(Machine, PciPath), builds_on=(GpuNode,), take=take, risk="gpu"),)
