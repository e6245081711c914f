"""Stand-ins for what must not leave a machine: hosts, addresses, users, home folders; secrets are taken out.

One `Redactor` gives each value one stand-in, so that what was equal stays equal. Two addresses keep the length of the
prefix they share, so that "in the same subnet" stays true for every size of subnet.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ddp_doctor.model import Redacted, Report

GONE = "<redacted>"

_SECRET_NAME = (
    r"(?:passw(?:or)?d|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|auth[-_]?key|credential|wandb_key"
    r"|session[-_]?id|cookie)s?[\w-]{0,40}"
)
_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(
        rf"(?i)(?P<kept>(?<![\w-])--?[\w-]{{0,40}}{_SECRET_NAME}(?:=|\s+))(?P<gone>\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
    ),
    re.compile(rf"(?i)(?P<kept>{_SECRET_NAME}[\"']?\s*[=:]\s*)(?P<gone>\"[^\"]*\"|'[^']*'|(?!<redacted>)[^\s,;&\"']+)"),
    re.compile(
        r"(?i)(?P<kept>\b(?:authorization|proxy-authorization|bearer|basic)[:=]?\s+(?:(?:bearer|basic|token)\s+)?)(?P<gone>[A-Za-z0-9._~+/=-]{8,})"
    ),
    re.compile(r"(?P<kept>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,20}://)(?P<gone>[^/@\s]+)(?=@)"),
    re.compile(
        r"(?P<gone>\b(?:hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
        r"|xox[abprs]-[\w-]{8,}|AKIA[A-Z0-9]{12,}|ASIA[A-Z0-9]{12,}|AIza[\w-]{20,}|dckr_pat_[\w-]{16,}|pypi-[\w-]{16,}"
        r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)|(?<![\w-])[0-9a-f]{40}(?![\w-]))"
    ),
)
_EMAIL = re.compile(
    r"(?<![\w.+-])(?P<user>[A-Za-z0-9][\w.+-]{0,63})@(?P<host>[A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,63}){0,8})\b"
)
_HOME = re.compile(
    r"(?P<root>/(?:home|Users|export/home|data/home|mnt/home|nfs/home|lustre/home|gpfs/home)/|~)(?P<user>[A-Za-z_][\w.-]*)"
)
_USER = re.compile(r"(?i)\b(?:user(?:name)?|logname|owner|uid=\d+)(?:[=: ]\s*|\()[\"']?(?P<user>[A-Za-z_][\w.-]*)")
_IPV4 = re.compile(r"(?<![0-9.vV])(?P<address>(?:\d{1,3}\.){3}\d{1,3})(?!\.?\d)(?:/(?P<size>\d{1,2})(?!\d))?")
_IPV6 = re.compile(
    r"(?<![\w:.])(?P<address>[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?::(?:\d{1,3}\.){3}\d{1,3})?)(?![\w:])(?:/(?P<size>\d{1,3})(?!\d))?"
)
_MAC = re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w:-])")

_NAME = r"[A-Za-z0-9](?:[\w-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[\w-]{0,61}[A-Za-z0-9])?){0,8}"
_HOST_PLACES = tuple(
    re.compile(pattern.replace("@@", f"(?P<host>{_NAME})"))
    for pattern in (
        r"(?<![\w.-])@@(?=:\d+:\d+ (?:\[-?\d+\] )?(?:[\w/.-]+:\d+ (?:\(\w+\) )?)?NCCL )",
        r"(?<![\w.-])@@(?=:\d+ (?:\[-?\d+\] )?NCCL )",
        r"(?i)\bhost(?:name)?\s*[:=]\s*[\"']?@@",
        r"\(@@(?=, \d{2,5}\))",
        r"\bto host @@(?=:\d)",
        r"\[@@(?=\]:\d{2,5}\b)",
        r"(?i)\b(?:MASTER_ADDR|HOSTNAME|SLURMD_NODENAME|SLURM_LAUNCH_NODE_IPADDR|PET_MASTER_ADDR|KUBERNETES_SERVICE_HOST|HOST)[\"']?\]?\s*[=:,]\s*[\"']?@@",
        r"(?i)--?(?:master[-_]addr|rdzv[-_]endpoint|main[-_]process[-_]ip|host|hosts|nodelist)(?:=|\s+)[\"']?@@",
        r"\b(?:tcp|https?|ssh|etcd|grpc|redis|wss?|socks5?|nfs)://(?:[^@/\s]*@)?@@",
        r"\bssh\s+(?:-\S+\s+)*(?:[\w.-]+@)?@@",
        r"\[pod/@@(?=/)",
        r"^\w{3} +\d+ \d\d:\d\d:\d\d @@(?= (?:kernel|systemd|[\w.-]+\[\d+\]):?)",
        r"(?i)\bon (?:node|host|worker) @@\b",
        r"\b@@ slots=\d",
        r"(?<![\w.-])(?P<host>ip-\d+-\d+-\d+-\d+)(?![\w-])",
        r"(?<![\w./-])(?P<host>(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){2,8}(?:com|net|org|edu|gov|io|ai|cn|de|fr|uk|eu|jp|kr|ch|local|lan|internal|intranet|corp|cluster|cloud|arpa))(?![\w-])",
        r"(?<![\w./-])(?P<host>(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,8}(?:lan|internal|intranet|corp|localnet))(?![\w.-])",
    )
)
_NODE_LIST = re.compile(r"(?<![\w-])(?P<stem>[A-Za-z][\w-]{0,62}?)\[(?P<numbers>\d{1,9}(?:[-,]\d{1,9}){0,999})\]")

_STAND_IN = re.compile(r"(?:host|user)-\d+(?:\.domain-\d+)?|domain-\d+")
_SOURCE_FILES = (".cc", ".h", ".cu", ".cpp", ".py", ".c", ".so")
_COMMON_HOSTS = """
localhost localhost.localdomain ip6-localhost ip6-loopback broadcasthost host hosts hostname node nodes vm gpu gpus cpu
worker workers master server client rank ranks python python3 train job container docker main test head login machine
computer default pod root user admin none null true false unknown any all auto env file tcp static c10d etcd etcd-v2
address port name list the a an is of to on in and or not no with for from by at
"""
_NO_HOST = frozenset(_COMMON_HOSTS.split())
"""Names that many machines have, and words that stand where a host could: they are no one machine's."""
_PUBLIC = re.compile(
    r"(?i)(?:^|\.)(?:github\.com|pytorch\.org|nvidia\.com|python\.org|huggingface\.co|readthedocs\.io|kernel\.org|amazonaws\.com|docker\.io)$"
)
_COMMON_USERS = """
root user users username ubuntu debian nobody admin test runner shared data public none null the of is and not has id name
"""
_NO_USER = frozenset(_COMMON_USERS.split())
_KEPT_NETS = tuple(
    (ipaddress.ip_network(net), bits)
    for net, bits in (
        ("10.0.0.0/8", 8), ("172.16.0.0/12", 16), ("192.168.0.0/16", 16), ("100.64.0.0/10", 10), ("169.254.0.0/16", 16),
        ("fe80::/10", 64), ("fc00::/7", 8),
    )
)  # fmt: skip
_CONSTANT = frozenset({"172.17.0.1", "192.168.122.1", "255.255.255.255", "0.0.0.0"})
"""Addresses that are the same on every machine, so they tell nothing about one."""


class Redactor:
    """Replaces what it finds, and counts. `hosts` and `users` are names known beforehand.

    Every text has to be shown to `learn` first: a name is recognised by its place in one line and then replaced in all.
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._key = secrets.token_bytes(32)
        self._hosts: dict[str, str] = {}
        self._domains: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._secrets = 0
        self._words: re.Pattern[str] | None = None
        for host in hosts:
            self.learn_host(host)
        for user in users:
            self.learn_user(user)

    @property
    def counts(self) -> dict[str, int]:
        """How many different hosts, addresses and users have stand-ins, and how many secrets were taken out."""
        return {
            "hosts": len(self._hosts),
            "addresses": len(self._addresses),
            "users": len(self._users),
            "secrets": self._secrets,
        }

    @property
    def redacted(self) -> Redacted:
        """The counts as a report spells them; addresses are hosts there."""
        return Redacted(hosts=len(self._hosts) + len(self._addresses), users=len(self._users), secrets=self._secrets)

    def learn(self, value: Any, field: str = "") -> None:
        """Take note of the hosts and users in a text, or in all texts of nested lists and tables."""
        if isinstance(value, str):
            if field in ("host", "hosts", "hostname"):
                self.learn_host(value)
            elif field == "user":
                self.learn_user(value)
            self._learn_text(value)
        elif isinstance(value, Mapping):
            if value.get("kind") == "Resolution" or (value.get("kind") == "StoreAnswer"):
                self.learn_host(str(value.get("name", "")))
            for name, inner in value.items():
                self.learn(str(name))
                self.learn(inner, str(name))
        elif isinstance(value, (list, tuple)):
            for inner in value:
                self.learn(inner, field)

    def learn_host(self, name: str) -> None:
        """Give this host a stand-in, unless it is an address or a name that every machine has."""
        name = name.strip().rstrip(".").lower()
        if _STAND_IN.fullmatch(name) or name.endswith(_SOURCE_FILES):
            return
        if (
            not re.fullmatch(_NAME, name)
            or name in _NO_HOST
            or name.isdigit()
            or _is_address(name)
            or _PUBLIC.search(name)
        ):
            return
        label, _, domain = name.partition(".")
        if domain and domain not in self._domains and not _PUBLIC.search(domain):
            self._domains[domain] = f"domain-{len(self._domains) + 1}"
        if label not in self._hosts and label not in _NO_HOST and not label.isdigit():
            self._hosts[label] = f"host-{len(self._hosts) + 1}"
        self._words = None

    def learn_user(self, name: str) -> None:
        """Give this user a stand-in, unless many machines have one of that name."""
        name = name.strip()
        if _STAND_IN.fullmatch(name):
            return
        if re.fullmatch(r"[A-Za-z_][\w.-]{1,63}", name) and name.lower() not in _NO_USER and name not in self._users:
            self._users[name] = f"user-{len(self._users) + 1}"
            self._words = None

    def text(self, text: str) -> str:
        """The text with stand-ins, and without secrets."""
        for pattern in _SECRETS:
            text = pattern.sub(self._without_secret, text)
        text = _MAC.sub(self._mac, text)
        text = _IPV4.sub(self._address, text)
        text = _IPV6.sub(self._address, text)
        text = _NODE_LIST.sub(self._node_list, text)
        return self._known_words().sub(self._stand_in, text)

    def value(self, value: Any, field: str = "") -> Any:
        """Nested lists and tables with stand-ins in all their texts; a variable that names a secret has no value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            if value.get("kind") == "Variable" and re.search(rf"(?i){_SECRET_NAME}|_KEY$", str(value.get("name"))):
                self._secrets += value.get("value") != GONE
                value = {**value, "value": GONE}
            return {self.text(str(name)): self.value(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(inner, field) for inner in value]
        return value

    def _learn_text(self, text: str) -> None:
        for place in _HOST_PLACES:
            for match in place.finditer(text):
                self.learn_host(match["host"])
        for match in _NODE_LIST.finditer(text):
            for name in _expanded(match):
                self.learn_host(name)
        for match in _HOME.finditer(text):
            self.learn_user(match["user"])
        for match in _USER.finditer(text):
            self.learn_user(match["user"])
        for match in _EMAIL.finditer(text):
            self.learn_user(match["user"])
            self.learn_host(match["host"])

    def _known_words(self) -> re.Pattern[str]:
        if self._words is None:
            names = sorted({*self._hosts, *self._domains, *self._users}, key=len, reverse=True)
            words = "|".join(re.escape(name) for name in names)
            self._words = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])" if names else r"(?!)")
        return self._words

    def _stand_in(self, match: re.Match[str]) -> str:
        name = match[0]
        lowered = name.lower()
        users = {user.lower(): stand_in for user, stand_in in self._users.items()}
        return (
            self._users.get(name)
            or self._hosts.get(lowered)
            or self._domains.get(lowered)
            or users.get(lowered)
            or name
        )

    def _without_secret(self, match: re.Match[str]) -> str:
        groups = match.groupdict()
        if groups.get("gone", "").strip("\"'") == GONE:
            return match[0]
        self._secrets += 1
        return (groups.get("kept") or "") + GONE

    def _mac(self, match: re.Match[str]) -> str:
        found = match[0].lower().replace("-", ":")
        if found not in self._addresses:
            number = len(self._addresses) + 1
            self._addresses[found] = f"02:00:00:00:{number >> 8 & 255:02x}:{number & 255:02x}"
        return self._addresses[found]

    def _address(self, match: re.Match[str]) -> str:
        text = match["address"]
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return match[0]
        size = match["size"]
        new = self._mapped(address)
        if size is None or int(size) > address.max_prefixlen:
            return new + match[0][len(text) :]
        bits = int(size)
        rest = address.max_prefixlen - bits
        if not int(address) & ((1 << rest) - 1):  # a network, not an address in one
            number = int(ipaddress.ip_address(new)) >> rest << rest
            new = str(type(address)(number))
        return f"{new}/{size}"

    def _mapped(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        text = str(address)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            return f"::ffff:{self._mapped(address.ipv4_mapped)}"
        if (
            address.is_loopback
            or address.is_unspecified
            or address.is_multicast
            or text in _CONSTANT
            or _is_mask(address)
        ):
            return text
        if text not in self._addresses:
            self._addresses[text] = str(type(address)(self._scrambled(address)))
        return self._addresses[text]

    def _scrambled(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
        """Each bit is flipped or not depending on the bits before it, so shared prefixes stay shared and no longer ones."""
        width = address.max_prefixlen
        kept = next((bits for net, bits in _KEPT_NETS if net.version == address.version and address in net), 8)
        number = int(address)
        result = number >> (width - kept) if kept else 0
        for place in range(kept, width):
            before = number >> (width - place)
            digest = hmac.digest(self._key, f"{address.version}/{place}/{before:x}".encode(), hashlib.sha256)
            result = result << 1 | ((number >> (width - place - 1)) & 1) ^ (digest[0] & 1)
        return result

    def _node_list(self, match: re.Match[str]) -> str:
        names = _expanded(match)
        if not names or not all(name.lower() in self._hosts for name in names):
            return match[0]
        return ",".join(self._hosts[name.lower()] for name in names)


def _expanded(match: re.Match[str]) -> list[str]:
    """Slurm's `node[01-03,07]` as names; nothing for what is longer than a job's list of nodes, or an index of code."""
    if match["stem"].lower() in _NO_HOST or "-" not in match["numbers"] + match["stem"]:
        return []
    names: list[str] = []
    for part in match["numbers"].split(","):
        low, _, high = part.partition("-")
        if int(high or low) - int(low) > 4096:
            return []
        names += [f"{match['stem']}{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)]
    return names


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_mask(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether this is a netmask such as 255.255.240.0."""
    inverted = ~int(address) & 0xFFFFFFFF
    return address.version == 4 and int(address) >> 24 == 255 and inverted & (inverted + 1) == 0


def redacted_report(report: Report, redactor: Redactor) -> Report:
    """A report with stand-ins, and the counts of what was replaced."""
    table = msgspec.to_builtins(report)
    redactor.learn(table)
    for host in (*report.target.hosts, *(row.host for row in report.ranks)):
        redactor.learn_host(host)
    replaced = msgspec.convert(redactor.value(table), Report)
    before, now = report.redacted, redactor.redacted
    return msgspec.structs.replace(
        replaced,
        redacted=Redacted(
            hosts=before.hosts + now.hosts, users=before.users + now.users, secrets=before.secrets + now.secrets
        ),
    )
