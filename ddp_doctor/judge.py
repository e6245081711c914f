"""Runs checks on facts. A check that raises is an outcome, never the end of the report."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from ddp_doctor.facts.log import Suspicion
from ddp_doctor.facts.report import ReportedFinding
from ddp_doctor.model import Absent, Check, Confidence, Fact, Facts, Finding, Outcome, Severity


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One check with its outcome and findings; of an unknown outcome also the evidence that is missing."""

    check: Check
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    place: int = 0
    """Where a log's first failure comes before another's; 0 where no log told it."""
    from_log: bool = False
    """Whether its findings are the check's words for what lines of a log hint at."""
    missing: Absent | None = None


def judge(checks: Iterable[Check], facts: Facts) -> tuple[Judgement, ...]:
    """One judgement per check, in the given order."""
    return tuple(judge_one(check, facts) for check in checks)


def judge_one(check: Check, facts: Facts) -> Judgement:
    """A hit on what is there; clear only where no evidence that was asked for is missing; otherwise unknown."""
    started = time.monotonic()

    def outcome(status: str, reason: str = "") -> Outcome:
        ms = int(1000 * (time.monotonic() - started))
        return msgspec.convert({"id": check.id, "status": status, "reason": reason, "ms": ms}, Outcome)

    try:
        why_not = check.not_applicable(facts)
        findings = () if why_not else tuple(check.diagnose(facts))
        place, from_log = 0, False
        for suspicion in facts[Suspicion] if not findings and check.told else ():
            if suspicion.finding == check.id:
                findings, place, from_log = (*findings, told(check, suspicion)), suspicion.place, True
        reported = [each.finding for each in facts[ReportedFinding] if each.finding.id == check.id]
        findings = (*findings, *merged(reported))
        if why_not and not findings:
            return Judgement(check=check, outcome=outcome("not-applicable", why_not))
    except Exception as error:
        return Judgement(check=check, outcome=outcome("crashed", f"{type(error).__name__}: {error}"))
    if findings:
        return Judgement(check=check, outcome=outcome("hit"), findings=findings, place=place, from_log=from_log)
    groups: list[tuple[type[Fact], ...]] = [need if isinstance(need, tuple) else (need,) for need in check.needs]
    for group in groups:
        for absent in (absent for kind in group for absent in facts.lacking(kind)):
            reason = absent.reason or absent.status
            if absent.how_to_get:
                reason += f": {absent.how_to_get}"
            return Judgement(check=check, outcome=outcome("unknown", reason), missing=absent)
    for group in groups:
        if not any(facts[kind] or kind.kind() in facts.looked_for for kind in group):
            kinds = " or ".join(kind.kind() for kind in group)
            return Judgement(check=check, outcome=outcome("not-applicable", f"nothing here shows {kinds}"))
    return Judgement(check=check, outcome=outcome("clear"))


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of several reports; what is the same on several ranks is said once."""
    found: dict[tuple[str, Severity, Confidence], Finding] = {}
    for finding in findings:
        key = (finding.summary, finding.severity, finding.confidence)
        known = found.get(key)
        found[key] = finding if known is None else _both(known, finding)
    return tuple(found.values())


def _both(one: Finding, other: Finding) -> Finding:
    return msgspec.structs.replace(
        one,
        ranks=tuple(sorted({*one.ranks, *other.ranks})),
        hosts=tuple(sorted({*one.hosts, *other.hosts})),
        evidence=tuple(dict.fromkeys((*one.evidence, *other.evidence))),
        explains=tuple(dict.fromkeys((*one.explains, *other.explains))),
        folded=tuple(dict.fromkeys((*one.folded, *other.folded))),
    )


def told(check: Check, suspicion: Suspicion) -> Finding:
    """The finding of a check about what a log says, in the check's own words."""
    if check.told is None:
        raise ValueError(f"{check.id} {check.name} has no words for what a log says")
    severity = suspicion.severity or check.told.severity
    if suspicion.confidence is Confidence.POSSIBLE and severity is Severity.ERROR:
        severity = Severity.WARNING
    naming = [event for event in suspicion.events if event.sort == "cause"] or suspicion.events
    finding = check.finding(
        suspicion.summary or f"{check.title[:1].lower()}{check.title[1:]}",
        because=check.told.because,
        evidence=[event.evidence() for event in suspicion.events],
        fixes=check.told.fixes,
        severity=severity,
        confidence=suspicion.confidence,
        # a rank that only stands still where such a fault could stop it has no part in the fault
        ranks={event.subject.rank for event in naming if event.subject.rank is not None},
    )
    return msgspec.structs.replace(finding, folded=suspicion.folded)
