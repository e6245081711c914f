"""DDP504: a lock left by an ended build of a C++ extension."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ddp_doctor.facts.host import ExtensionCache
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

SURELY_NO_BUILD_MINUTES = 5
SHARED_FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse", "cifs", "9p", "wekafs", "smb3")


class JitLock(Check):
    """No lock in torch's extension cache is without a process that builds."""

    id, name = "DDP504", "jit-lock"
    title = "A stale lock stops the build of a C++ extension"
    needs = (ExtensionCache,)
    acts_at = frozenset({Stage.PYTHON, Stage.INITIALIZED, Stage.TRAINING})
    told = Told(
        because="an extension is built under a lock file; a build that was killed leaves it, and every later rank waits "
        "for it without an end",
        fixes=(
            Fix(
                title="remove the lock, while nothing builds",
                commands=("pkill -0 ninja || rm -f ~/.cache/torch_extensions/*/*/lock",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for cache in facts[ExtensionCache]:
            shared = cache.file_system.split(".")[0] in SHARED_FILE_SYSTEMS
            for lock in cache.locks:
                minutes = lock.age_seconds / 60
                # a build keeps its lock open; one on another machine cannot be seen from here
                if lock.holder is not None or not cache.complete or minutes < SURELY_NO_BUILD_MINUTES:
                    continue
                elsewhere = ", or builds on another machine" if shared else ""
                yield self.finding(
                    f"{lock.path} is {minutes:.0f} minutes old and its builder is gone{elsewhere}",
                    because="torch waits without end for the lock to disappear; it was left by a build that was killed",
                    evidence=[cache.evidence(f"{lock.path}, {minutes:.0f} min old, open in no process")],
                    fixes=[Fix(title="delete it", commands=(f"rm {shlex.quote(lock.path)}",), needs="job restart")],
                    severity=Severity.WARNING,
                    confidence=Confidence.POSSIBLE if shared and minutes < 60 else Confidence.LIKELY,
                )
