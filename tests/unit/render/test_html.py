"""The page, read back by an HTML parser."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from reports import HOSTILE, everything, finding, report, undecided

from ddp_doctor.model import Report, Severity
from ddp_doctor.render import html, text

VOID = {"meta", "br"}
KNOWN = {
    "html", "head", "title", "style", "body", "header", "footer", "section", "h1", "h2", "p", "dl", "dt", "dd", "pre",
    "code", "b", "span", "ul", "li", "div", "table", "tr", "th", "td", "details", "summary",
} | VOID  # fmt: skip


class Page(HTMLParser):
    """The texts of a page and its tags, after making sure that every tag is closed where it should be."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.pre: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in KNOWN
        assert {name for name, _ in attributes} <= {"class", "lang", "charset", "name", "content", "http-equiv"}
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "pre":
            self.pre.append(data)
        self.texts.append(data)

    @property
    def text(self) -> str:
        """Everything a reader sees."""
        return " ".join(" ".join(self.texts).split())


def test_it_says_what_the_text_report_says() -> None:
    shown = everything("words")
    page = Page(html.render(shown)).text
    for word in ("DDP103", "thread-launch", "DDP202", "DDP601", "ranks", "SHM", "PID 9", "ddp-doctor explain"):
        assert word in page and word in text.render(shown, text.Style(verbose=1))
    assert "explains DDP101" in page and "waits for" in page and "3x" in page


def test_fixes_are_pasteable_as_they_stand() -> None:
    pre = Page(html.render(report(finding()))).pre
    assert pre == ["torchrun --nproc-per-node=2 jobs/train.py", "--- a\n+++ b\n-x\n+y"]


def test_without_a_verdict_it_says_what_decides() -> None:
    page = Page(html.render(undecided("ask the switch"))).text
    assert "unknown: ask the switch" in page and "candidates: DDP101, DDP302" in page and "next: ask" in page


def test_a_healthy_page_shows_no_error() -> None:
    source = html.render(report(finding("DDP202", "loopback-name", Severity.NOTE), verdict=report().verdict))
    assert "healthy: no problem found" in Page(source).text and 'class="finding error"' not in source


@pytest.mark.parametrize("shown", [everything(HOSTILE), undecided(HOSTILE)])
def test_a_log_adds_no_tag_and_nothing_is_loaded(shown: Report) -> None:
    source = html.render(shown)
    quiet = html.render(everything("words") if shown.findings else undecided("words"))
    assert Page(source).tags == Page(quiet).tags
    assert "<script>alert(1)</script>" in Page(source).text
    assert not {"\x1b", "\x00", "\u202e"} & set(source)
    for way in ("src=", "href=", "url(", "@import", "http://", "https://"):
        assert way not in source
    source.encode()
