"""The launch environment: variables by allow-list, and what NCCL's conf files add to them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ddp_doctor.collect import Observation, Probe
from ddp_doctor.facts.launch import Variable
from ddp_doctor.facts.software import TorchInstall
from ddp_doctor.host import Host
from ddp_doctor.model import Absent, Facts, Subject

if TYPE_CHECKING:
    from ddp_doctor.readers.nccl_conf import Version

EXAMINED_VARIABLES = (
    # ranks and rendezvous
    "RANK", "WORLD_SIZE", "LOCAL_*", "GROUP_*", "ROLE_*", "NODE_RANK", "NNODES", "MASTER_*", "CROSS_RANK", "CROSS_SIZE",
    # launchers
    "TORCHELASTIC_*", "PET_*", "SLURM_*", "OMPI_COMM_WORLD_*", "PMI_*", "PMIX_RANK", "MV2_COMM_WORLD_*",
    "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "RAY_*", "ACCELERATE_*", "DEEPSPEED_*", "PL_*", "LT_*",
    "KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "JOBSET_*", "ISTIO_*",
    # libraries
    "NCCL_*", "GLOO_*", "TORCH_*", "USE_LIBUV", "TP_SOCKET_IFNAME", "OMP_NUM_THREADS", "LD_PRELOAD",
    # devices
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_*", "HIP_*", "ROCR_*",
    # proxies
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "no_grpc_proxy",
)  # fmt: skip
_EXACT = frozenset(EXAMINED_VARIABLES)
_PREFIXES = tuple(name[:-1] for name in EXAMINED_VARIABLES if name.endswith("*"))
SECRET = re.compile(r"PASSWORD|PASSWD|TOKEN|SECRET|CREDENTIAL|_KEY", re.IGNORECASE)
READ_BY_SOMEBODY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_examined(name: str) -> bool:
    """Whether a variable of that name is looked at; the values of all others stay where they are."""
    return name in _EXACT or name.startswith(_PREFIXES)


def presentable(name: str, value: str) -> str:
    """The value without passwords in URLs or secrets."""
    if SECRET.search(name):
        return "<redacted>"
    return re.sub(r"//[^/@\s]*@", "//<redacted>@", value) if "proxy" in name.lower() else value


def take(host: Host, facts: Facts) -> Iterable[Observation]:
    """Yield one Variable per examined name, then the entries of the conf files that NCCL would read."""
    about = Subject(host=host.name)
    yield from from_environment(host, about)
    yield from _from_conf_files(host, facts, about)


def from_environment(host: Host, about: Subject) -> Iterator[Variable]:
    """One Variable per examined name of the environment."""
    started_with = _environment_at_start(host)
    for name in sorted(filter(is_examined, host.environ)):
        value = host.environ[name]
        set_here = os.environ.get(name) == value and started_with.get(name) != value
        yield Variable(
            subject=about,
            source="set by the process itself" if set_here else "environment",
            name=name,
            value=presentable(name, value),
            inherited=not set_here,
        )


def _environment_at_start(host: Host) -> dict[str, str]:
    block = host.kernel("/proc/self/environ") or ""
    pairs = (entry.partition("=") for entry in block.split("\0"))
    return {name: value for name, _, value in pairs}


def _from_conf_files(host: Host, facts: Facts, about: Subject) -> Iterator[Observation]:
    from ddp_doctor.readers.nccl_conf import entries  # each rank of a job imports this module, few read such files

    version = nccl_version(facts)
    files = conf_files(host, version)
    answer = host.ask("read_files", {"paths": files, "limit": 1 << 16})
    if answer.status != "ok":
        unread = files[len(answer.messages) :]
        yield Absent(
            kind=Variable.kind(),
            about=about,
            status=answer.status,
            reason=f"{' and '.join(unread)}: {answer.reason}",
            how_to_get=f"cat {' '.join(unread)}",
        )
    taken = set(host.environ)
    for message in answer.messages:
        for number, name, value in entries(message.get("text", ""), version):
            if "NCCL_" not in name:
                continue
            yield Variable(
                subject=about,
                source=f"{message['path']}:{number}",
                name=name,
                value=value,
                in_effect=name not in taken and bool(READ_BY_SOMEBODY.fullmatch(name)),
            )
            taken.add(name)


def nccl_version(facts: Facts) -> Version | None:
    """The version of the NCCL wheel beside torch, None where it is not known."""
    for install in facts[TorchInstall]:
        for wheel in install.nccl_wheels:
            numbers = re.search(r" (\d+)\.(\d+)", wheel)
            if numbers:
                return int(numbers[1]), int(numbers[2])
    return None


def conf_files(host: Host, version: Version | None) -> tuple[str, ...]:
    """The conf files that NCCL of that version reads, the first to set a name wins; the newest where None."""
    named = host.environ.get("NCCL_CONF_FILE", "") if version is None or version >= (2, 23) else ""
    if not named:
        by_variable = version is None or version >= (2, 30)
        home = host.environ.get("HOME", "") if by_variable else _home_by_user(host)
        named = f"{home}/.nccl.conf" if home else ""
    return (named, "/etc/nccl.conf") if named else ("/etc/nccl.conf",)


def _home_by_user(host: Host) -> str:
    # through a child: the user database may be a directory server that does not answer
    fields = host.run(("getent", "passwd", str(os.getuid()))).printed.split(":")
    return fields[5] if len(fields) > 5 else ""


PROBES = (Probe(name="variables", gives=(Variable,), builds_on=(TorchInstall,), take=take),)
