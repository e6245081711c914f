"""A process with more open descriptors than select() can name still hears its workers."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from ddp_doctor.child import readable
from ddp_doctor.host import Host

BEYOND = 1500


@pytest.fixture
def crowded() -> Iterator[None]:
    """All descriptors up to BEYOND are taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < BEYOND + 200:
        pytest.skip(f"no more than {hard} open files allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, BEYOND + 200), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < BEYOND:
        taken.append(fcntl.fcntl(taken[0], fcntl.F_DUPFD_CLOEXEC, 3))
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("crowded")
def test_a_worker_is_heard() -> None:
    host = Host(20.0)
    answer = host.run(["echo", "heard"])
    host.close()
    assert answer.status == "ok", answer
    assert answer.printed == "heard\n"


@pytest.mark.usefixtures("crowded")
def test_readable_names_those_that_have_something_to_hear() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as ears, os.fdopen(writer, "w", buffering=1) as mouth:
        assert ears.fileno() > BEYOND
        assert readable([ears], 0.0) == []
        mouth.write("a line\n")
        assert readable([ears], 5.0) == [ears]
