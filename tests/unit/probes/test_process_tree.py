"""The processes above this one, read from a real tree."""

from __future__ import annotations

import os
import subprocess
import sys

from ddp_doctor.facts.launch import Ancestor
from ddp_doctor.host import Host
from ddp_doctor.model import Facts
from ddp_doctor.probes.process_tree import take

SHOW = """
import os
from ddp_doctor.host import Host
from ddp_doctor.model import Facts
from ddp_doctor.probes.process_tree import take
for fact in take(Host(10.0), Facts()):
    print(fact.depth, fact.pid, fact.command, fact.arguments, fact.variables, sep="|")
"""


def test_nearest_first_and_as_the_kernel_tells_it() -> None:
    seen = [item for item in take(Host(10.0), Facts()) if isinstance(item, Ancestor)]
    assert [item.depth for item in seen] == list(range(len(seen)))
    assert seen[0].pid == os.getpid() and seen[1].pid == os.getppid()
    assert seen[0].arguments and os.path.basename(seen[0].arguments[0]).startswith("python")


def test_says_which_ancestor_had_a_variable_and_keeps_command_lines_short() -> None:
    secret = "x" * 500
    shell = f"export LOCAL_RANK=0; {sys.executable} -c '{SHOW}' a b c d --password {secret}; true"
    done = subprocess.run(
        ["env", "NODE_RANK=1", "bash", "-c", shell],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": "."},
    )
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert rows[0][4] == "('LOCAL_RANK', 'NODE_RANK')", done.stderr
    assert rows[1][2] == "bash" and rows[1][4] == "('NODE_RANK',)"
    assert secret not in done.stdout
