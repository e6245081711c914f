"""The interface NCCL will choose on this node, asked of the libnccl that the examined torch loads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.names import Interface, NcclInterface
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Answer, Host, worker_environment
from ddp_doctor.model import Absent, Facts, Subject

USING = re.compile(r"NCCL INFO Bootstrap ?: Using (?:\[\d+\])?(?P<interface>[^\s:]+):\S+<\d+>")
WARNING = re.compile(r"NCCL WARN (?P<text>.+)")


def take(host: Host, facts: Facts) -> Iterator[Observation]:
    """One answer per distinct libnccl; nothing where torch has none."""
    for library in dict.fromkeys(install.libnccl for install in facts[TorchInstall] if install.libnccl):
        # the last NCCL_DEBUG wins over a conf file; its lines go to the worker's own memory file
        environ = worker_environment(host.environ) | {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,BOOTSTRAP"}
        answer = host.ask("nccl_interface", {"libnccl": library}, environ=environ)
        said = {key: value for message in answer.messages for key, value in message.items()}
        if "result" not in said:
            yield Absent(
                kind=NcclInterface.kind(),
                about=Subject(host=host.name),
                status="crashed" if answer.status == "ok" else answer.status,
                reason=f"{library} gave no interface: {answer.reason}",
                how_to_get="run the job once with NCCL_DEBUG=INFO and read its line `Bootstrap: Using`",
            )
            continue
        yield read_answer(host.name, library, said, answer, facts[Interface])


def read_answer(
    host: str, library: str, said: dict[str, object], answer: Answer, interfaces: tuple[Interface, ...]
) -> NcclInterface:
    """The worker's messages and NCCL's own lines as a fact."""
    seen = said.get("seen")
    seen = seen if isinstance(seen, dict) else {}
    address = str(said.get("address", ""))
    named = USING.search(answer.printed)
    warned = WARNING.findall(answer.printed)
    return NcclInterface(
        subject=Subject(host=host),
        source=f"ncclGetUniqueId of {library}",
        version=version_text(said.get("version")),
        interface=named["interface"]
        if named
        else next((each.name for each in interfaces if address in each.addresses), ""),
        address=address,
        family=("inet6" if ":" in address else "inet") if address else "",
        error=(warned[-1].strip() if warned else str(said["error"])) if said["result"] else "",
        ifname=seen.get("NCCL_SOCKET_IFNAME"),
        socket_family=seen.get("NCCL_SOCKET_FAMILY"),
    )


def version_text(number: object) -> str:
    """NCCL's version number as text: 22705 is 2.27.5 (before 2.9 it had one digit less: 2708 is 2.7.8)."""
    if not isinstance(number, int):
        return ""
    base = 10000 if number >= 10000 else 1000
    return f"{number // base}.{number % base // 100}.{number % 100}"


PROBES = (Probe(name="nccl-interface", gives=(NcclInterface,), builds_on=(TorchInstall, Interface), take=take),)
