"""What a running job shows of DDP205: torchrun agents at one rendezvous endpoint with different ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.job import JobRank, Process, jobs
from ddp_doctor.model import Confidence, Facts, Fix


def from_job(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `ElasticState.finding`, one set per endpoint."""
    processes = {process.subject.process: process for process in facts[Process]}
    for view in jobs(facts):
        waiting = [each for each in view.others if each.doing == "waiting-for-nodes"]
        by_endpoint: dict[str, list[tuple[JobRank, str]]] = defaultdict(list)
        for agent in waiting:
            words = processes[agent.subject.process].arguments
            endpoint, job_id = option(words, "rdzv-endpoint"), option(words, "rdzv-id")
            if endpoint:
                by_endpoint[endpoint].append((agent, job_id or "none"))
        for endpoint, agents in by_endpoint.items():
            ids = {job_id for _, job_id in agents}
            if len(ids) < 2:
                continue
            yield {
                "summary": f"torchrun agents wait at one endpoint, {endpoint}, with different ids: {', '.join(sorted(ids))}",
                "because": "each --rdzv-id is a rendezvous of its own: each agent waits for nodes that wait under another id",
                "evidence": [agent.evidence(f"PID {agent.subject.pid}: {agent.command}") for agent, _ in agents[:6]],
                "fixes": [
                    Fix(title="give every node the same id", commands=(f"torchrun --rdzv-id={sorted(ids)[0]} ...",)),
                ],
                "confidence": Confidence.CERTAIN,
                "ranks": [],
            }


def option(words: tuple[str, ...], name: str) -> str:
    """The value of a torchrun option in either spelling; empty if it is not given."""
    spellings = (f"--{name}", f"--{name.replace('-', '_')}")
    for word, following in zip(words, [*words[1:], ""], strict=False):
        given, equals, value = word.partition("=")
        if given in spellings:
            return value if equals else following
    return ""
