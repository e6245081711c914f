"""IOMMU, ACS and virtualisation, read from trees of files as the kernel shows them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from ddp_doctor.collect import Observation, collect
from ddp_doctor.facts.gpu import GpuNode, PciGpu
from ddp_doctor.facts.pcie import Machine, PciPath, between
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts
from ddp_doctor.probes import pci_paths

ROOT_PORT, UPSTREAM = "0000:15:01.0", "0000:16:00.0"
ALL_ON = 0x1D  # SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+


def config(acs: int | None, size: int = 4096) -> bytes:
    """A configuration space with Advanced Error Reporting first and, behind it, ACS with that control register."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 2 << 16 | 0x148 << 20)
    last = 0x000D | 1 << 16 if acs is not None else 0x000B | 1 << 16
    struct.pack_into("<IHH", space, 0x148, last, 0x1F, acs or 0)
    return bytes(space[:size])


class Tree:
    """The root folder of a described machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        (root / "sys/kernel/iommu_groups").mkdir(parents=True)
        self.write("proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\nflags\t\t: fpu vme de\n")
        self.write("proc/cmdline", "root=/dev/sda1 quiet\n")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def device(self, way: str, space: bytes = config(None), group: int | None = None, kind: str = "DMA") -> None:
        """`way` is its place below /sys/devices."""
        place = self.root / "sys/devices" / way
        place.mkdir(parents=True, exist_ok=True)
        (place / "config").write_bytes(space)
        (self.root / "sys/bus/pci/devices" / place.name).symlink_to(
            os.path.relpath(place, self.root / "sys/bus/pci/devices")
        )
        if group is not None:
            self.write(f"sys/kernel/iommu_groups/{group}/type", kind + "\n")
            (place / "iommu_group").symlink_to(f"../../kernel/iommu_groups/{group}")

    def look(self, *gpus: str) -> list[Observation]:
        node = GpuNode(pci=tuple(PciGpu(address=address) for address in gpus))
        collected = collect(Host(20.0, root=str(self.root)), pci_paths.PROBES, Facts([node]))
        assert [run.status for run in collected.runs] == ["ok"]
        return [*collected.facts[Machine], *collected.facts[PciPath], *collected.facts.lacking(PciPath)]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


def two_below_a_switch(tree: Tree, acs: int | None, *, size: int = 4096, **group: object) -> list[Observation]:
    """Two GPUs below two ports of one switch."""
    above = f"pci0000:15/{ROOT_PORT}/{UPSTREAM}"
    tree.device(f"pci0000:15/{ROOT_PORT}", config(0x1F, size))
    tree.device(above, config(None, size))
    for number, gpu in ((1, "0000:18:00.0"), (2, "0000:19:00.0")):
        tree.device(f"{above}/0000:17:0{number}.0", config(acs, size))
        tree.device(f"{above}/0000:17:0{number}.0/{gpu}", **group)  # type: ignore[arg-type]
    return tree.look("0000:18:00.0", "0000:19:00.0")


def test_acs_of_the_ports_of_a_switch_stands_between_the_gpus_and_that_above_it_does_not(tree: Tree) -> None:
    machine, first, second = two_below_a_switch(tree, ALL_ON)
    assert isinstance(first, PciPath) and isinstance(second, PciPath)
    assert [bridge.address for bridge in first.bridges] == [ROOT_PORT, UPSTREAM, "0000:17:01.0"]
    assert first.bridges[-1].acs == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
    way = between(first, second)
    assert (way.shared, way.redirecting, way.clean) == (UPSTREAM, ("0000:17:01.0", "0000:17:02.0"), False)
    assert "ACS of 0000:17:01.0, 0000:17:02.0 redirects" in way.text()
    assert isinstance(machine, Machine) and not machine.hypervisor


def test_with_acs_off_the_way_is_clean(tree: Tree) -> None:
    _, first, second = two_below_a_switch(tree, 0)
    assert isinstance(first, PciPath) and isinstance(second, PciPath)
    assert between(first, second).clean and between(first, second).text() == ""


def test_without_root_the_kernel_shows_64_bytes_and_that_is_said(tree: Tree) -> None:
    _, first, second = two_below_a_switch(tree, ALL_ON, size=64)
    assert isinstance(first, PciPath) and isinstance(second, PciPath)
    assert [bridge.acs for bridge in first.bridges] == [None] * 3
    way = between(first, second)
    assert not way.clean and way.text() == "ACS of 0000:17:01.0, 0000:17:02.0 cannot be read without root"


def test_a_conventional_bridge_has_no_acs(tree: Tree) -> None:
    _, first, _ = two_below_a_switch(tree, ALL_ON, size=256)
    assert isinstance(first, PciPath) and [bridge.acs for bridge in first.bridges] == [()] * 3


@pytest.mark.parametrize(("kind", "translated"), [("DMA", True), ("DMA-FQ", True), ("identity", False)])
def test_an_iommu_translates_unless_it_passes_through(kind: str, translated: bool, tree: Tree) -> None:
    machine, first, second = two_below_a_switch(tree, 0, group=7, kind=kind)
    assert isinstance(first, PciPath) and isinstance(second, PciPath) and isinstance(machine, Machine)
    assert (first.iommu_group, first.iommu, first.translated) == (7, kind, translated)
    assert between(first, second).translated is translated
    assert machine.iommu_groups == 1


def test_gpus_at_different_root_ports_share_no_bridge(tree: Tree) -> None:
    for port, gpu in (("0000:00:01.0", "0000:01:00.0"), ("0000:00:02.0", "0000:02:00.0")):
        tree.device(f"pci0000:00/{port}", config(ALL_ON))
        tree.device(f"pci0000:00/{port}/{gpu}")
    _, first, second = tree.look("0000:01:00.0", "0000:02:00.0")
    assert isinstance(first, PciPath) and isinstance(second, PciPath)
    assert between(first, second).shared == ""
    assert between(first, second).redirecting == ("0000:00:01.0", "0000:00:02.0")


def test_a_virtual_machine_and_what_its_firmware_calls_it(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisor lahf_lm\n")
    tree.write("sys/devices/virtual/dmi/id/sys_vendor", "QEMU\n")
    tree.write("sys/devices/virtual/dmi/id/product_name", "Standard PC (Q35)\n")
    tree.write("proc/cmdline", "root=/dev/vda intel_iommu=on iommu=pt\n")
    tree.device("pci0000:00/0000:00:03.0")
    machine, gpu = tree.look("0000:00:03.0")
    assert isinstance(machine, Machine) and isinstance(gpu, PciPath)
    assert (machine.hypervisor, machine.product) == (True, "QEMU Standard PC (Q35)")
    assert machine.iommu_options == ("intel_iommu=on", "iommu=pt")
    assert gpu.bridges == ()


def test_without_a_gpu_nothing_is_read(tree: Tree) -> None:
    assert tree.look() == []


def test_a_device_that_never_answers_is_named(tree: Tree) -> None:
    tree.device("pci0000:00/0000:00:01.0")
    tree.device("pci0000:00/0000:00:01.0/0000:01:00.0")
    place = tree.root / "sys/devices/pci0000:00/0000:00:01.0/config"
    place.unlink()
    os.mkfifo(place)  # open() waits, as it would for a device that does not wake up
    host = Host(20.0, root=str(tree.root), probe_seconds=2.5)
    seen = list(pci_paths.take(host, Facts([GpuNode(pci=(PciGpu(address="0000:01:00.0"),))])))
    assert [type(item) for item in seen] == [Machine, Absent]
    assert isinstance(seen[1], Absent)
    assert "0000:00:01.0/config: no answer" in seen[1].reason and "lspci" in seen[1].how_to_get
