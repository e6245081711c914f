"""Python processes that call themselves ranks of a job and live for milliseconds; some become another program.

In a PID namespace of its own with few numbers, so that PIDs are used again at once.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from common import ready

SHORT = "import os, time, random; time.sleep(random.random() / 20); {then}"
THEN = ("pass", "os.execv('/bin/sleep', ['sleep', '0.02'])", "os.execv('/bin/sh', ['sh', '-c', 'sleep 0.01; exit 3'])")

Path("/proc/sys/kernel/pid_max").write_text(os.environ.get("PID_MAX", "400"))
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
ready()
script = Path(__file__).with_name("meet.py")
variables = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
for rank in range(2):
    subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    )
number, alive = 0, []
while True:
    number += 1
    alive.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", SHORT.format(then=THEN[number % 3])],
            env=os.environ | variables | {"RANK": "2", "LOCAL_RANK": "2"},
        )
    )
    alive = [each for each in alive if each.poll() is None]
    while len(alive) > 5:
        time.sleep(0.002)
        alive = [each for each in alive if each.poll() is None]
