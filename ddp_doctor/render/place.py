"""Where in the user's own source a finding belongs, for formats that mark lines of files."""

from __future__ import annotations

import re

import msgspec

from ddp_doctor.model import Finding, Report

_FILE = r"(?P<file>[^\s:\"'<>]+\.(?:py|ipynb))"
_SOURCE = re.compile(rf"{_FILE}:(?P<line>\d+)")
_FRAMES = (re.compile(rf"<- {_FILE}:(?P<line>\d+)"), re.compile(r'File "(?P<file>[^"<]+\.py)", line (?P<line>\d+)'))
_WHERE = re.compile(rf"{_FILE}:(?P<line>\d+)\b")
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|lib/python3[\w.]*|torch)/")


class Place(msgspec.Struct, frozen=True):
    """A line of a file, by the path the evidence gives."""

    file: str
    line: int

    def below(self, root: str) -> Place:
        """The same place by its path relative to a folder that holds it; unchanged where that does not."""
        prefix = root.rstrip("/") + "/"
        if not root or not self.file.startswith(prefix):
            return Place(self.file.removeprefix("./"), self.line)
        return Place(self.file.removeprefix(prefix), self.line)


def place_of(finding: Finding, report: Report) -> Place | None:
    """The first line of the user's own source that the evidence names, else where one of its ranks stands."""
    for item in finding.evidence:
        place = _place(_SOURCE.fullmatch(item.source))
        if place is not None:
            return place
    for item in finding.evidence:
        for frame in _FRAMES:
            for match in frame.finditer(item.value):
                place = _place(match)
                if place is not None:
                    return place
    for row in report.ranks:
        if row.rank in finding.ranks:
            place = _place(_WHERE.match(row.where))
            if place is not None:
                return place
    return None


def _place(match: re.Match[str] | None) -> Place | None:
    if match is None or _LIBRARY.search(match["file"]) or not 0 < int(match["line"]) < 1 << 31:
        return None
    return Place(match["file"], int(match["line"]))
