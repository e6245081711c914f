"""One rank that only calls preflight(), and writes what came of it as one line of JSON.

    preflight_rank.py TIMEOUT [die=SECONDS] [stop=SECONDS] [late=SECONDS] [torch]

`die` ends the process while it is in preflight, `stop` stops it there, `late` makes it come later, `torch` imports torch
first.
"""

import json
import os
import signal
import sys
import threading
import time

options = dict(argument.partition("=")[::2] for argument in sys.argv[2:])
if "torch" in options:
    import torch.distributed  # noqa: F401
if "late" in options:
    time.sleep(float(options["late"]))
if "die" in options:
    threading.Timer(float(options["die"]), os._exit, (7,)).start()
if "stop" in options:
    threading.Timer(float(options["stop"]), os.kill, (os.getpid(), signal.SIGSTOP)).start()

import ddp_doctor  # noqa: E402


def state():
    """What a rank must find as it left it."""
    return {
        "environ": dict(os.environ),
        "threads": threading.active_count(),
        "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
        "torch": "torch" in sys.modules,
        "signals": [repr(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "limit": __import__("resource").getrlimit(7),
        "children": open(f"/proc/self/task/{os.getpid()}/children").read().split(),
    }


before = state()
started = time.monotonic()
raised = ""
try:
    report = ddp_doctor.preflight(timeout=float(sys.argv[1]))
except ddp_doctor.PreflightFailed as failure:
    report, raised = failure.report, str(failure)
seconds = time.monotonic() - started
deadline = time.monotonic() + 2
while state() != before and time.monotonic() < deadline:
    time.sleep(0.01)
after = state()
print(
    json.dumps(
        {
            "rank": os.environ.get("RANK"),
            "pid": os.getpid(),
            "seconds": round(seconds, 2),
            "status": report.verdict.status,
            "verdict": report.verdict.finding,
            "summary": report.verdict.summary,
            "findings": [
                [each.id, each.severity.value, each.confidence.value, list(each.ranks), each.summary]
                for each in report.findings
            ],
            "raised": raised,
            "left": sorted(name for name in before if before[name] != after[name]),
            "cpu": round(time.process_time(), 2),
        }
    ),
    flush=True,
)
os._exit(0)
