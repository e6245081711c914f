"""What the matrix says of a pair, with what the PCI bus and the machine have to do with it."""

from __future__ import annotations

import pytest
from pairs import REDIRECTING, bus

from ddp_doctor.facts.p2p import PairRoute
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.interpret.p2p_route import interpret
from ddp_doctor.model import Fact, Facts

TORCH = TorchInstall(python="python", path="/site/torch", version="2.9.0", nccl_wheels=("nvidia-nccl-cu12 2.27.5",))


def why(*facts: Fact) -> set[str]:
    found = interpret(Facts([*(fact for fact in facts if not isinstance(fact, PairRoute)), TORCH]))
    return {route.why for route in found if isinstance(route, PairRoute)}


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (bus(link="switch"), "driver and CUDA allow it"),
        (
            bus(REDIRECTING, link="switch"),
            "driver and CUDA allow it; ACS of 0000:00:01.0, 0000:00:02.0 redirects their traffic to the root complex",
        ),
        (bus(iommu="DMA-FQ", link="switch"), "driver and CUDA allow it; an IOMMU translates their addresses"),
        (bus(iommu="identity", link="switch"), "driver and CUDA allow it"),
        (
            bus(None, link="switch"),
            "driver and CUDA allow it; ACS of 0000:00:01.0, 0000:00:02.0 cannot be read without root",
        ),
        (bus(hypervisor=True, link="switch"), "driver and CUDA allow it; a virtual machine"),
        (bus(REDIRECTING, hypervisor=True, link="nvlink"), "driver and CUDA allow it"),
    ],
    ids=["clean", "acs", "iommu", "pass-through", "not root", "virtual", "nvlink"],
)
def test_what_stands_in_the_way_is_said(seen: list[Fact], told: str) -> None:
    assert why(*seen) == {told}
