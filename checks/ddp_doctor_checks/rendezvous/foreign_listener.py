"""DDP209: something that is not the job's store listens where the ranks look for it."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.rendezvous import Meeting, Port, PortOwner, StoreAnswer
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.rendezvous.foreign_listener_live import from_job

WAITS = "the store's handshake has no time-out: a rank waits here for ever, with no message, whatever `timeout=` says"
RETRIES = "each rank tries again until its time-out, and then fails with a text that does not name the other program"


class ForeignListener(Check):
    id, name = "DDP209", "foreign-listener"
    title = "Another program answers on MASTER_PORT"
    needs = ((StoreAnswer, JobRank), (Meeting, JobRank))
    also_reads = (PortOwner, Port)
    acts_at = frozenset({Stage.STORE_CONNECT})
    explains = ("DDP112", "DDP101", "DDP604", "DDP606")
    told = Told(
        because="something else listens on MASTER_PORT: ranks shake hands with it, and a silent one keeps them waiting "
        "for ever",
        fixes=(
            Fix(
                title="see who it is, on the node of rank 0",
                commands=("ss -ltnp 'sport = :29500'   # the job's MASTER_PORT",),
                needs="nothing",
            ),
            Fix(
                title="use another port",
                commands=("export MASTER_PORT=29511   # alike on all nodes",),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for meeting in facts[Meeting]:
            # rank 0 does not connect before it has the port itself, and without an address nobody connects
            if meeting.hosts or meeting.address is None:
                continue
            here = facts.on(meeting.subject.host)
            for answer in here[StoreAnswer]:
                owners = [owner for owner in here[PortOwner] if owner.listening and answer.local]
                finding = self._judge(answer, owners, here)
                if finding:
                    yield finding

    def _judge(self, answer: StoreAnswer, owners: list[PortOwner], here: Facts) -> Finding | None:
        never_accepts = answer.verdict == "dropped" and bool(owners)
        if answer.verdict not in ("silent", "closes", "http", "other") and not never_accepts:
            return None
        owner = owners[0] if owners else None
        who = owner.who if owner else f"the listener on {answer.name}"
        stopped = owner is not None and owner.state == "T"
        does = {
            "silent": "accepts connections and says nothing",
            "closes": "closes connections without an answer",
            "http": "speaks HTTP",
            "other": f"answers {answer.got}",
            "dropped": "never accepts its connections",
        }[answer.verdict]
        # a frozen store is silent too, and one older than torch 2.2 closes
        told = answer.verdict in ("http", "other") or (
            owner is not None and owner.nccl_loaded is False and not _is_python(owner)
        )
        return self.finding(
            f"{who} holds MASTER_PORT {answer.port} and is no TCPStore: it {does}"
            if not stopped
            else f"{who} holds MASTER_PORT {answer.port} and is stopped, so it {does}",
            because=RETRIES if answer.verdict in ("closes", "http", "other") else WAITS,
            evidence=[answer.evidence()] + [each.evidence() for each in owners],
            confidence=Confidence.CERTAIN if told else Confidence.LIKELY,
            fixes=_fixes(answer, owner, here.first(Port), stopped),
        )


def _is_python(owner: PortOwner) -> bool:
    return owner.command.startswith(("python", "pt_", "ray")) or any("python" in word for word in owner.arguments[:1])


def _fixes(answer: StoreAnswer, owner: PortOwner | None, port: Port | None, stopped: bool) -> list[Fix]:
    free = (port.next_free if port and answer.local else None) or answer.port + 1
    fixes = [Fix(title="use another port, the same on every node", commands=(f"export MASTER_PORT={free}",))]
    if owner is not None and owner.pid is not None:
        fixes.append(
            Fix(title="or end that program, if nobody needs it", commands=(f"kill {owner.pid}",), needs="its owner")
        )
        if stopped:
            fixes.insert(0, Fix(title="let it go on", commands=(f"kill -CONT {owner.pid}",), needs="its owner"))
    elif not answer.local:
        look = f"ssh {answer.name} ss -ltnp 'sport = :{answer.port}'"
        fixes.append(
            Fix(title="see who listens there", commands=(look,), needs="root there, to see other users' processes")
        )
    return fixes
