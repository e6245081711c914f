"""Runs a command in mount and network namespaces of its own, prepared by a Python function; needs root."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x40000, 0x1000
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process into new namespaces; mounts made there are seen by nobody else."""
    _check(_libc.unshare(flags))
    if flags & CLONE_NEWNS:
        mount("none", "/", "", MS_REC | MS_PRIVATE)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    _check(_libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None))


def mount_dead_fuse(target: str) -> int:
    """Mount a FUSE file system whose server never answers; whoever touches it waits. Returns the server's descriptor."""
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    os.set_inheritable(descriptor, True)
    mount("dead", target, "fuse", 0, f"fd={descriptor},rootmode=40000,user_id=0,group_id=0")
    return descriptor


def bind_file(text: str, target: str, folder: Path) -> None:
    """Show another text at the path of an existing file."""
    replacement = folder / target.strip("/").replace("/", "-")
    replacement.write_text(text)
    mount(str(replacement), target, "", MS_BIND)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
