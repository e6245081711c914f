"""DDP301: NCCL or Gloo uses an interface that the other ranks cannot reach, or finds none."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.job import JobRank
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.names import (
    GlooInterface,
    Interface,
    NcclInterface,
    NcclSockets,
    PeerInterface,
    UnreachableInterface,
)
from ddp_doctor.facts.rendezvous import Meeting
from ddp_doctor.model import Check, Confidence, Evidence, Facts, Finding, Fix, Severity, Stage, Told
from ddp_doctor_checks import communicator, paths
from ddp_doctor_checks.network.unanswered_live import unroutable as from_job
from ddp_doctor_checks.network.wrong_interface_fixes import interface_fixes
from ddp_doctor_checks.network.wrong_interface_paths import from_paths, untried

VARIABLES = {"NCCL": "NCCL_SOCKET_IFNAME", "Gloo": "GLOO_SOCKET_IFNAME"}


class WrongInterface(Check):
    id, name = "DDP301", "wrong-interface"
    title = "NCCL or Gloo uses an interface the other ranks cannot reach"
    needs = ((Interface, JobRank), (Meeting, JobRank), (NcclInterface, GlooInterface, Interface, JobRank))
    also_reads = (NcclSockets, PeerInterface, UnreachableInterface, Variable, *communicator.READS, *paths.READS)
    acts_at = frozenset({Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.TRANSPORT})
    explains = ("DDP101", "DDP606")
    told = Told(
        because="NCCL and Gloo advertise the address of one interface; if the other nodes cannot reach that, they wait or "
        "are refused",
        fixes=(
            Fix(
                title="name the interface that leads to the other nodes, exactly and on every node",
                commands=(
                    "ip route get HEAD_IP   # prints `dev NAME`",
                    "export NCCL_SOCKET_IFNAME==NAME GLOO_SOCKET_IFNAME=NAME",
                ),
                needs="job restart",
            ),
        ),
    )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for live in from_job(facts):
            yield self.finding(**live)
        yield from communicator.findings(self, facts)
        for path in from_paths(facts):
            yield self.finding(**path)
        for meeting in facts[Meeting]:
            here = untried(facts, meeting.subject.host)
            yield from self._nccl(meeting, here)
            for chosen in here[GlooInterface]:
                if chosen.error:
                    value = chosen.error.rpartition(": ")[2]
                    yield self._nothing("Gloo", value, chosen.error, [chosen.evidence()], here)
                # a hostname on loopback is DDP202's or DDP201's to tell
                elif chosen.chosen_by == "variable" or not chosen.address.startswith("127."):
                    explicit = chosen.chosen_by == "variable"
                    yield from self._choice("Gloo", chosen.interface, explicit, [chosen.evidence()], here, meeting)

    def _nccl(self, meeting: Meeting, here: Facts) -> Iterator[Finding]:
        sockets = here.first(NcclSockets)
        asked = here.first(NcclInterface)
        if sockets is None or (asked is None and not sockets.ifname):
            return
        evidence = [asked.evidence()] if asked else [sockets.evidence()]
        evidence += [each.evidence() for each in here[Variable] if each.name == "NCCL_SOCKET_IFNAME" and each.in_effect]
        if asked is not None and asked.error:
            # a family that no interface has is DDP303's to tell
            if sockets.ifname or not asked.socket_family:
                yield self._nothing("NCCL", sockets.ifname or "", asked.error, evidence, here)
        elif asked is None and not sockets.interfaces:
            yield self._nothing("NCCL", sockets.ifname or "", "no socket interface found", evidence, here)
        else:
            first = asked.interface if asked is not None else sockets.interfaces[0]
            found = list(self._choice("NCCL", first, bool(sockets.ifname), evidence, here, meeting))
            yield from found
            if not found and (meeting.nodes or 1) > 1:
                yield from self._among_others(first, sockets, here, meeting)

    def _nothing(self, library: str, value: str, error: str, evidence: list[Evidence], here: Facts) -> Finding:
        odd = "; it has a blank or quote in it" if set(value) & set("\"' ") else ""
        # without a libnccl to ask, this torch cannot use NCCL at all
        asked = library == "Gloo" or here.first(NcclInterface) is not None
        several = any((meeting.nodes or 1) > 1 for meeting in here[Meeting])
        return self.finding(
            f"{VARIABLES[library]}={value!r} matches no usable interface of this node{odd}",
            because=f"{library} does not fall back to another interface when a name is set: it fails at once ({error})",
            evidence=evidence + [each.evidence() for each in here[Interface] if each.addresses][:8],
            severity=Severity.ERROR if asked or several else Severity.WARNING,
            confidence=Confidence.CERTAIN if asked else Confidence.LIKELY,
            fixes=interface_fixes(library, here),
        )

    def _choice(
        self, library: str, name: str, explicit: bool, evidence: list[Evidence], here: Facts, meeting: Meeting
    ) -> Iterator[Finding]:
        wrong = next((each for each in here[UnreachableInterface] if each.interface == name), None)
        interface = next((each for each in here[Interface] if each.name == name), None)
        if wrong is None or interface is None:
            return
        several = (meeting.nodes or 1) > 1
        # this node's own ranks reach it all the same, even where it is down
        if not several and (interface.loopback or not explicit):
            return
        replaced = library == "NCCL" and any((each.ifname or "").startswith("^") for each in here[NcclSockets])
        yield self.finding(
            f"{library} will use {name}, {wrong.why}"
            + (f", but {meeting.nodes} nodes are expected ({meeting.nodes_because})" if several else ""),
            because=f"{library} tells the other ranks its address, and they cannot reach it"
            + ("; `^` replaces the names that NCCL leaves out by itself (docker, lo)" if replaced else ""),
            evidence=[*evidence, interface.evidence(), *(peer.evidence() for peer in here[PeerInterface])],
            severity=Severity.ERROR if several else Severity.WARNING if meeting.nodes is None else Severity.NOTE,
            confidence=Confidence.LIKELY,
            fixes=interface_fixes(library, here),
        )

    def _among_others(self, first: str, sockets: NcclSockets, here: Facts, meeting: Meeting) -> Iterator[Finding]:
        for other in [each for each in here[UnreachableInterface] if each.interface in sockets.interfaces][:1]:
            yield self.finding(
                f"NCCL will use {first} and also {other.text()}; {meeting.nodes} nodes are expected ({meeting.nodes_because})",
                because="without InfiniBand NCCL spreads its connections over all matching interfaces, "
                "and those over this one never come up",
                evidence=[sockets.evidence(), other.evidence()],
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
                fixes=interface_fixes("NCCL", here),
            )
