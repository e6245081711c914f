"""Between two attempts of torchrun: the file in which a rank says why it ended, read and deleted by the next attempt."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ddp_doctor.interpret.launcher import number
from ddp_doctor.model import Report

MARK = "ddp-doctor: "
OTHERS_SECONDS = 5.0


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempt before this one ended with."""

    code: int
    text: str


class Attempt:
    """This start of a rank below an elastic agent; nothing is read or written where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        named = environ.get("TORCHELASTIC_ERROR_FILE", "")
        self._file = Path(named) if named else None
        self._count = number(environ.get("TORCHELASTIC_RESTART_COUNT")) or 0
        self._last = self._count >= (number(environ.get("TORCHELASTIC_MAX_RESTARTS")) or 0)

    def told_before(self) -> Told | None:
        """The verdict that made the agent start its ranks again; None where there was none."""
        if self._file is None or self._count < 1:
            return None
        attempt, rank = self._file.parents[1], self._file.parent.name
        before = attempt.with_name(f"attempt_{self._count - 1}") / rank / self._file.name
        try:
            said = json.loads(before.read_text(encoding="utf-8"))
            before.unlink()
            _wait_for_others(before.parents[1])
            text, code = said["message"]["message"], said["message"]["errorCode"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not (isinstance(text, str) and text.startswith(MARK) and isinstance(code, int)):
            return None
        told = Told(code=code, text=text[len(MARK) :])
        self._write(told)
        return told

    def tell(self, report: Report, code: int) -> None:
        """Say why this rank ends, where torchrun would start it again for that."""
        if code == 0:
            return
        worst = report.findings[:1]
        text = f"{worst[0].id} {worst[0].name}: {worst[0].summary}" if worst else report.verdict.status
        self._write(Told(code=code, text=text))

    def _write(self, told: Told) -> None:
        if self._file is None or self._last:
            return
        extra = {"py_callstack": MARK + told.text, "timestamp": str(int(time.time()))}
        message = {"message": MARK + told.text, "errorCode": told.code, "extraInfo": extra}
        try:
            self._file.write_text(json.dumps({"message": message}), encoding="utf-8")
        except OSError:
            pass  # the folder is the agent's; without the file the report is printed once more


def _wait_for_others(attempt: Path) -> None:
    """Until the other ranks here have read theirs too: the agent kills them as soon as one ends."""
    give_up = time.monotonic() + OTHERS_SECONDS
    while time.monotonic() < give_up and any(attempt.glob("*/error.json")):
        time.sleep(0.05)
