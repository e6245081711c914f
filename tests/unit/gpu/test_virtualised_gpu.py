from __future__ import annotations

from checking import run_check
from ddp_doctor_checks.gpu.virtualised_gpu import VirtualisedGpu
from gpu_facts import gpu, judge_gpus, node, torch_cuda
from pairs import bus, copy

from ddp_doctor.facts.gpu import DeviceNode
from ddp_doctor.facts.pcie import Machine
from ddp_doctor.model import Absent, Confidence, Severity


def test_a_vgpu_is_a_note_and_an_error_where_torch_is_refused() -> None:
    virtual = gpu(0, name="GRID A100-10C", virtualization="vgpu")
    refused = torch_cuda(False, 1, "RuntimeError: CUDA error: operation not supported")
    judged = judge_gpus(VirtualisedGpu, virtual)
    assert judged.outcome.status == "hit"
    assert judged.findings[0].severity is Severity.NOTE
    assert judge_gpus(VirtualisedGpu, virtual, refused).findings[0].severity is Severity.ERROR


def test_wsl_is_a_note() -> None:
    wsl = node(wsl=True, pci=(), nodes=(DeviceNode(path="/dev/dxg"),))
    assert judge_gpus(VirtualisedGpu, wsl).findings[0].severity is Severity.NOTE


def test_pass_through_alone_is_clear() -> None:
    assert judge_gpus(VirtualisedGpu, gpu(0, virtualization="passthrough")).outcome.status == "clear"


def test_a_driver_that_is_silent_leaves_it_unknown() -> None:
    judged = judge_gpus(VirtualisedGpu, Absent(kind="DriverGpu", status="timeout", reason="nvmlInit"))
    assert judged.outcome.status == "unknown"


def test_a_virtual_machine_that_does_not_join_the_memory_of_two_gpus() -> None:
    refused = copy("failed", step="open", call="cuMemImportFromShareableHandle", error="operation not supported")
    (finding,) = run_check(VirtualisedGpu, refused, *bus(hypervisor=True)).findings
    assert (finding.severity, finding.confidence) == (Severity.ERROR, Confidence.LIKELY)
    assert "this is a virtual machine" in finding.because
    assert run_check(VirtualisedGpu, refused, *bus()).findings == ()


def test_the_machine_below_a_vgpu_is_quoted() -> None:
    below = Machine(hypervisor=True, product="KVM")
    (finding,) = judge_gpus(VirtualisedGpu, gpu(0, name="GRID A100-10C", virtualization="vgpu"), below).findings
    assert "a virtual machine, KVM, no IOMMU" in [evidence.value for evidence in finding.evidence]
