"""Settings of NCCL, Gloo and torch that do something else than their writer meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

from ddp_doctor.facts.launch import Setting, Variable
from ddp_doctor.facts.software import TrialRank
from ddp_doctor.interpret import Interpreter
from ddp_doctor.model import Fact, Facts

Effect = Literal["breaks", "ends", "risks", "misread", "ignored", "interest"]
Judgement = tuple[Effect, str]

NUMERIC = re.compile(
    r"NCCL_(\w+_(DISABLE|ENABLE|CNT|MSEC|SEC|TIMEOUT|INDEX|SIZE|BUFFSIZE|NTHREADS|NCHANNELS\w*|CTAS|THRESHOLD|RATE|TC|SL)"
    r"|BUFFSIZE|NTHREADS|(MIN|MAX)_\w+|NSOCKS_PERTHREAD|RUNTIME_CONNECT|IGNORE_\w+|COMM_BLOCKING|CROSS_NIC)"
)
NEAR_A_NAME = re.compile(r"\s*(?:export\s+|set\s+)?\"?(NCCL_[A-Z0-9_]+)\"?\s*")
NCCL_DEBUG_LEVELS = ("NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE")
OLD_TORCH_NAMES = ("NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_DESYNC_DEBUG", "NCCL_ENABLE_TIMING")


def interpret(facts: Facts) -> list[Fact]:
    """One Setting per variable or conf-file entry that is itself a fault, ignored, misread, or widely misunderstood."""
    settings: list[Fact] = []
    for variable in facts[Variable]:
        if ":" in variable.source:
            settings += _of_conf_line(variable)
        if variable.in_effect and variable.value != "":
            settings += [_setting(variable, *judged) for judged in _of_value(variable.name, variable.value)]
            settings += _refused_transport(variable, facts)
    return settings + _of_pairs(facts)


def _refused_transport(variable: Variable, facts: Facts) -> list[Setting]:
    """A transport that Gloo knows, where trial ranks were told that this build has no such device."""
    if variable.name != "GLOO_DEVICE_TRANSPORT" or _gloo_transport(variable.value):
        return []
    refused = [rank for rank in facts[TrialRank] if "unsupported gloo device" in rank.error]
    meaning = "this build of torch has no such transport: its Gloo raises `unsupported gloo device`"
    return [_setting(variable, "ends", meaning)] if refused else []


def _setting(variable: Variable, effect: Effect, meaning: str, mended: str = "") -> Setting:
    return Setting(
        subject=variable.subject,
        source=variable.source,
        name=variable.name,
        value=variable.value,
        effect=effect,
        meaning=meaning,
        mended=mended,
    )


def _of_conf_line(entry: Variable) -> Iterator[Setting]:
    """What NCCL makes of a line that was written for a shell: it trims nothing and knows neither quotes nor comments."""
    near = NEAR_A_NAME.fullmatch(entry.name)
    value = _as_meant(entry.value)
    if near and near[1] != entry.name:
        meaning = f'NCCL sets a variable called "{entry.name}", which nobody reads: the line has no effect'
        yield _setting(entry, "ignored", meaning, f"{near[1]}={value}")
    elif entry.in_effect and value != entry.value:
        mended = f"{entry.name}={value}"
        if not NUMERIC.fullmatch(entry.name):
            shown = entry.value.replace("\r", "\\r")
            meaning = f"NCCL takes {shown!r} as the value, with the quotes, blanks or comment in it"
            yield _setting(entry, "misread", meaning, mended)
        elif entry.value[:1] in "\"'":
            yield _setting(entry, "ignored", "NCCL finds no number there and keeps its default", mended)


def _as_meant(value: str) -> str:
    value = re.sub(r"\s+#.*$", "", value).strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return value


def _of_value(name: str, value: str) -> Iterator[Judgement]:
    judge = VALUES.get(name)
    found = judge(value) if judge else None
    if found:
        yield found
    if name in OLD_TORCH_NAMES:
        yield "interest", f"the old name; torch >= 2.2 calls it TORCH_{name}, which wins where both are set"


def _comm_id(value: str) -> Judgement:
    return (
        "breaks",
        "it replaces the id that rank 0 makes for each communicator, so all communicators of all jobs that inherit it "
        f"meet at {value} and mix; torch needs an id of its own per communicator",
    )


def _socket_family(value: str) -> Judgement | None:
    if value in ("AF_INET", "AF_INET6"):
        return None
    return "ignored", "NCCL knows AF_INET and AF_INET6 and takes the first address it finds for anything else"


def _debug(value: str) -> Judgement | None:
    if value.upper() in NCCL_DEBUG_LEVELS:
        return None
    return "ignored", f"NCCL knows {', '.join(NCCL_DEBUG_LEVELS[:4])} and TRACE; this prints nothing"


def _ignore_disabled_p2p(value: str) -> Judgement | None:
    if value == "0":
        return None
    return (
        "interest",
        "on a PCIe pair with NCCL >= 2.19.1 it only silences the line `P2P is disabled between connected GPUs`; with 2.12 "
        "to 2.18 it really switches P2P off there; on an NVLink pair it turns an initialisation error into a silent "
        "fall-back through host memory",
    )


def _distributed_debug(value: str) -> Judgement | None:
    if value.upper() in ("OFF", "INFO", "DETAIL"):
        return None
    return "ends", "torch raises ValueError: it must be OFF, INFO or DETAIL"


def _gloo_transport(value: str) -> Judgement | None:
    if value in ("TCP", "TCP_TLS", "IBVERBS", "UV", ""):
        return None
    return (
        "ends",
        "Gloo raises `unsupported gloo device`: it knows TCP, and where built in TCP_TLS, IBVERBS and UV, in capitals",
    )


def _launch_blocking(value: str) -> Judgement | None:
    if value == "0":
        return None
    return (
        "risks",
        "every kernel launch waits for its kernel, and an NCCL kernel ends only when all ranks have launched theirs: "
        "ranks that launch several can wait for each other for ever (seen since NCCL 2.13)",
    )


def _blocking_wait(value: str) -> Judgement | None:
    if value == "0":
        return None
    return "interest", "wait() blocks the program until the collective ends and raises there at the timeout"


VALUES: dict[str, Callable[[str], Judgement | None]] = {
    "NCCL_COMM_ID": _comm_id,
    "NCCL_SOCKET_FAMILY": _socket_family,
    "NCCL_DEBUG": _debug,
    "NCCL_IGNORE_DISABLED_P2P": _ignore_disabled_p2p,
    "TORCH_DISTRIBUTED_DEBUG": _distributed_debug,
    "GLOO_DEVICE_TRANSPORT": _gloo_transport,
    "CUDA_LAUNCH_BLOCKING": _launch_blocking,
    "TORCH_NCCL_BLOCKING_WAIT": _blocking_wait,
}


def _of_pairs(facts: Facts) -> list[Setting]:
    settings = []
    for first in facts[Variable]:
        if first.name != "NCCL_P2P_DISABLE" or not first.in_effect or first.value in ("", "0"):
            continue
        for second in facts[Variable]:
            both = second.name == "NCCL_SHM_DISABLE" and second.in_effect and second.subject == first.subject
            if both and second.value not in ("", "0"):
                meaning = (
                    f"with {second.text()} ({second.source}) as well, GPUs of one machine reach each other only through "
                    "the network card: each rank counts as a node of its own"
                )
                settings.append(_setting(first, "interest", meaning))
    return settings


INTERPRETER = Interpreter(reads=(Variable, TrialRank), gives=(Setting,), interpret=interpret)
