"""The first process of a container: starts the ranks it is told to, all on this loopback interface."""

import os
import subprocess
import sys
from pathlib import Path

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
meet = Path(__file__).with_name("meet.py")
size = int(os.environ["SIZE"])
ranks = [
    subprocess.Popen(
        [sys.executable, str(meet)],
        env=os.environ
        | {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
        | ({"MODE": "prepare"} if rank == int(os.environ.get("LATE_RANK", "-1")) else {}),
    )
    for rank in range(int(os.environ["STARTED"]))
]
for rank in ranks:
    rank.wait()
