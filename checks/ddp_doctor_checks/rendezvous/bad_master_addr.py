"""DDP204: MASTER_ADDR or MASTER_PORT cannot be what they say, or rank 0 is not at that address."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank, Resolved
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import Interface, PeerInterface, Resolution, Route, addresses_of, lacking_family
from ddp_doctor.facts.paths import PathTry
from ddp_doctor.facts.rendezvous import Meeting, Port, SelfReach, StoreAnswer
from ddp_doctor.interpret.meeting import rendezvous_endpoint
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Stage, Told
from ddp_doctor_checks.rendezvous.bad_master_addr_live import from_job
from ddp_doctor_checks.rendezvous.bad_master_addr_text import bare_address, wrong_address, wrong_port
from ddp_doctor_checks.rendezvous.bad_master_addr_way import without_a_way

ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR")
PORTS = ("MASTER_PORT", "PET_MASTER_PORT")


class BadMasterAddr(Check):
    id, name = "DDP204", "bad-master-addr"
    title = "MASTER_ADDR or MASTER_PORT is empty, malformed, or another host's"
    needs = ((Meeting, JobRank), (SelfReach, Port, Meeting, JobRank))
    also_reads = (Variable, PeerInterface, Interface, Resolution, Resolved, Route, StoreAnswer, PathTry)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.STORE_WAIT})
    explains = ("DDP101", "DDP302")
    told = Told(
        because="the address of the master is empty, or something that a shell or script put there instead",
        fixes=(
            Fix(
                title="print it where the ranks start, and pass the address of node 0",
                commands=(
                    'echo "[$MASTER_ADDR]"   # on every node',
                    "torchrun --nnodes=2 --nproc-per-node=4 --master-addr=ADDRESS_OF_NODE_0 \\",
                    "    --master-port=29500 train.py",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        for variable in facts[Variable]:
            if not variable.in_effect:
                continue
            endpoint = rendezvous_endpoint({variable.name: variable.value})
            if endpoint and (wrong := wrong_address(endpoint[0])):
                yield self.finding(
                    f"the host in {variable.name} {wrong}",
                    because="every node looks for the rendezvous store there, and no resolver makes an address of it",
                    evidence=[variable.evidence(f"{variable.name}={variable.value!r}")],
                    fixes=[
                        Fix(
                            title="HOST:PORT, the same on every node",
                            commands=(f"export {variable.name}={bare_address(endpoint[0]) or '127.0.0.1'}:29500",),
                        )
                    ],
                )
            if variable.name in ADDRESSES and (wrong := wrong_address(variable.value)):
                yield self.finding(
                    f"{variable.name} {wrong}",
                    because="every rank looks for rank 0's store there, and no resolver makes an address of it"
                    if variable.value
                    else "torch takes an empty value for none and raises `MASTER_ADDR expected, but not set`",
                    evidence=[variable.evidence(f"{variable.name}={variable.value!r}")],
                    fixes=[_bare_fix(variable) or _address_fix(facts, variable.subject.host)],
                )
            if variable.name in PORTS and (wrong := wrong_port(variable.value)):
                if variable.value.strip() == "0" and any(each.world_size == 1 for each in facts[Meeting]):
                    continue
                yield self.finding(
                    f"{variable.name} {wrong}",
                    because="rank 0 opens its store on this port and all other ranks connect to it",
                    evidence=[variable.evidence(f"{variable.name}={variable.value!r}")],
                    fixes=[Fix(title="set one free port on every node", commands=(f"export {variable.name}=29500",))],
                )
        for meeting in facts[Meeting]:
            here = facts.on(meeting.subject.host)
            yield from self._elsewhere(meeting, here)
            for way in without_a_way(meeting, here):
                yield self.finding(**way)
            for port in here[Port]:
                if port.named and port.errno == errno.EACCES and meeting.hosts is not False:
                    yield self.finding(
                        f"this user may not open MASTER_PORT {port.port}: ports below 1024 need root",
                        because="rank 0 cannot open its store, and every other rank waits for it",
                        evidence=[port.evidence()],
                        fixes=[
                            Fix(title="use a port above 1023 on every node", commands=("export MASTER_PORT=29500",))
                        ],
                    )

    def _elsewhere(self, meeting: Meeting, here: Facts) -> Iterator[Finding]:
        reached = here[SelfReach]
        # torch tries every address of the name; one that leads here is enough
        if not reached or any(each.outcome == "arrived" for each in reached):
            return
        if lacking_family(addresses_of(meeting.address, here[Resolution]), here[Interface]):
            return
        yield self.finding(
            f"MASTER_ADDR={meeting.address} does not lead to this node, but rank 0 is started here ({meeting.hosts_because})",
            because="rank 0 opens the store on its own node and then waits for it at MASTER_ADDR, as do all other ranks; "
            "they fail after up to twice the time-out, with a text that blames the network",
            evidence=[meeting.evidence(f"MASTER_ADDR={meeting.address}, {meeting.hosts_because}")]
            + [each.evidence() for each in reached],
            confidence=Confidence.LIKELY if any(each.outcome == "dropped" for each in reached) else Confidence.CERTAIN,
            fixes=[
                _address_fix(here, meeting.subject.host),
                Fix(
                    title=f"or start rank 0 on {meeting.address} (static torchrun: --node-rank=0 there)",
                    commands=(f"ssh {meeting.address} hostname",),
                ),
            ],
        )


def _bare_fix(variable: Variable) -> Fix | None:
    host = bare_address(variable.value)
    return Fix(title="the host alone, on every node", commands=(f"export {variable.name}={host}",)) if host else None


def _address_fix(facts: Facts, host: str) -> Fix:
    peer = facts.on(host).first(PeerInterface)
    if peer is None or all((each.nodes or 1) == 1 for each in facts[Meeting]):
        return Fix(title="all ranks on this node", commands=("export MASTER_ADDR=127.0.0.1",))
    return Fix(
        title="if this node runs rank 0, its address, the same on every node",
        commands=(f"export MASTER_ADDR={peer.address}",),
    )
