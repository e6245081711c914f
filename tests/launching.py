"""Launch environments for tests: as values, and as they really are below a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddp_doctor.facts.launch import Ancestor, Variable
from ddp_doctor.interpret import launcher, leftovers, settings
from ddp_doctor.model import Check, Fact, Facts

ROOT = Path(__file__).parent.parent
CLEAN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
EXAMINE = """
import sys
from launching import examine_here
examine_here()
"""


def variables(environ: Mapping[str, str], **changes: Any) -> list[Variable]:
    """Environment variables as the probe gives them."""
    return [
        Variable(**({"source": "environment", "name": name, "value": value} | changes))
        for name, value in environ.items()
    ]


def tree(*commands: str, top: int = 1, contained: bool = False, given: Sequence[str] = ()) -> list[Ancestor]:
    """The examined process and those above it, nearest first; the topmost has PID `top` and was started with `given`."""
    chain = []
    for depth, command in enumerate(commands):
        last = depth == len(commands) - 1
        arguments = (command,) if command.startswith("slurmstepd") else tuple(command.split())
        chain.append(
            Ancestor(
                depth=depth,
                pid=top if last else 9000 - depth,
                source=f"/proc/{9000 - depth}",
                command=command.split()[0].rstrip(":")[:15],
                arguments=arguments,
                variables=tuple(given) if last else (),
                contained=contained,
            )
        )
    return chain


def meant(*facts: Fact) -> list[Fact]:
    """The facts and what the launch interpreters conclude from them."""
    raw = Facts(facts)
    return [*facts, *launcher.interpret(raw), *leftovers.interpret(raw), *settings.interpret(raw)]


def launch_checks() -> list[Check]:
    """Every check on the launch environment and on limits."""
    from ddp_doctor_checks.gpu.shm_small import ShmSmall
    from ddp_doctor_checks.launch.no_launcher_env import NoLauncherEnv
    from ddp_doctor_checks.launch.rank_config_mismatch import RankConfigMismatch
    from ddp_doctor_checks.launch.scheduler_env import SchedulerEnv
    from ddp_doctor_checks.launch.uneven_nodes import UnevenNodes
    from ddp_doctor_checks.launch.world_size_mismatch import WorldSizeMismatch
    from ddp_doctor_checks.rendezvous.elastic_state import ElasticState
    from ddp_doctor_checks.software.host_limits import HostLimits
    from ddp_doctor_checks.software.jit_lock import JitLock

    kinds: tuple[type[Check], ...] = (
        NoLauncherEnv, UnevenNodes, SchedulerEnv, WorldSizeMismatch, RankConfigMismatch, ElasticState, ShmSmall,
        HostLimits, JitLock,
    )  # fmt: skip
    return [kind() for kind in kinds]


def examine_here() -> None:
    """Take the launch probes in this very process, judge, and print the findings and the launcher as one JSON line."""
    from ddp_doctor.host import Host
    from ddp_doctor.judge import judge
    from ddp_doctor.model import Absent
    from ddp_doctor.probes import extension_locks, limits, process_tree, shm, variables as variables_probe

    host = Host(20.0)
    raw = Facts()
    for module in (variables_probe, process_tree, limits, shm, extension_locks):
        for probe in module.PROBES:
            seen = list(probe.take(host, raw))
            raw = raw.plus(
                [item for item in seen if isinstance(item, Fact)], [item for item in seen if isinstance(item, Absent)]
            )
    facts = raw.plus([*launcher.interpret(raw), *leftovers.interpret(raw), *settings.interpret(raw)])
    judged = judge(launch_checks(), facts)
    started = launcher.started_by(raw)
    result = {
        "findings": [
            {
                "id": finding.id,
                "severity": finding.severity.value,
                "confidence": finding.confidence.value,
                "summary": finding.summary,
                "because": finding.because,
                "fixes": [list(fix.commands) for fix in finding.fixes],
            }
            for judgement in judged
            for finding in judgement.findings
        ],
        "crashed": [judgement.outcome.reason for judgement in judged if judgement.outcome.status == "crashed"],
        "started_by": [started.name, started.rank, started.world_size] if started else None,
        "absent": [absent.reason for absent in raw.absents],
    }
    # in one write, or lines of two ranks mix where Python does not buffer
    sys.stdout.write("examined: " + json.dumps(result) + "\n")
    sys.stdout.flush()


def examined_below(
    shell: Sequence[str] = (), environ: Mapping[str, str] | None = None, *, wrap: Sequence[str] = ()
) -> dict[str, Any]:
    """What the doctor finds when started from a bash that first runs these lines."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "checks", ROOT / "tests")))
    lines = "\n".join([*shell, f"export PYTHONPATH={path}", f"{sys.executable} -c '{EXAMINE}'", "true"])
    done = subprocess.run(
        [*wrap, "bash", "-c", lines], env={**CLEAN, **(environ or {})}, capture_output=True, text=True, timeout=60
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("examined: ")] or [
        done.stdout + done.stderr
    ]
    result: dict[str, Any] = json.loads(line.removeprefix("examined: "))
    assert result["crashed"] == []
    return result


def claims(result: Mapping[str, Any]) -> list[str]:
    """The ids of what was found at warning or above."""
    return sorted({finding["id"] for finding in result["findings"] if finding["severity"] != "note"})
