"""Whether this process is one rank of several that a launcher started, and which."""

from __future__ import annotations

from collections.abc import Mapping

from ddp_doctor.facts.launch import Launcher
from ddp_doctor.host import Host
from ddp_doctor.interpret.launcher import RANK_NAMES, started_by
from ddp_doctor.model import Absent, Facts, Subject
from ddp_doctor.probes import process_tree
from ddp_doctor.probes.variables import from_environment
from ddp_doctor.rank.node_list import nodes_of_step

NAMES = ("RANK", *(name for groups in RANK_NAMES.values() for name in groups[0]))


def who_am_i(environ: Mapping[str, str]) -> Launcher | None:
    """The launcher of this process, if it is one of several ranks; None where there is nobody to meet."""
    if not any(name in environ for name in NAMES):
        return None
    host = Host(5.0, environ=environ)
    try:
        seen = [*from_environment(host, Subject(host=host.name)), *process_tree.take(host, Facts())]
    finally:
        host.close()
    launcher = started_by(Facts([each for each in seen if not isinstance(each, Absent)]))
    return launcher if launcher is not None and (launcher.world_size or 1) > 1 else None


def first_node(environ: Mapping[str, str]) -> str:
    """The node of rank 0 where a scheduler names it: `gpu[03-05,9]` -> `gpu03`; empty elsewhere."""
    return next(nodes_of_step(environ), "")
