"""Why PyTorch DDP initialisation hangs, and what to type to fix it.

Importing this package costs almost nothing: the public names below are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Check": "model",
    "Confidence": "model",
    "Evidence": "model",
    "Fact": "model",
    "Facts": "model",
    "Finding": "model",
    "Fix": "model",
    "Report": "model",
    "Severity": "model",
    "Stage": "model",
    "Subject": "model",
    "Absent": "model",
    "Probe": "collect",
    "Pack": "packs",
    "Host": "host",
}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from ddp_doctor.collect import Probe as Probe
    from ddp_doctor.host import Host as Host
    from ddp_doctor.model import (
        Absent as Absent,
    )
    from ddp_doctor.model import (
        Check as Check,
    )
    from ddp_doctor.model import (
        Confidence as Confidence,
    )
    from ddp_doctor.model import (
        Evidence as Evidence,
    )
    from ddp_doctor.model import (
        Fact as Fact,
    )
    from ddp_doctor.model import (
        Facts as Facts,
    )
    from ddp_doctor.model import (
        Finding as Finding,
    )
    from ddp_doctor.model import (
        Fix as Fix,
    )
    from ddp_doctor.model import (
        Report as Report,
    )
    from ddp_doctor.model import (
        Severity as Severity,
    )
    from ddp_doctor.model import (
        Stage as Stage,
    )
    from ddp_doctor.model import (
        Subject as Subject,
    )
    from ddp_doctor.packs import Pack as Pack


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddp_doctor' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"ddp_doctor.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
