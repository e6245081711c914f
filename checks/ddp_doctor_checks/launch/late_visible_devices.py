"""DDP107: CUDA_VISIBLE_DEVICES is set after CUDA was initialised, and is ignored."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.script import MaskAssignment
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

NEEDS = "code change, job restart"


class LateVisibleDevices(Check):
    id, name = "DDP107", "late-visible-devices"
    title = "CUDA_VISIBLE_DEVICES set after CUDA was used"
    needs = (MaskAssignment,)
    acts_at = frozenset({Stage.COMM_BOOTSTRAP, Stage.COMM_TOPOLOGY, Stage.FIRST_COLLECTIVE})
    told = Told(
        because="CUDA reads CUDA_VISIBLE_DEVICES once, when it starts; set later it is ignored and all ranks use the same "
        "GPUs",
        fixes=(
            Fix(
                title="set the mask outside the program, or leave it alone and choose by number",
                commands=(
                    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # and no assignment to CUDA_VISIBLE_DEVICES',
                ),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for mask in facts[MaskAssignment]:
            # device_count() asks NVML and reads the mask anew each time, in current releases
            if mask.after is None or mask.after_call == "torch.cuda.device_count":
                continue
            fatal = mask.per_rank and mask.distributed and not mask.only_asked
            yield self.finding(
                f"CUDA_VISIBLE_DEVICES is set ({mask.at.source}) after {mask.after_call} ({mask.after.source}): it is ignored",
                because="CUDA reads the mask once, when it is initialised; from then on every GPU stays visible"
                + (", so all ranks take GPU 0, and NCCL refuses two ranks on one GPU" if mask.per_rank else ""),
                evidence=[mask.evidence(), mask.after.evidence(mask.kind(), "before it")],
                fixes=_fixes(mask),
                severity=Severity.ERROR if fatal else Severity.WARNING,
                confidence=Confidence.CERTAIN if mask.proven and not mask.only_asked else Confidence.LIKELY,
            )


def _fixes(mask: MaskAssignment) -> list[Fix]:
    if mask.per_rank:
        title = "delete the mask; choose the GPU by number before anything else uses CUDA"
        return [Fix(title=title, commands=('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',), needs=NEEDS)]
    value = mask.value.strip("\"'")
    command = (
        f"CUDA_VISIBLE_DEVICES={value} python {mask.at.path}"
        if mask.devices
        else f"unset CUDA_VISIBLE_DEVICES; python {mask.at.path}"
    )
    return [Fix(title="set it where the program is started, and delete the line", commands=(command,), needs=NEEDS)]
