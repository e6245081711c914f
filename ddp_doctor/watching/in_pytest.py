"""A test that is marked `ddp_watch`: its ranks are observed from beside it, and where they hang they and the test are ended.

A thread waits while the test runs. When part of the time is over it starts the observer, a process; what that says is kept
with the test. Then what the test started is killed, and the test is interrupted if that alone does not end it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ddp_doctor.watching.block import let_trace, ptrace_scope
from ddp_doctor.watching.tree import SECONDS_TO_TERMINATE, below, send

DEFAULT_SECONDS = 120.0
ASLEEP = 0.25
"""The part of the time for which nothing runs beside the test: most tests are over then."""
INTERRUPT = signal.SIGURG
"""Ignored where nobody handles it, so one that comes late harms nobody; the usual ones belong to the test."""
SECONDS_TO_LEAVE = 2.0
"""That a test gets to leave the place where it stands, before the next and ruder way to make it leave."""


STACK_LINES = 6


class Hung(BaseException):
    """Raised in a test that stands still, where it stands."""


class Watching:
    """The plugin proper; there only where a test has the mark."""

    def __init__(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self._config = config
        self._watch: Watch | None = None
        self._seconds = {item.nodeid: _seconds(item) for item in items if item.get_closest_marker("ddp_watch")}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        seconds = self._seconds.get(item.nodeid)
        if seconds is None or sys.platform != "linux" or os.environ.get("DDP_DOCTOR") == "off":
            return (yield)
        self._watch = Watch(item, seconds)
        try:
            return (yield)
        finally:
            self._watch.end()
            self._watch = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        return (yield from self._phase())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        return (yield from self._phase())

    def _phase(self) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        watch = self._watch
        if watch is None:
            return (yield)
        try:
            watch.phase += 1
            try:
                result = yield
            finally:
                watch.phase += 1
        except BaseException as error:
            if not watch.tell_once():
                raise
            raise pytest.fail.Exception(watch.headline) from error
        if watch.tell_once():
            raise pytest.fail.Exception(watch.headline)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if self._watch is None or fixturedef.scope == "function":
            return (yield)
        try:
            return (yield)
        finally:
            self._watch.spare_what_is_there()  # a server for all tests, say

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if self._watch is not None and self._watch.text and report.failed:
            report.ddp_doctor = self._watch.text
        return report


def _seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("ddp_watch")
    assert mark is not None
    named = {**dict(zip(("seconds",), mark.args, strict=False)), **mark.kwargs}
    seconds = named.pop("seconds", DEFAULT_SECONDS)
    if named or len(mark.args) > 1 or isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise pytest.UsageError(f"{item.nodeid}: ddp_watch takes one number of seconds above 0, as in ddp_watch(60)")
    return float(seconds)


class Watch:
    """The watch over one test."""

    def __init__(self, item: pytest.Item, seconds: float) -> None:
        self.headline = ""
        self.text = ""
        self.phase = 0
        """Odd inside setup, call or teardown, even between them."""
        self._item = item
        self._seconds = seconds
        self._told = False
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._observer: subprocess.Popen[str] | None = None
        self._traced = False
        self._spared = set(below(os.getpid()))
        self._sockets = _sockets()
        self._runner = threading.get_ident()
        self._is_main = threading.current_thread() is threading.main_thread()
        self._handler: Any = signal.signal(INTERRUPT, self._interrupted) if self._is_main else None
        self._thread = threading.Thread(target=self._run, name="ddp-doctor watches a test", daemon=True)
        self._thread.start()

    def spare_what_is_there(self) -> None:
        """Processes that are there now are not killed with the test."""
        self._spared.update(below(os.getpid()))

    def tell_once(self) -> bool:
        """Whether the ranks hang and no phase of the test has said so."""
        if not self.headline or self._told:
            return False
        self._told = True
        return True

    def end(self) -> None:
        """The test is over: nothing of the watch stays."""
        with self._lock:
            self._over.set()
            if self._observer is not None:
                self._observer.kill()
        self._thread.join()
        if self._traced:
            let_trace(0)
        if self._is_main:
            signal.signal(INTERRUPT, signal.SIG_DFL if self._handler is None else self._handler)

    def _run(self) -> None:
        if self._over.wait(self._seconds * ASLEEP):
            return
        told = self._observe()
        with self._lock:
            if self._over.is_set() or told is None:
                return
            self.text, self.headline = told["text"], told["headline"]
        phase = self.phase
        place = self._place()
        self._kill()
        for way, rude in (
            (self._interrupt, False),
            (self._interrupt, False),
            (self._cut_connections, True),
            (self._give_up, True),
        ):
            # a test that only waited for its ranks goes on by itself; one that moved is cleaning up
            if self._leaves(phase) or (rude and self._place() != place):
                return
            way()

    def _observe(self) -> dict[str, str] | None:
        here = Path(__file__).resolve()
        settings = {
            "tests": os.getpid(),
            "after": self._seconds,
            "path": [*sys.path, str(here.parents[2])],
        }
        with self._lock:
            if self._over.is_set():
                return None
            if ptrace_scope() == 1:
                self._traced = let_trace(os.getpid())
            self._observer = subprocess.Popen(
                [sys.executable, "-I", str(here.with_name("beside_test.py")), repr(settings)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        line, _ = self._observer.communicate()
        try:
            told: dict[str, str] = json.loads(line)
        except ValueError:
            return None
        return told

    def _kill(self) -> None:
        """End what the test started, and nobody else; its parents take the statuses."""
        spared = {*self._spared, *_tracker()}
        send(below(os.getpid(), spared), signal.SIGTERM, signal.SIGCONT)
        give_up = time.monotonic() + SECONDS_TO_TERMINATE
        while below(os.getpid(), spared) and time.monotonic() < give_up:
            time.sleep(0.05)
        send(below(os.getpid(), spared), signal.SIGKILL)

    def _leaves(self, phase: int) -> bool:
        """Whether the test leaves the phase in which it hung, within the seconds it gets."""
        end = time.monotonic() + SECONDS_TO_LEAVE
        while time.monotonic() < end:
            if self._over.wait(0.1) or self.phase != phase or phase % 2 == 0:
                return True
        return False

    def _place(self) -> tuple[int, int] | None:
        frame = sys._current_frames().get(self._runner)
        return (id(frame), frame.f_lasti) if frame is not None else None

    def _interrupt(self) -> None:
        if self._is_main:
            signal.pthread_kill(self._runner, INTERRUPT)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.phase % 2 and self.headline and not self._told:
            raise Hung(self.headline)

    def _cut_connections(self) -> None:
        """C code that waits for a store heeds no signal, but it does see the end of its connections."""
        for number, inode in _sockets().items():
            if self._sockets.get(number) == inode:
                continue
            try:
                with socket.socket(fileno=os.dup(number)) as connection:
                    if connection.family in (socket.AF_INET, socket.AF_INET6):
                        connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _give_up(self) -> None:
        """The main thread is in C and stays there: report the test, and end these tests in good order."""
        config, item = self._item.config, self._item
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=True)
            out, err = capture.read_global_capture()
            item.add_report_section("call", "stdout", out)
            item.add_report_section("call", "stderr", err)
        stack = "".join(traceback.format_stack(sys._current_frames().get(self._runner), STACK_LINES))
        words = f"{self.headline}\nthe test does not leave C code, so the tests end here; it stands at\n{stack}"
        call = pytest.CallInfo.from_call(lambda: pytest.fail(words, pytrace=False), when="call")
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)
        if not hasattr(config, "workerinput"):  # a worker of xdist is replaced by its controller
            item.session.shouldfail = "a test hung in C code"
            config.hook.pytest_sessionfinish(session=item.session, exitstatus=pytest.ExitCode.TESTS_FAILED)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(pytest.ExitCode.TESTS_FAILED))


def _sockets() -> dict[int, str]:
    """Descriptor -> what it is, of this process's sockets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = str(Path(f"/proc/self/fd/{name}").readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            found[int(name)] = target
    return found


def _tracker() -> list[int]:
    """The process in which multiprocessing keeps account for all tests; it would be missed."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return [pid] if pid else []
