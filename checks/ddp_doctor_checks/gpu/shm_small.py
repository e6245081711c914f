"""DDP405: /dev/shm is too small for the shared memory of NCCL and of DataLoader workers."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.host import ShmSpace, size
from ddp_doctor.facts.launch import Launcher, Variable
from ddp_doctor.interpret.launcher import number
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import communicator

MIB = 1 << 20
NCCL_SEGMENT = 9_637_892
"""Bytes of one connection through shared memory, measured with NCCL 2.30."""
CHANNELS = 2
TOO_SMALL_FOR_ANY_JOB = 16 * MIB
DOCKER_DEFAULT = 64 * MIB


class ShmSmall(Check):
    """/dev/shm has room for a segment per local rank and channel, and for the batches DataLoader workers hand over."""

    id, name = "DDP405", "shm-small"
    title = "/dev/shm is too small"
    needs = (ShmSpace,)
    also_reads = (Launcher, Variable, *communicator.READS)
    acts_at = frozenset({Stage.TRANSPORT, Stage.FIRST_COLLECTIVE, Stage.TRAINING})
    told = Told(
        because="without peer-to-peer NCCL passes data through files in /dev/shm, about 10 MB per connection; docker "
        "gives 64 MB",
        fixes=(
            Fix(
                title="give the container more",
                commands=("docker run --shm-size=16g IMAGE   # or --ipc=host",),
                needs="container restart",
            ),
            Fix(
                title="see what is there, and remove segments that no process uses",
                commands=(
                    "df -h /dev/shm; ls -l /dev/shm",
                    'for f in /dev/shm/nccl-*; do fuser -s "$f" || rm -f "$f"; done',
                ),
                needs="the owner of the files",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        yield from communicator.findings(self, facts)
        for shm in facts[ShmSpace]:
            if shm.error or not shm.writable or shm.free_inodes == 0:
                reason = shm.error or ("it cannot be written" if not shm.writable else "it has no inode left")
                yield self._finding(shm, f"{shm.path} cannot be used: {reason}", Severity.WARNING, Confidence.CERTAIN)
                continue
            ranks = _local_ranks(facts.on(shm.subject.host) if shm.subject.host else facts, shm)
            need = ranks * CHANNELS * NCCL_SEGMENT
            if shm.free <= TOO_SMALL_FOR_ANY_JOB:
                summary = f"{shm.path} has {size(shm.free)} left of {size(shm.size)}: too little for any job"
                yield self._finding(shm, summary, Severity.WARNING, Confidence.CERTAIN)
            elif shm.gpus > 1 and shm.free < need:
                summary = (
                    f"{shm.path} has {size(shm.free)} left; {ranks} ranks need {size(need)} where NCCL goes through it"
                )
                yield self._finding(shm, summary, Severity.WARNING, Confidence.LIKELY)
            elif shm.size <= DOCKER_DEFAULT:
                summary = (
                    f"{shm.path} has {size(shm.size)}, docker's default: enough here, little for DataLoader workers"
                )
                yield self._finding(shm, summary, Severity.NOTE, Confidence.CERTAIN)

    def _finding(self, shm: ShmSpace, summary: str, severity: Severity, confidence: Confidence) -> Finding:
        fixes = [
            Fix(title="on this machine", commands=(f"mount -o remount,size=50% {shm.path}",), needs="root"),
            Fix(title="in a container, one of", commands=("docker run --shm-size=16g IMAGE", "docker run --ipc=host IMAGE"),
                needs="container restart"),
            Fix(title="in Kubernetes, mounted at /dev/shm",
                commands=("volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}]",
                          "volumeMounts: [{name: shm, mountPath: /dev/shm}]"), needs="pod restart"),
        ]  # fmt: skip
        evidence = [shm.evidence()]
        if shm.leftovers:
            names = ", ".join(shm.leftovers[:3])
            evidence.append(
                shm.evidence(f"{len(shm.leftovers)} files of ended jobs hold {size(shm.leftover_bytes)}: {names}")
            )
            files = " ".join(f"{shm.path}/{name}" for name in shm.leftovers)
            needs = "no other container that shares this /dev/shm"
            fixes.insert(0, Fix(title="remove what ended jobs left", commands=(f"rm -f {files}",), needs=needs))
        return self.finding(
            summary,
            because=f"an NCCL connection through shared memory takes {NCCL_SEGMENT / MIB:.1f} MiB and fails with `unhandled "
            "system error` where it does not fit; a DataLoader worker dies of a bus error",
            evidence=evidence,
            fixes=fixes,
            severity=severity,
            confidence=confidence,
        )


def _local_ranks(facts: Facts, shm: ShmSpace) -> int:
    said = [launcher.local_world_size or 0 for launcher in facts[Launcher] if launcher.alive]
    wanted = [number(found.value) or 0 for found in facts[Variable] if found.name == "PET_NPROC_PER_NODE"]
    return max([0, *said, *wanted]) or max(shm.gpus, 2)
