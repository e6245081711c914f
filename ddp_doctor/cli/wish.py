"""What the user asked of `run`; by itself, since not every rank of a job imports what it takes to answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ddp_doctor.examine import Selection


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `run` that concern what is examined."""

    selection: Selection | None
    timeout: float
    probe_timeout: float
    nproc: int | None = None
    script: Path | None = None
    active: str = "auto"
    python: str | None = None
    share: Path | None = None
    """A folder that all hosts see, for ranks that cannot meet over the network."""
