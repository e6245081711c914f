"""The process beside a rank: waits until its block ends or the time is up, and only then loads the doctor.

Started as `python -I -S sentry.py SETTINGS`; the standard library's smallest part, for there is one per rank. The pipe
`alive` ends when the block or the rank does.
"""

import ast
import os
import select
import sys
import time

LOADING_SECONDS = 1.0
"""What loading the doctor takes, so that it looks when the time is up and not later."""


def main() -> None:
    began = time.monotonic()
    settings = ast.literal_eval(sys.argv[1])
    os.setsid()
    alive = settings["alive"]
    # what the rank held open must not stay open here: ports, locks, pipes
    os.closerange(3, alive)
    os.closerange(alive + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    end = began + max(0.0, settings["after"] - LOADING_SECONDS)
    while True:
        left = end - time.monotonic()
        if left <= 0:
            break
        # forks of the rank may hold the pipe open longer than it lives
        if select.select([alive], [], [], min(left, 5.0))[0] or os.getppid() != settings["rank"]:
            return
    settings["began"] = began
    os.set_inheritable(alive, True)
    os.execv(settings["python"], [settings["python"], "-I", settings["stage"], repr(settings)])


main()
