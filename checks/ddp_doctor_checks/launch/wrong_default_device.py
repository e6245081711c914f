"""DDP108: the GPU behind a device number is not the one meant."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import CudaView, DriverGpu
from ddp_doctor.facts.gpu_views import SEEN, gpu_views, without_gpu
from ddp_doctor.facts.script import DeviceChoice, GroupStart
from ddp_doctor.model import Check, Facts, Finding, Fix, Severity, Told
from ddp_doctor.readers.cuda_mask import read_mask
from ddp_doctor_checks.launch.wrong_default_device_script import from_script


class WrongDefaultDevice(Check):
    id, name = "DDP108", "wrong-default-device"
    title = "A device number that means another GPU"
    needs = ((CudaView, DeviceChoice), (DriverGpu, DeviceChoice, GroupStart))
    also_reads = SEEN
    told = Told(
        because="what names no GPU lands on GPU 0 or on a guess: a barrier, an object collective, a checkpoint; ranks "
        "then meet on the wrong devices",
        fixes=(
            Fix(
                title="choose the GPU first, and say it where a collective or a checkpoint would guess",
                commands=(
                    'device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))',
                    "torch.cuda.set_device(device)",
                    "torch.load(path, map_location=device)",
                ),
                needs="code change, job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        read = bool(facts[DeviceChoice] or facts[GroupStart])
        return "" if read else without_gpu(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for found in from_script(facts):
            yield self.finding(**found)
        for seen in gpu_views(facts):
            cuda = seen.cuda
            if cuda is None or cuda.mask is None or cuda.order == "PCI_BUS_ID" or not read_mask(cuda.mask).by_number:
                continue
            by_uuid = {gpu.uuid: gpu for gpu in seen.gpus}
            for entry, device in zip(read_mask(cuda.mask).seen, cuda.devices, strict=False):
                got = by_uuid.get(device.gpu_uuid)
                meant = next((gpu for gpu in seen.gpus if str(gpu.index) == entry), None)
                if got is None or meant is None or got.name == meant.name:
                    continue
                yield self.finding(
                    f"CUDA_VISIBLE_DEVICES={cuda.mask} gives {got.name}; nvidia-smi's GPU {entry} is {meant.name}",
                    because="without CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA counts the fastest GPU first, nvidia-smi counts "
                    "along the bus; two ranks can end on one GPU, or on one that others use",
                    evidence=[cuda.evidence(f"{cuda.text()}: {device.name}, {device.gpu_uuid}"), meant.evidence()],
                    fixes=[
                        Fix(title="count as nvidia-smi does", commands=("export CUDA_DEVICE_ORDER=PCI_BUS_ID",)),
                        Fix(title="or name the GPU itself", commands=(f"export CUDA_VISIBLE_DEVICES={meant.uuid}",)),
                    ],
                    severity=Severity.WARNING,
                )
                break
