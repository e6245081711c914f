"""DDP207: a service mesh's proxy sits between the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.rendezvous import Meeting, SideCar, StoreAnswer
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

BROKEN = ("silent", "closes", "http", "other")


class ServiceMesh(Check):
    id, name = "DDP207", "service-mesh"
    title = "A side-car proxy is in the path between ranks"
    needs = (Meeting, (SideCar, Meeting))
    also_reads = (StoreAnswer,)
    acts_at = frozenset({Stage.STORE_CONNECT, Stage.STORE_WAIT, Stage.GLOO_MESH, Stage.COMM_BOOTSTRAP, Stage.TRANSPORT})
    explains = ("DDP209",)
    told = Told(
        because="a side-car proxy takes the ranks' connections and speaks TLS or HTTP on them; the store, Gloo and NCCL "
        "do not",
        fixes=(
            Fix(
                title="leave the job's pods out of the mesh",
                commands=(
                    "kubectl label namespace NAMESPACE istio-injection=disabled --overwrite",
                    'metadata: {labels: {sidecar.istio.io/inject: "false"}}   # or in the pod template',
                ),
                needs="cluster access, job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        seen = facts[SideCar] or facts.lacking(SideCar)
        return "" if seen else "no service mesh's proxy listens in this network"

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        for side_car in facts[SideCar]:
            here = facts.on(side_car.subject.host)
            failed = [each for each in here[StoreAnswer] if each.verdict in BROKEN and not each.local]
            several = any((meeting.nodes or 1) > 1 for meeting in here[Meeting])
            inject, skip = _annotations(side_car.mesh)
            yield self.finding(
                f"{side_car.mesh}'s proxy shares this pod's network"
                + (
                    f", and the store at {failed[0].address}:{failed[0].port} does not answer through it"
                    if failed
                    else ""
                ),
                because="the mesh redirects TCP through a proxy that expects known ports and protocols; "
                "the ranks' raw connections on changing ports can stall in it",
                evidence=[side_car.evidence()] + [each.evidence() for each in failed],
                severity=Severity.ERROR if failed else Severity.WARNING if several else Severity.NOTE,
                confidence=Confidence.LIKELY if failed else Confidence.POSSIBLE,
                fixes=[
                    Fix(
                        title="no side-car in the job's pods: in the pod template", commands=(inject,), needs="new pods"
                    ),
                    Fix(title="or take the job's ports out of the mesh", commands=(skip,), needs="new pods"),
                ],
            )


def _annotations(mesh: str) -> tuple[str, str]:
    if mesh == "Linkerd":
        return (
            "metadata: {annotations: {linkerd.io/inject: disabled}}",
            'metadata: {annotations: {config.linkerd.io/skip-inbound-ports: "1024-65535", '
            'config.linkerd.io/skip-outbound-ports: "1024-65535"}}',
        )
    return (
        'metadata: {labels: {sidecar.istio.io/inject: "false"}}',
        'metadata: {annotations: {traffic.sidecar.istio.io/includeInboundPorts: "", '
        'traffic.sidecar.istio.io/includeOutboundIPRanges: ""}}',
    )
