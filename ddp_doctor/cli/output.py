"""Where a report goes, how it looks, and which exit code it means."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from ddp_doctor.cli.turn import turn
from ddp_doctor.model import Facts, Report, Severity

SLOW_SECONDS = 5.0


class Output:
    """One call's way out: the report on stdout or in a file, everything else on stderr."""

    def __init__(
        self,
        *,
        format: str,
        path: Path | None,
        colour: str,
        verbose: int,
        quiet: bool,
        fail_on: str,
        strict: bool,
        redact: bool = True,
        needs_verdict: bool,
        started: float,
        failing_nodes: Path | None = None,
    ) -> None:
        self._format = format
        self._path = path
        self._colour = colour
        self._verbose = verbose
        self._quiet = quiet
        self._fail_on = fail_on
        self._strict = strict
        self._redact = redact
        self.needs_verdict = needs_verdict
        """Whether a verdict that could not be reached is exit code 4."""
        self.started = started
        self.facts = Facts()
        """What the examination observed, once it is over."""
        self.failing_nodes = failing_nodes
        """The file for the nodes at fault, as `srun --exclude` takes them."""
        self.one_of_many = False
        """Whether other ranks write to the same place: documents are then one line each."""
        self._live = False
        self._told_at = 0.0

    def keep(self, facts: Facts) -> None:
        """Take the facts of an examination."""
        self.facts = facts

    def waiting(self, names: tuple[str, ...]) -> None:
        """Show which probes are still out: a line that is rewritten on a terminal, else a line after some seconds."""
        seconds = time.monotonic() - self.started
        if self._quiet or sys.stderr is None:
            return
        if sys.stderr.isatty():
            if seconds > 0.3:
                text = f"{seconds:4.1f} s  waiting for {', '.join(names)}"[: shutil.get_terminal_size().columns - 1]
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()
                self._live = True
        elif seconds - self._told_at >= SLOW_SECONDS:
            self._told_at = seconds
            sys.stderr.write(f"ddp-doctor: still waiting for {', '.join(names)} after {seconds:.0f} s\n")
            sys.stderr.flush()

    def reading(self, done: int, files: int) -> None:
        """Show how many files have been read, on a terminal only and only where it takes a while."""
        if self._quiet or files < 2 or sys.stderr is None or not sys.stderr.isatty():
            return
        now = time.monotonic()
        if now - self.started > 0.5 and (now - self._told_at > 0.1 or done == files):
            self._told_at = now
            sys.stderr.write(f"\r\x1b[K{done} of {files} files read")
            sys.stderr.flush()
            self._live = True

    def deliver(self, report: Report) -> NoReturn:
        """Write the report and exit with its code; what cannot be written is said on stderr with code 3."""
        import typer

        raise typer.Exit(self.write(report))

    def write(self, report: Report) -> int:
        """Write the report; returns its exit code, or 3 where it cannot be written."""
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        code = self.code(report)
        if self.failing_nodes is not None:
            from ddp_doctor.rank.failing_nodes import failing_nodes

            line = ",".join(failing_nodes(report, os.environ))
            try:
                _write(self.failing_nodes, f"{line}\n" if line else "")
            except OSError as error:
                self.say(f"cannot write {self.failing_nodes}: {error.strerror}")
                code = 3
        if self._path is not None:
            try:
                _write(self._path, self._rendered(report, terminal=False))
            except OSError as error:
                self.say(f"cannot write {self._path}: {error.strerror}; the report goes to stdout")
                code = 3
            else:
                return code
        if sys.stdout is None:
            self.say("stdout is closed and no -o FILE was given: the report is lost, the exit code stands")
            return code
        text = self._rendered(report, terminal=sys.stdout.isatty())
        if isinstance(sys.stdout, io.TextIOWrapper):
            # documents say that they are UTF-8, whatever this locale is
            encoding = None if self._format == "text" else "utf-8"
            sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
        try:
            with turn(sys.stdout):
                sys.stdout.write(text)
                sys.stdout.flush()
        except BrokenPipeError:
            # the reader has seen enough; point stdout elsewhere so that the interpreter does not complain at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError) as error:
            self.say(f"cannot write the report to stdout: {getattr(error, 'strerror', None) or error}")
            code = 3
        return code

    def of_rank(self, rank: int) -> None:
        """From now on `-o FILE` is this rank's own, FILE.rank3."""
        self.one_of_many = True
        if self._path is not None:
            self._path = self._path.with_name(f"{self._path.name}.rank{rank}")
        self.failing_nodes = None  # what one rank sees alone would replace what rank 0 writes

    def write_line(self, line: str, report: Report) -> int:
        """Write one line to stdout (to stderr where that is for a document), and the report to its file if it has one."""
        if self._format == "text" and sys.stdout is not None:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        else:
            self.say(line)
        return self.write(report) if self._path is not None else self.code(report)

    def show(self, report: Report) -> None:
        """Write the report to the file, else to stderr, where stdout belongs to somebody else."""
        if self._path is not None:
            try:
                self._path.write_text(self._rendered(report, terminal=False), encoding="utf-8")
                return
            except OSError as error:
                self.say(f"cannot write {self._path}: {error.strerror}; the report follows")
        if sys.stderr is not None:
            sys.stderr.write(self._rendered(report, terminal=sys.stderr.isatty()))
            sys.stderr.flush()

    def code(self, report: Report) -> int:
        """The exit code of the contract."""
        if report.interrupted:
            return 143 if report.interrupted == "terminated" else 130
        if report.verdict.status == "nothing":
            return 5
        least = {"error": Severity.ERROR.rank, "warning": Severity.WARNING.rank, "never": -1}[self._fail_on]
        if any(finding.severity.rank <= least and not _undecided(report, finding.id) for finding in report.findings):
            return 1
        if self.needs_verdict and report.verdict.status == "unknown":
            return 4
        if self._strict and any(outcome.status in ("unknown", "crashed") for outcome in report.outcomes):
            return 4
        return 0

    def _rendered(self, report: Report, *, terminal: bool) -> str:
        if self._format != "text":
            from ddp_doctor.cli import formats

            document = formats.rendered(self._format, report, code=self.code(report), redact=self._redact)
            if self._format == "json" and self.one_of_many:
                # launchers that have a pipe for each rank put their output together line by line
                return msgspec.json.format(document, indent=-1) + "\n"
            return document
        from ddp_doctor.render import text

        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
        return text.render(
            report,
            text.Style(
                width=min(100, shutil.get_terminal_size((100, 24)).columns),
                colour=self._colours(terminal),
                unicode=encoding == "utf8" or self._path is not None,
                verbose=self._verbose,
            ),
        )

    def _colours(self, terminal: bool) -> bool:
        if self._colour != "auto":
            return self._colour == "always"
        return terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def say(self, text: str) -> None:
        """One line on stderr."""
        if sys.stderr is not None:
            sys.stderr.write(f"ddp-doctor: {text}\n")
            sys.stderr.flush()


def _write(path: Path, text: str) -> None:
    """Write the whole file or, where that fails, leave what was there. Raises OSError."""
    data = text.encode("utf-8", "backslashreplace")
    target = path.resolve()
    if target.exists() and not target.is_file():  # a pipe, a device
        target.write_bytes(data)
        return
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(data)
        if target.exists():
            unfinished.chmod(target.stat().st_mode)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _undecided(report: Report, finding: str) -> bool:
    """Whether a finding is only one of several candidates."""
    return report.verdict.status == "unknown" and finding in report.verdict.candidates
