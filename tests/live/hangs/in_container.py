"""The first process of a container: starts the ranks it is told to, all on this loopback interface.

With HIDDEN the script lies on a file system that only this container has mounted.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
folder = Path(__file__).parent
if os.environ.get("HIDDEN"):
    subprocess.run(["mount", "-t", "tmpfs", "none", "/mnt"], check=True)
    folder = Path(shutil.copytree(folder, "/mnt/ddp-doctor-hidden"))
script = folder / os.environ.get("SCRIPT", "meet.py")
size = int(os.environ["SIZE"])
ranks = [
    subprocess.Popen(
        [sys.executable, str(script)],
        env=os.environ
        | {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
        | ({"MODE": "prepare"} if rank == int(os.environ.get("LATE_RANK", "-1")) else {}),
    )
    for rank in range(int(os.environ["STARTED"]))
]
for rank in ranks:
    rank.wait()
