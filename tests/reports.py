"""Reports that renderers are tested with: a job, a healthy node, and one that a hostile log has written into."""

from __future__ import annotations

from ddp_doctor.model import (
    Area,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Folded,
    GpuPair,
    Ignored,
    LeftBehind,
    Outcome,
    ProbeRun,
    RankRow,
    Report,
    Separator,
    Severity,
    Target,
    Tool,
    Verdict,
    Wait,
)

HOSTILE = (
    "\n::error file=x.py::owned\n  ::stop-commands::t\n##[error]owned <script>alert(1)</script> ]]> & \"q\" 'a' 100% "
    "\x1b[31m\x00\x0b\ufffe\ud800\u202e@everyone"
)


def finding(
    id_: str = "DDP103",
    name: str = "thread-launch",
    severity: Severity = Severity.ERROR,
    confidence: Confidence = Confidence.CERTAIN,
    evidence: tuple[Evidence, ...] = (Evidence(fact="ThreadedStart", source="jobs/train.py:12", value="Thread(...)"),),
    **more: object,
) -> Finding:
    """A finding with all its parts."""
    fields: dict[str, object] = {
        "summary": "2 ranks run as threads of one process",
        "because": "each waits for keys that the other never writes",
        "fixes": (
            Fix(title="start one process per rank", commands=("torchrun --nproc-per-node=2 jobs/train.py",)),
            Fix(title="or rewrite it", diff="--- a\n+++ b\n-x\n+y\n", needs="code change"),
        ),
    }
    given = {"id": id_, "name": name, "severity": severity, "confidence": confidence, "evidence": evidence}
    return Finding(**{**fields, **given, **more})  # type: ignore[arg-type]


def report(*findings: Finding, command: str = "triage", **more: object) -> Report:
    """A report with these findings; the first is the verdict."""
    first = findings[0] if findings else None
    fields: dict[str, object] = {
        "tool": Tool(version="0.1.0", command=command, seconds=1.5),
        "target": Target(hosts=("gpu-17",), world_size=2, torch="2.13.0", nccl="2.27.5"),
        "verdict": Verdict(status="problem", finding=first.id, confidence=first.confidence, summary=first.summary)
        if first
        else Verdict(status="healthy", summary="no problem found"),
        "findings": findings,
        "outcomes": (
            *(Outcome(id=each, status="hit", ms=3) for each in dict.fromkeys(found.id for found in findings)),
            Outcome(id="DDP201", status="clear", ms=1),
            Outcome(id="DDP407", status="unknown", reason="libcuda gave no answer in 5.0 s"),
            Outcome(id="DDP408", status="unknown", reason="libcuda gave no answer in 5.0 s"),
            Outcome(id="DDP501", status="not-applicable", reason="no GPU here"),
            Outcome(id="DDP601", status="crashed", reason="KeyError: 'x'"),
        ),
        "probes": (ProbeRun(name="libcuda", status="timeout", ms=5000, reason="no answer in 5.0 s"),),
    }
    return Report(**{**fields, **more})  # type: ignore[arg-type]


def everything(text: str = "words") -> Report:
    """A report in which every part is filled and every text that was observed is `text`."""
    found = finding(
        summary=text,
        because=text,
        ranks=(0, 1),
        hosts=(text,),
        explains=("DDP101",),
        evidence=(Evidence(fact="Line", source=f"{text}.log:3", value=text, rank=0, host=text),),
        fixes=(Fix(title=text, commands=(text,), diff=text, needs=text),),
        folded=(Folded(source=text, times=3, text=text),),
    )
    whole = report(
        found,
        finding("DDP202", "loopback-name", Severity.NOTE, summary=text, because=text),
        target=Target(hosts=(text,), torch=text, nccl=text, gpus=1, gpu_name=text, launcher=text, why_python=text),
        ranks=(RankRow(rank=0, host=text, pid=7, where=text, call=text, waits_for=(Wait(rank=1),)),),
        areas=(Area(title=text, status="clear", text=text, ids=("DDP201",)),),
        pairs=(GpuPair(host=text, first=0, second=1, route="shm", link=text, why=text),),
        ignored=(Ignored(id="DDP208", reason=text),),
        left_behind=(LeftBehind(pid=9, worker=text),),
        interrupted=text,
    )
    outcomes = (
        *whole.outcomes,
        Outcome(id="DDP101", status="hit"),
        Outcome(id="DDP602", status="crashed", reason=text),
    )
    fields = {name: getattr(whole, name) for name in whole.__struct_fields__}
    return Report(**{**fields, "outcomes": outcomes})


def undecided(text: str = "words") -> Report:
    """A report without a verdict, and the question that would decide."""
    return report(
        verdict=Verdict(
            status="unknown",
            summary=text,
            candidates=("DDP101", "DDP302"),
            separate=Separator(between=("DDP101", "DDP302"), title=text, commands=(text,)),
        )
    )
