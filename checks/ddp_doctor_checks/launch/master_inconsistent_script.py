"""What a script shows of DDP111: a port that every rank picks for itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddp_doctor.facts.script import PortChoice
from ddp_doctor.model import Confidence, Facts, Fix, Severity

NEEDS = "code change, job restart"


def from_script(facts: Facts) -> Iterator[dict[str, Any]]:
    """Arguments for `MasterInconsistent.finding`, one set for each place that sets a port."""
    for choice in facts[PortChoice]:
        if choice.started_by == "launcher":
            title = "use the port that the launcher gives every rank: delete this line"
            fix = Fix(title=title, diff=choice.rewrite, needs=NEEDS)
            if not choice.rewrite:
                fix = Fix(title=title, commands=('dist.init_process_group(init_method="env://")',), needs=NEEDS)
        else:
            fix = Fix(
                title="pick it once, in the parent, and hand it to every rank",
                commands=(
                    'if __name__ == "__main__":',
                    "    port = find_free_port()",
                    "    mp.spawn(worker, args=(world_size, port), nprocs=world_size)",
                ),
                needs=NEEDS,
            )
        yield {
            "summary": f"every rank picks a {choice.variable} of its own ({choice.chosen}, {choice.at.source})",
            "because": "all ranks have to meet at one address and port; here each waits at its own, alone",
            "evidence": [choice.evidence()],
            "fixes": [fix],
            "severity": Severity.ERROR,
            "confidence": Confidence.CERTAIN if choice.proven else Confidence.LIKELY,
        }
