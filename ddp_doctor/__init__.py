"""Why PyTorch DDP initialisation hangs, and what to type to fix it.

Importing this package costs almost nothing: the public names below are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing would cost, and a file typing.py could shadow it
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Absent": "model",
    "Check": "model",
    "Confidence": "model",
    "Evidence": "model",
    "Fact": "model",
    "Facts": "model",
    "Finding": "model",
    "Fix": "model",
    "Headline": "model",
    "Host": "host",
    "Interpreter": "interpret",
    "Pack": "packs",
    "PreflightFailed": "rank.preflight",
    "Probe": "collect",
    "Report": "model",
    "Separator": "model",
    "Severity": "model",
    "Stage": "model",
    "Subject": "model",
    "preflight": "rank.preflight",
    "watch": "watching.block",
}
__all__ = [*_HOMES, "__version__"]

if TYPE_CHECKING:
    from ddp_doctor.collect import Probe as Probe
    from ddp_doctor.host import Host as Host
    from ddp_doctor.interpret import Interpreter as Interpreter
    from ddp_doctor.model import (
        Absent as Absent,
        Check as Check,
        Confidence as Confidence,
        Evidence as Evidence,
        Fact as Fact,
        Facts as Facts,
        Finding as Finding,
        Fix as Fix,
        Headline as Headline,
        Report as Report,
        Separator as Separator,
        Severity as Severity,
        Stage as Stage,
        Subject as Subject,
    )
    from ddp_doctor.packs import Pack as Pack
    from ddp_doctor.rank.preflight import PreflightFailed as PreflightFailed, preflight as preflight
    from ddp_doctor.watching.block import watch as watch


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ddp_doctor' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"ddp_doctor.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
