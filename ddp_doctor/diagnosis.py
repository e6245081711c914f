"""The pure choice of one cause among findings, or the reason why none can be named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_doctor.judge import Judgement
from ddp_doctor.model import Check, Confidence, Finding, Folded, RankRow, Separator, Severity, Stage, Verdict


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict and the findings in the order a person should read them; folded ones are named in `explains`."""

    verdict: Verdict
    findings: tuple[Finding, ...]


def diagnose(
    judgements: Sequence[Judgement],
    ranks: Iterable[RankRow] = (),
    separators: Iterable[Separator] = (),
    *,
    examined: bool = True,
    waiting: bool = False,
    interrupted: str = "",
) -> Diagnosis:
    """Choose the cause. `ranks` are the rows of a job; without them every finding is a fact about this node or script.

    `waiting` says that somebody found the job hung: then nothing found is `unknown`, not `healthy`. So it is where
    `interrupted`, the sentence that says what had not answered when the examination was ended early, is not empty.
    """
    checks = {judgement.check.id: judgement.check for judgement in judgements}
    findings = [finding for judgement in judgements for finding in judgement.findings]
    from_log = {judgement.check.id for judgement in judgements if judgement.from_log}
    findings = _that_can_act(findings, checks, tuple(ranks), from_log)
    findings = _without_echoes(findings, checks)
    findings = _without_guesses(findings, from_log)
    places = {judgement.check.id: judgement.place for judgement in judgements}
    findings.sort(key=lambda finding: _order(finding, checks, places))
    if not examined:
        return Diagnosis(verdict=Verdict(status="nothing"), findings=tuple(findings))
    return Diagnosis(
        verdict=_verdict(findings, judgements, tuple(separators), waiting, interrupted), findings=tuple(findings)
    )


def _order(
    finding: Finding, checks: Mapping[str, Check], places: Mapping[str, int]
) -> tuple[int, int, int, int, int, int, str]:
    """What stops a job before what may, then what failed or acts first, then the surer, then by id.

    Severity leads because only an error is a failure at all; "first failure" compares among those. What is only
    possible goes by how much speaks for it, however grave it would be.
    """
    possible = finding.confidence is Confidence.POSSIBLE
    return (
        possible,
        places[finding.id] if possible else 0,
        finding.severity.rank,
        places[finding.id],
        min(checks[finding.id].acts_at),
        finding.confidence.rank,
        finding.id,
    )


def _that_can_act(
    findings: list[Finding], checks: Mapping[str, Check], ranks: tuple[RankRow, ...], from_log: set[str]
) -> list[Finding]:
    """Drop causes that cannot stop a rank where the ranks they name stand; where no rank stands still, drop none.

    A line that names its cause stays: how far its rank had come is known from the same log, and only as a least.
    """
    stages = {stage.label: stage for stage in Stage}
    # of several jobs, each has a rank of that number
    stuck: dict[int | None, set[Stage]] = {}
    for row in ranks:
        if row.state in ("waiting", "stopped", "blocked", "exited"):
            stuck.setdefault(row.rank, set()).add(stages[row.stage])
    if not stuck:
        return findings
    kept = []
    for finding in findings:
        theirs = {stage for rank in finding.ranks for stage in stuck.get(rank, ())}
        if not theirs or finding.id in from_log or theirs & checks[finding.id].acts_at:
            kept.append(finding)
    return kept


def _without_echoes(findings: list[Finding], checks: Mapping[str, Check]) -> list[Finding]:
    """Fold residual causes into another claim about the same ranks, and every id that a present claim explains."""
    claims = [finding for finding in findings if finding.severity is not Severity.NOTE]
    explained: dict[str, list[str]] = {}
    kept = []
    for finding in findings:
        owner = next((claim for claim in claims if _explains(claim, finding, checks)), None)
        if owner is None:
            kept.append(finding)
        else:
            explained.setdefault(owner.id, []).append(finding.id)
    return [
        msgspec.structs.replace(
            finding, explains=tuple(dict.fromkeys((*finding.explains, *explained.get(finding.id, ()))))
        )
        for finding in kept
    ]


def _without_guesses(findings: list[Finding], from_log: set[str]) -> list[Finding]:
    """Where a cause is named, fold the lines of logs that only made others possible."""
    owner = next(
        (
            finding
            for finding in findings
            if finding.severity is not Severity.NOTE and finding.confidence is not Confidence.POSSIBLE
        ),
        None,
    )
    if owner is None:
        return findings
    guesses = [each for each in findings if each.id in from_log and each.confidence is Confidence.POSSIBLE]
    lines = dict.fromkeys(
        Folded(source=item.source, times=1, text=item.value) for guess in guesses for item in guess.evidence
    )
    folded = msgspec.structs.replace(owner, folded=(*owner.folded, *lines))
    return [folded if finding is owner else finding for finding in findings if finding not in guesses]


def _explains(claim: Finding, echo: Finding, checks: Mapping[str, Check]) -> bool:
    if claim.id == echo.id:
        return False
    if (
        checks[echo.id].residual
        and echo.confidence is Confidence.CERTAIN
        and claim.confidence is not Confidence.CERTAIN
    ):
        # that a rank did not come, or died, was seen; what is only likely cannot account for it
        return False
    if echo.id in claim.explains and claim.confidence is not Confidence.POSSIBLE:
        return True
    same_ranks = not claim.ranks or not echo.ranks or bool(set(claim.ranks) & set(echo.ranks))
    return (
        checks[echo.id].residual
        and not checks[claim.id].residual
        and same_ranks
        and claim.severity.rank <= echo.severity.rank
        and claim.confidence is not Confidence.POSSIBLE
    )


def _verdict(
    findings: list[Finding],
    judgements: Sequence[Judgement],
    separators: tuple[Separator, ...],
    waiting: bool,
    interrupted: str,
) -> Verdict:
    claims = [finding for finding in findings if finding.severity is not Severity.NOTE]
    named = [finding for finding in claims if finding.confidence is not Confidence.POSSIBLE]
    if named:
        first = named[0]
        rivals = _rivals(first, named, {judgement.check.id for judgement in judgements if judgement.from_log})
        if rivals:
            candidates = tuple(dict.fromkeys((first.id, *(rival.id for rival in rivals))))
            return Verdict(
                status="unknown",
                summary="the evidence fits more than one cause",
                candidates=candidates,
                separate=_separator(candidates, separators),
            )
        return Verdict(status="problem", finding=first.id, confidence=first.confidence, summary=first.summary)
    if claims or any(finding.confidence is Confidence.POSSIBLE for finding in findings):
        candidates = tuple(
            dict.fromkeys(finding.id for finding in findings if finding.confidence is Confidence.POSSIBLE)
        )
        return Verdict(
            status="unknown",
            summary="the evidence does not carry a verdict",
            candidates=candidates,
            separate=_separator(candidates, separators),
        )
    if waiting:
        return Verdict(
            status="unknown",
            summary="nothing in this evidence names a cause",
            separate=next((separator for separator in separators if not separator.between), None),
        )
    if interrupted:
        return Verdict(status="unknown", summary=interrupted)
    silent = [
        each.missing.reason for each in judgements if each.missing and each.missing.status in ("timeout", "crashed")
    ]
    if silent:
        return Verdict(status="unknown", summary=f"what answered shows no cause, but {silent[0]}")
    if not any(judgement.outcome.status in ("clear", "hit") for judgement in judgements):
        return Verdict(status="unknown", summary="no check could come to a conclusion")
    return Verdict(status="healthy", summary="no problem found")


def _rivals(first: Finding, named: list[Finding], from_log: set[str]) -> list[Finding]:
    """Other inferred errors about the same ranks. What was directly observed (`certain`) has no rival: it is there.

    Nor have two lines of logs: the first of them decides.
    """
    if first.confidence is Confidence.CERTAIN or first.severity is not Severity.ERROR or not first.ranks:
        return []
    return [
        other
        for other in named[1:]
        if other.id != first.id
        and not {first.id, other.id} <= from_log
        and other.severity is first.severity
        and other.confidence is first.confidence
        and bool(set(other.ranks) & set(first.ranks))
    ]


def _separator(candidates: tuple[str, ...], separators: tuple[Separator, ...]) -> Separator | None:
    """The most specific separator: the one that tells apart most of the candidates."""
    fitting = [separator for separator in separators if set(candidates) & set(separator.between)]
    fitting.sort(key=lambda separator: (-len(set(candidates) & set(separator.between)), len(separator.between)))
    return fitting[0] if fitting else None
