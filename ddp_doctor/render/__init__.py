"""Report to text; a renderer never decides."""

from __future__ import annotations

import re
import sys
from typing import Any, TypeVar

import msgspec

from ddp_doctor.model import Fix

LONGEST = 1500
"""Characters of one value that a person is shown; the JSON report has all of it."""
_UNPRINTABLE = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff\\ufffe\\uffff]"
)

T = TypeVar("T")


def printable(value: T, longest: int = LONGEST) -> T:
    """The same report, with nothing in it that could drive a terminal, reverse its text or flood it.

    Values come from environments, logs and other machines; control characters are shown as escapes. What is to be pasted
    (a fix) is never cut.
    """
    result: Any = value
    if isinstance(value, str):
        shown = value if len(value) <= longest else f"{value[:longest]}... ({len(value):,} characters)"
        result = _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), shown)
    elif isinstance(value, msgspec.Struct):
        longest = sys.maxsize if isinstance(value, Fix) else longest
        fields = {name: printable(getattr(value, name), longest) for name in value.__struct_fields__}
        result = msgspec.structs.replace(value, **fields)
    elif isinstance(value, tuple):
        result = tuple(printable(item, longest) for item in value)
    elif isinstance(value, dict):
        result = {printable(key, longest): printable(item, longest) for key, item in value.items()}
    return result  # type: ignore[no-any-return]
