"""The process beside a rank: waits until its block ends or the time is up, and only then loads the doctor.

Started as `python -I -S sentry.py SETTINGS`; the standard library's smallest part, for there is one per rank. The pipe
`alive` ends when the block or the rank does.
"""

import _socket  # socket would import ten times as much
import ast
import os
import select
import sys
import time

NAME = "ddp-doctor watches "
NUMBERS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "RANK")
LOADING_SECONDS = 5.5
"""What loading the doctor and a first look take, so that it reports when the time is up and not later."""


def be_known(rank: int) -> "_socket.socket | None":
    """Let the processes beside other ranks see that this rank is in its block: a name that ends with this process."""
    number = next((os.environ[name] for name in NUMBERS if os.environ.get(name, "").isdigit()), "0")
    mark = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0{NAME}{rank} {number}")
    except OSError:
        return None
    return mark


def main() -> None:
    began = time.monotonic()
    settings = ast.literal_eval(sys.argv[1])
    rests = "began" in settings
    if not rests:
        os.setsid()
    alive = settings["alive"]
    # what the rank held open must not stay open here: ports, locks, pipes
    os.closerange(3, alive)
    os.closerange(alive + 1, os.sysconf("SC_OPEN_MAX"))
    mark = be_known(settings["rank"])
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    end = began + max(0.0, settings["after"] - LOADING_SECONDS)
    while True:
        # once it has reported it rests until the block ends: a dead child would look like a rank that has ended
        left = 5.0 if rests else end - time.monotonic()
        if left <= 0:
            break
        # forks of the rank may hold the pipe open longer than it lives
        if select.select([alive], [], [], min(left, 5.0))[0] or os.getppid() != settings["rank"]:
            return
    settings["began"] = began
    os.set_inheritable(alive, True)
    if mark is not None:
        os.set_inheritable(mark.fileno(), True)
    os.execv(settings["python"], [settings["python"], "-I", settings["stage"], repr(settings)])


main()
