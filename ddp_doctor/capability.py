"""What the kernel lets a process do besides what its user may."""

from __future__ import annotations

CAP_SYS_PTRACE = 19
CAP_SYS_NICE = 23


def has_capability(status: str, number: int) -> bool:
    """Whether the text of a /proc/PID/status shows the capability of this number in effect."""
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> number & 1)
