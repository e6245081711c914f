"""The RDMA adapters of this host: ports, link layers, GID tables."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.rdma import HcaPort
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

PLACE = "/sys/class/infiniband"


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """One HcaPort each; nothing where there is no adapter."""
    del facts
    subject = {"host": host.name}
    answer = host.ask("rdma", {"root": host.root})
    look = ""
    for message in answer.messages:
        look = str(message.get("look", look))
        if "port" in message:
            said = message["port"]
            source = f"{PLACE}/{said['hca']}/ports/{said['port']}"
            yield msgspec.convert({"kind": HcaPort.kind(), "subject": subject, "source": source, **said}, HcaPort)
    if answer.status != "ok":
        yield Absent(
            kind=HcaPort.kind(),
            about=Subject(host=host.name),
            status=answer.status,
            reason=f"{look}: {answer.reason}" if look else answer.reason,
            how_to_get="ibv_devinfo -v",
        )


PROBES = (Probe(name="rdma", gives=(HcaPort,), take=take),)
