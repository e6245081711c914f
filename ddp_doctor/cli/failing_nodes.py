"""`--failing-nodes FILE`: which nodes the next launch should leave out."""

from __future__ import annotations

import os

from ddp_doctor.cli.output import Output, write_whole
from ddp_doctor.cli.wish import Wish
from ddp_doctor.model import Report


def write_failing_nodes(out: Output, wish: Wish, report: Report) -> bool:
    """Write the file where it was asked for, empty where no node is at fault; False where that cannot be done."""
    if wish.failing_nodes is None:
        return True
    from ddp_doctor.rank.failing_nodes import failing_nodes

    line = ",".join(failing_nodes(report, os.environ))
    try:
        write_whole(wish.failing_nodes, f"{line}\n" if line else "")
    except OSError as error:
        out.say(f"cannot write {wish.failing_nodes}: {error.strerror}")
        return False
    return True
