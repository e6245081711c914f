"""One line of a log without what launchers, terminals and collectors put around it."""

from __future__ import annotations

import calendar
import re
import time

import msgspec

from ddp_doctor.readers.nccl_log import PREFIX

LONGEST = 16 << 10
"""Bytes of a line that are looked at; NCCL cuts its own at 1 KiB."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
_TIME = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[T _](?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d+))?(?:Z|[+-]\d\d:?\d\d)?|"
    r"(?:\[|\b)[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<glog>\d\d:\d\d:\d\d)(?:\.(?P<glogpart>\d+))?"
)
_PREFIXES = (
    re.compile(r"^\[(?:[a-z_]\w*?)?(?P<rank>\d+)\]:? ?(?!NCCL|\d+ NCCL)(?=\D)", re.IGNORECASE),
    re.compile(r"^\[rank(?P<rank>\d+)\]:? ?", re.IGNORECASE),
    re.compile(r"^ ?(?P<rank>\d{1,5}): (?=\S)"),
    re.compile(r"^\[(?P<host>(?:pod/)?[a-z0-9][\w.-]*/[\w.-]+)\] "),
    re.compile(r"^\((?P<actor>[\w.:<>-]+)(?: rank=(?P<rank>\d+))? pid=(?P<pid>\d+)(?:, ip=(?P<host>[\d.]+))?\) "),
    re.compile(r"^\[(?P<host>[\w.-]+):(?P<pid>\d+)\] "),
    re.compile(r"^(?:\[?\d{4}-\d\d-\d\d[T _]\d\d:\d\d:\d\d[.,]?\d*(?:Z|[+-]\d\d:?\d\d)?\]?:?) ?"),
    re.compile(r"^(?:>+|\|) ?(?=\S)"),
)
_RANK_INSIDE = re.compile(r"\[rank(\d+)\]:|\[Rank (\d+)\]")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one line, and whose they are where its prefixes tell. `at` is in seconds; only differences count."""

    text: str
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    at: float | None = None
    nccl: str = ""
    """INFO, WARN, ATTN, TRACE, CALL or DIAG for a line of NCCL's."""
    message: str = ""
    """What NCCL said, without its prefix; else the whole text."""
    device: int | None = None


def harmless_text(text: str) -> str:
    """The text without escape sequences, control and direction characters: fit to be shown on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROL.sub("", _ESCAPE.sub("", text).expandtabs(4))


def read_line(raw: bytes | str) -> Line:
    """Take one raw line apart."""
    text = raw if isinstance(raw, str) else raw[:LONGEST].decode("utf-8", "replace")
    text = harmless_text(text[:LONGEST].rstrip("\r\n"))
    plain = PREFIX.match(text) if "NCCL " in text else None
    if plain is not None:
        return _nccl_line(plain, text, text, None)
    rank: int | None = None
    host, pid = "", None
    rest = text
    for _ in range(4):
        for prefix in _PREFIXES:
            match = prefix.match(rest)
            if match is None:
                continue
            told = match.groupdict()
            rank = int(told["rank"]) if told.get("rank") else rank
            host = told.get("host") or host
            pid = int(told["pid"]) if told.get("pid") else pid
            rest = rest[match.end() :]
            break
        else:
            break
    if rank is None and (inside := _RANK_INSIDE.search(rest)):
        rank = int(inside[1] or inside[2])
    named = "NCCL " in rest
    nccl = PREFIX.search(rest) if named else None
    if nccl is None:
        level = re.search(r"\bNCCL (INFO|WARN|ATTN) ", rest) if named else None
        return Line(
            text=rest.strip() or text.strip(),
            rank=rank,
            host=host,
            pid=pid,
            at=_seconds(text),
            nccl=level[1] if level else "",
            message=rest[level.end() :].strip() if level else rest.strip(),
        )
    return _nccl_line(nccl, rest, text, rank)


def _nccl_line(nccl: re.Match[str], rest: str, text: str, rank: int | None) -> Line:
    if rank is None and (inside := _RANK_INSIDE.search(rest)):
        rank = int(inside[1] or inside[2])
    return Line(
        text=rest[nccl.start("host") :].strip(),
        rank=rank,
        host=nccl["host"],
        pid=int(nccl["pid"]),
        at=_seconds(text),
        nccl=nccl["level"],
        message=rest[nccl.end() :].strip(),
        device=int(nccl["device"]) if nccl["device"] else None,
    )


def _seconds(text: str) -> float | None:
    """The time a line carries. glog's has no year; the year of the epoch serves, so only such times compare."""
    match = _TIME.search(text, 0, 120)
    if match is None:
        return None
    if match["date"]:
        stamp, part = f"{match['date']} {match['clock']}", match["part"]
    else:
        stamp, part = f"1972-{match['month']}-{match['day']} {match['glog']}", match["glogpart"]
    try:
        return calendar.timegm(time.strptime(stamp, "%Y-%m-%d %H:%M:%S")) + float(f"0.{part or 0}")
    except ValueError:
        return None
