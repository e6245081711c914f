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
OTHERS_SECONDS = 15.0


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
        # the agent may have ended this rank, for another that had ended, before it had read what it said two attempts ago
        for before in self._before(self._file.parent.name if self._file is not None else ""):
            told = _told(before)
            if told is not None:
                self._write(told)
                _delete(before)
                self._wait_for_others()
                return told
        return None

    def tell(self, report: Report, code: int) -> None:
        """Say why this rank ends, where torchrun would start it again for that."""
        if code == 0:
            return
        worst = report.findings[:1]
        text = f"{worst[0].id} {worst[0].name}: {worst[0].summary}" if worst else report.verdict.status
        self._write(Told(code=code, text=text))

    def _before(self, rank: str) -> list[Path]:
        """The files of earlier attempts, the last first: those of one rank, or of all with `*`."""
        if self._file is None:
            return []
        attempts = [self._file.parents[1].with_name(f"attempt_{each}") for each in reversed(range(self._count))]
        return [path for attempt in attempts for path in attempt.glob(f"{rank}/{self._file.name}")]

    def _wait_for_others(self) -> None:
        """Until the other ranks here have read theirs too: the agent kills them as soon as one ends."""
        give_up = time.monotonic() + OTHERS_SECONDS
        while self._before("*") and time.monotonic() < give_up:
            time.sleep(0.05)

    def _write(self, told: Told) -> None:
        if self._file is None or self._last:
            return
        extra = {"py_callstack": MARK + told.text, "timestamp": str(int(time.time()))}
        message = {"message": MARK + told.text, "errorCode": told.code, "extraInfo": extra}
        try:
            self._file.write_text(json.dumps({"message": message}), encoding="utf-8")
        except OSError:
            pass  # the folder is the agent's; without the file the report is printed once more


def _told(path: Path) -> Told | None:
    """What a rank wrote into this file; None where it was somebody else, or nobody."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))["message"]
        text, code = said["message"], said["errorCode"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not (isinstance(text, str) and text.startswith(MARK) and isinstance(code, int)):
        return None
    return Told(code=code, text=text[len(MARK) :])


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        pass  # the folder is the agent's
