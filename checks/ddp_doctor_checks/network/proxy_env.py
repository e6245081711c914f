"""DDP308: an HTTP proxy is set for a rendezvous that speaks gRPC or HTTP."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_doctor.facts.launch import Variable
from ddp_doctor.model import Check, Confidence, Facts, Finding, Fix, Severity, Stage, Told

PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
EXEMPT = ("no_grpc_proxy", "no_proxy")
MEETING = ("RAY_ADDRESS", "PET_RDZV_ENDPOINT")


class ProxyEnv(Check):
    id, name = "DDP308", "proxy-env"
    title = "A proxy stands between the nodes of a gRPC or HTTP rendezvous"
    needs = (Variable,)
    acts_at = frozenset({Stage.STORE_CONNECT})
    told = Told(
        because="launchers that speak gRPC or HTTP (Ray, etcd) obey proxy variables, and the proxy does not know the "
        "nodes; torch's store, Gloo and NCCL ignore them",
        fixes=(
            Fix(
                title="leave the proxy out for the job",
                commands=("unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY",),
                needs="job restart",
            ),
        ),
    )

    def not_applicable(self, facts: Facts) -> str:
        return (
            "" if _speaks_http(facts) else "the store, Gloo and NCCL use plain sockets, which no proxy setting changes"
        )

    def diagnose(self, facts: Facts) -> Iterator[Finding]:
        values = {each.name: each for each in facts[Variable] if each.in_effect and each.value}
        host = _host(values)
        proxies = [each for name, each in values.items() if name.lower() in PROXIES]
        exempt = ",".join(each.value for name, each in values.items() if name.lower() in EXEMPT)
        if not proxies or not host or _covered(host, exempt):
            return
        yield self.finding(
            f"{proxies[0].name} is set, and {host}, where the nodes meet, is not exempt from it",
            because="the rendezvous of etcd and of Ray speaks HTTP or gRPC, "
            "which goes to the proxy, and that does not know the nodes",
            evidence=[each.evidence() for each in proxies],
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
            fixes=[
                Fix(
                    title="exempt the nodes, on every node",
                    commands=(f"export no_proxy={','.join(filter(None, (exempt, host)))}", "export NO_PROXY=$no_proxy"),
                ),
            ],
        )


def _speaks_http(facts: Facts) -> bool:
    values = {each.name: each.value for each in facts[Variable] if each.in_effect}
    return values.get("PET_RDZV_BACKEND", "").startswith("etcd") or "RAY_ADDRESS" in values


def _host(values: dict[str, Variable]) -> str:
    text = next((values[name].value for name in MEETING if name in values), "")
    text = text.partition("://")[2] or text
    return text.partition("]")[0][1:] if text.startswith("[") else text.partition(":")[0]


def _covered(host: str, exempt: str) -> bool:
    """Whether a no_proxy list names the host or a domain that it lies in."""
    if host in ("localhost", "127.0.0.1", "auto"):
        return True
    entries = [entry.strip().lstrip(".").rstrip("*") for entry in exempt.split(",")]
    if "*" in (entry.strip() for entry in exempt.split(",")):
        return True
    return any(entry and (host == entry or host.endswith("." + entry)) for entry in entries)
