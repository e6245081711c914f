"""DDP112: rank 0 cannot open its store because another process holds the port."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ddp_doctor.facts.launch import Ancestor, Variable
from ddp_doctor.facts.names import Interface, Resolution, is_local
from ddp_doctor.facts.rendezvous import Meeting, Port, PortOwner, StoreAnswer
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks.launch import port_in_use_live as live

AGENT = "pt_elastic"
JOB_IDS = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


class PortInUse(Check):
    id, name = "DDP112", "port-in-use"
    title = "MASTER_PORT is held by another process"
    needs = (Port, Meeting, (PortOwner, Port))
    also_reads = (StoreAnswer, Variable, Ancestor, Resolution, Interface, *live.READS)
    acts_at = frozenset({Stage.PYTHON, Stage.STORE_CONNECT})
    told = Told(
        because="one process at a time can listen on a port; the store cannot start on one that is taken",
        fixes=(
            Fix(
                title="see who holds it",
                commands=("ss -ltnp 'sport = :29500'   # the port of the message",),
                needs="nothing",
            ),
            Fix(
                title="let the launcher choose a free one",
                commands=("torchrun --standalone --nproc-per-node=2 train.py",),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        rows = facts[Meeting]
        return "rank 0 is not started here" if rows and all(row.hosts is False for row in rows) else ""

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for each in live.from_job(facts):
            yield self.finding(**each)
        for meeting in facts[Meeting]:
            here = facts.on(meeting.subject.host)
            for port in here[Port]:
                if port.bindable or port.errno == errno.EACCES or not _matters(meeting, here):
                    continue
                owners = [owner for owner in here[PortOwner] if owner.port == port.port]
                owners.sort(key=lambda owner: (not owner.orphan, not owner.listening, owner.pid or 0))
                above = {ancestor.pid for ancestor in here[Ancestor]}
                if any(owner.pid in above and _is_live_job(owner, here) for owner in owners):
                    continue
                yield self._judge(meeting, port, owners, here)

    def _judge(self, meeting: Meeting, port: Port, owners: list[PortOwner], here: Facts) -> Finding:
        owner = owners[0] if owners else None
        name = f"MASTER_PORT {port.port}" if port.named else f"port {port.port}, torchrun's default,"
        evidence = [port.evidence()] + [
            each.evidence() for each in {each.pid: each for each in reversed(owners)}.values()
        ]
        if owner is not None and _is_live_job(owner, here) and _may_be_this_job(owner, here):
            return self.finding(
                f"a job holds {name}: {owner.who}",
                because="this is no fault of a running job; a second job on this node needs another port",
                evidence=evidence,
                severity=Severity.NOTE,
                fixes=[
                    Fix(title="examine that job", commands=(f"ddp-doctor attach {owner.pid}",), needs="nothing"),
                    Fix(title="or start another one beside it", commands=(f"export MASTER_PORT={_free(port)}",)),
                ],
            )
        who = owner.who if owner else "a process that is not visible here"
        left = owner is not None and owner.orphan
        outgoing = owner is not None and not owner.listening and port.ephemeral
        return self.finding(
            f"{name} is held by {who}" + (", left over from an earlier run" if left else ""),
            because="rank 0 ends at once with EADDRINUSE, and the other ranks talk to whatever listens there"
            + ("; the process that started it is gone, so nothing will end it" if left else "")
            + ("; the kernel gave it to an outgoing connection, as its range for those holds it" if outgoing else ""),
            evidence=evidence,
            severity=Severity.ERROR if port.named else Severity.WARNING,
            confidence=Confidence.LIKELY
            if left and owner and owner.command != "pt_data_worker"
            else Confidence.CERTAIN,
            fixes=_fixes(port, owners, left),
        )


def _matters(meeting: Meeting, here: Facts) -> bool:
    """Whether rank 0 is, or may be, started on this node."""
    if meeting.hosts is not None:
        return meeting.hosts
    addresses = [address for each in here[Resolution] if each.role == "master" for address in each.addresses]
    return not addresses or any(is_local(address, here[Interface]) for address in addresses)


def _is_live_job(owner: PortOwner, here: Facts) -> bool:
    # an agent started with nohup loses its parent and lives on; anything else without one is left over
    if owner.pid is None or (owner.orphan and owner.command != AGENT):
        return False
    answers = [each for each in here[StoreAnswer] if each.port == owner.port and each.local]
    if answers:
        return any(each.verdict == "store" for each in answers)
    return owner.command == AGENT or bool(owner.nccl_loaded)


def _may_be_this_job(owner: PortOwner, here: Facts) -> bool:
    """False where both carry the id of a job and they differ."""
    ours = {each.name: each.value for each in here[Variable] if each.in_effect}
    return not any(name in ours and name in owner.job and ours[name] != owner.job[name] for name in JOB_IDS)


def _free(port: Port) -> int:
    return port.next_free or port.port + 1


def _fixes(port: Port, owners: list[PortOwner], left: bool) -> list[Fix]:
    other = Fix(title="use another port, the same on every node", commands=(f"export MASTER_PORT={_free(port)}",))
    pids = list(dict.fromkeys(owner.pid for owner in owners if owner.pid is not None and (owner.orphan or not left)))
    if not pids:
        return [other, Fix(title="see who it is", commands=(f"sudo ss -tanp 'sport = :{port.port}'",), needs="root")]
    end = Fix(
        title="end what is left over" if left else "or end that program, if nobody needs it",
        commands=(f"kill {' '.join(map(str, pids))}",),
        needs="nothing" if all(owner.same_user for owner in owners) else "root",
    )
    return [end, other] if left else [other, end]
