"""What the process beside a rank does when the time is up: examine the job, speak for it or write, and end the rank if asked.

Run as a file by the rank's interpreter, since the rank may have found this package in a folder of its own.
"""

import ast
import os
import signal
import sys
import threading


def main() -> None:
    """Look until the job is through or hangs; the settings are those of `block`."""
    settings = ast.literal_eval(sys.argv[1])
    sys.path.pop(0)
    sys.path.extend(entry for entry in settings["path"] if entry not in sys.path)
    from ddp_doctor.watching.rank import Rank

    rank = Rank(settings["rank"], settings["after"], settings["began"], abort=settings["abort"])

    def end(*_: object) -> None:
        rank.stop()
        os._exit(0)

    def wait_for_the_end() -> None:
        os.read(settings["alive"], 1)
        end()

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    rank.watch()
    os.execv(settings["python"], [settings["python"], "-I", "-S", settings["sentry"], repr(settings)])


main()
