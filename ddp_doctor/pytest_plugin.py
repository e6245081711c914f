"""The pytest plugin: `@pytest.mark.ddp_watch(60)` on a test that starts ranks. Where no test has it, nothing is loaded."""

from __future__ import annotations

import pytest

MARK = "ddp_watch(seconds=120): a test whose ranks hang in initialisation for so long fails with the cause (ddp-doctor)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any(item.get_closest_marker("ddp_watch") for item in items):
        from ddp_doctor.watching.in_pytest import Watching

        config.pluginmanager.register(Watching(config, items), "ddp-doctor-watching")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The whole reports, also of tests that ran in another process (xdist)."""
    told = [
        (report.nodeid, report.ddp_doctor)
        for outcome in ("failed", "error")
        for report in terminalreporter.stats.get(outcome, ())
        if hasattr(report, "ddp_doctor")
    ]
    if told:
        terminalreporter.section("ddp-doctor")
        for test, text in told:
            terminalreporter.write_line(f"{test}\n\n{text}")
