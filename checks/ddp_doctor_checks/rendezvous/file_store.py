"""DDP206: a rendezvous file is stale or not shared."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.log import LogEvent
from ddp_doctor.model import INIT, Check, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.rendezvous.file_store_live import from_job


class FileStore(Check):
    id, name = "DDP206", "file-store"
    title = "A rendezvous file is stale or not shared"
    needs = ((LogEvent, JobRank),)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.STORE_WAIT, Stage.GLOO_MESH}) | INIT
    explains = ("DDP101",)
    told = Told(
        because="a rendezvous file that is left over holds the addresses of dead ranks, and a file that not all nodes see "
        "brings nobody together",
        fixes=(
            Fix(
                title="remove the file before the start, or use a new name per job",
                commands=("rm -f /path/of/the/file   # the path of init_method, before any rank starts",),
                needs="job restart",
            ),
            Fix(
                title="or meet at a port",
                commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                needs="code change, job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
