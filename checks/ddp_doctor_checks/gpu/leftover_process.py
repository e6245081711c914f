"""DDP410: a process that is dead, stuck or abandoned still holds a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.gpu import DriverGpu, GpuNode, GpuProcess
from ddp_doctor.facts.gpu_views import SEEN, gpu_views, without_gpu
from ddp_doctor.facts.nccl_live import GpuUse
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Told
from ddp_doctor_checks.gpu import leftover_process_live as live

DEAD = ("", "Z", "X")
INIT = 1


class LeftoverProcess(Check):
    id, name = "DDP410", "leftover-process"
    title = "A leftover process holds a GPU"
    needs = (DriverGpu, GpuNode)
    also_reads = (*SEEN, GpuUse, *live.READS)
    told = Told(
        because="processes of an earlier run still hold the GPU or the port",
        fixes=(
            Fix(
                title="find and end them",
                commands=(
                    "fuser -v /dev/nvidia* 2>&1; ps -eo pid,ppid,stat,etime,args | awk '$2==1 && /python/'",
                    "kill PID   # then kill -KILL PID; a process in state D goes only with a reboot",
                ),
                needs="the owner of the processes",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return "" if facts[GpuUse] or any(live.left_over(facts)) else without_gpu(facts)

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for each in live.from_job(facts):
            yield self.finding(**each)
        for use in facts[GpuUse]:
            for process in () if use.own_pids else use.processes:
                yield from self._look_at(use, process)
        for seen in gpu_views(facts):
            # in a PID namespace of its own a PID that is unknown says nothing
            if seen.node is None or seen.node.own_pids:
                continue
            for gpu in seen.gpus:
                for process in gpu.processes:
                    yield from self._look_at(gpu, process)

    def _look_at(self, gpu: DriverGpu | GpuUse, process: GpuProcess) -> Iterator[Finding]:
        severity, confidence = Severity.WARNING, Confidence.LIKELY
        if process.state in DEAD:
            how = "is gone, but still holds"
            fix = Fix(
                title="see who has the device open and end that; if nobody has, reset the GPU",
                commands=("sudo fuser -v /dev/nvidia*", f"sudo nvidia-smi --gpu-reset -i {gpu.index}"),
                needs="root",
            )
        elif process.state == "D":
            how = "is stuck in the kernel (state D) and holds"
            fix = Fix(
                title="see where; a process that stays in D ends only with a reboot",
                commands=(f"cat /proc/{process.pid}/wchan; sudo dmesg -T | grep -iE 'NVRM|Xid' | tail",),
                needs="root",
            )
        elif process.parent == INIT and process.command.startswith(("python", "pt_main")):
            # nohup and disown leave healthy jobs just so
            severity, confidence = Severity.NOTE, Confidence.POSSIBLE
            how = "has lost its parent and holds"
            fix = Fix(
                title="if it is left over from a job of yours, end it",
                commands=(f"ps -o pid,user,lstart,cmd -p {process.pid}", f"kill {process.pid}"),
                needs="the owner's consent",
            )
        else:
            return
        memory = "memory" if process.mib is None else f"{process.mib} MiB"
        yield self.finding(
            f"PID {process.pid} {how} {memory} of {gpu.label}",
            because="a new rank on this GPU has that much less, and in exclusive mode none at all",
            evidence=[gpu.evidence(process.text())],
            fixes=[fix],
            severity=severity,
            confidence=confidence,
        )
