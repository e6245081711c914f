"""Stands where a training script would: `doctor_in_place.py run|preflight SECONDS FOLDER` leaves this rank's report there."""

import os
import sys

from common import ready

mode, seconds, folder = sys.argv[1:]
report = os.path.join(folder, f"{os.getpid()}.json")
ready()
if mode == "run":
    command = [sys.executable, "-m", "ddp_doctor", "run", "--wait", seconds, "--format", "json", "-o", report]
    os.execv(sys.executable, command)

import msgspec  # noqa: E402

import ddp_doctor  # noqa: E402

found = ddp_doctor.preflight(timeout=float(seconds), on_problem="warn")
with open(report, "wb") as file:
    file.write(msgspec.json.encode(found))
