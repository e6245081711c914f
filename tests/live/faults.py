"""The live faults and the healthy controls: what is started, and what attaching to it has to say.

`docs/live_faults.md` lists the same with words; a test keeps the two together.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fakes.nccl import Stage, healthy, libnccl, why_not, with_rules
from fakes.node import Rule
from jobs import HANGS, free_port

PORT, FOLDER = "{port}", "{folder}"


@dataclass(frozen=True)
class Part:
    """One process that is started. `{port}`, `{other}` and `{folder}` are replaced in arguments and variables."""

    script: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    """Seconds after the parts before it."""
    module: tuple[str, ...] = ()
    """Arguments of the interpreter before the script, such as `-m torch.distributed.run ...`."""
    host: str = ""
    """A or B: the host, a network namespace, that it is started on."""
    knows: tuple[str, ...] = ("10.77.0.1 hostA", "10.77.0.2 hostB")
    """The lines of that host's /etc/hosts besides localhost."""
    contained: bool = False
    """Whether it starts in user, PID, mount, IPC and network namespaces of its own."""
    waited_for: bool = True
    """Whether it marks the moment before its hang."""
    bystander: bool = False
    """It is none of the job's."""
    orphan: bool = False
    """Whether the process that started it ends at once, as a shell does that is closed."""
    nccl: str = ""
    """The release of libnccl that it calls on a described node of eight GPUs; empty for none."""
    hangs: tuple[str, ...] = ()
    """Calls of the driver that never return to it."""


@dataclass(frozen=True)
class Fault:
    """A way to hang, and what has to be said: any of `expected`, about exactly `ranks` (None: not judged)."""

    name: str
    expected: tuple[str, ...]
    ranks: tuple[int, ...] | None
    parts: tuple[Part, ...]
    says: str
    marks: int | None = None
    """How many processes mark their moment; the number of parts unless given."""
    settle: float = 1.5
    quick: bool = False
    """In the part of the set that runs in CI."""
    logged: bool = False
    """Whether what it prints goes to one file, as of a launcher; else nowhere."""
    network: tuple[str, ...] = ()
    """`ip` commands that break the network between the hosts A (10.77.0.1) and B (10.77.0.2)."""
    watch_is_silent: bool = False
    """Whether `watch` leaves it alone: initialisation is over, and what the others wait for is at work."""

    @property
    def needs_nccl(self) -> tuple[str, ...]:
        """The releases of libnccl that it needs."""
        return tuple(sorted({part.nccl for part in self.parts if part.nccl}))

    def why_not(self) -> str:
        """Why it cannot be started here; empty if it can."""
        if self.needs_root and os.geteuid() != 0:
            return "needs root"
        return next((reason for version in self.needs_nccl if (reason := why_not(version))), "")

    @property
    def needs_root(self) -> bool:
        """Whether it takes place on hosts of its own."""
        return any(part.host or part.contained for part in self.parts)


def rank(number: int, size: int, script: str = "meet.py", **changes: object) -> Part:
    """One rank, started as by hand."""
    variables = {
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(number),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": PORT,
    }
    own: dict[str, object] = {key: changes.pop(key) for key in list(changes) if not key.isupper()}
    variables.update({key: str(value) for key, value in changes.items()})
    return Part(script=script, variables=variables, **own)  # type: ignore[arg-type]


def ranks(
    size: int, script: str = "meet.py", only: tuple[int, ...] | None = None, **changes: object
) -> tuple[Part, ...]:
    """All ranks of a job, or some of them."""
    return tuple(rank(number, size, script, **changes) for number in (only or range(size)))


def torchrun(*options: str, script: str = "meet.py", **variables: str) -> Part:
    """torchrun, as its module."""
    return Part(script=script, module=("-m", "torch.distributed.run", *options), variables=variables, waited_for=False)


def nccl_rank(number: int, size: int, version: str = "2.27.5", hangs: tuple[str, ...] = (), **changes: object) -> Part:
    """A rank that forms a communicator on the real libnccl."""
    changes.setdefault("NCCL_SOCKET_IFNAME", "lo")
    return rank(number, size, "nccl_rank.py", nccl=version, hangs=hangs, **changes)


def container(started: int, size: int, **variables: str) -> Part:
    """Ranks in a container of their own."""
    values = {"STARTED": str(started), "SIZE": str(size), "MASTER_PORT": PORT, **variables}
    return Part(script="in_container.py", variables=values, contained=True, waited_for=False)


def server(kind: str, **variables: str) -> Part:
    """A program that is no TCPStore on the job's port."""
    return Part(
        script="foreign_server.py", arguments=(kind,), variables={"MASTER_PORT": PORT, **variables}, bystander=True
    )


FILTER = tuple(f"-n {host} rule {change}" for host in "AB" for change in ("add pref 100 lookup local", "del pref 0"))
"""Lets rules come before the delivery of what is addressed to the host itself."""


def on_hosts(script: str = "meet.py", only: tuple[int, ...] = (0, 1), **changes: object) -> tuple[Part, ...]:
    """Rank 0 on host A, rank 1 on host B."""
    changes.setdefault("MASTER_ADDR", "10.77.0.1")
    return tuple(
        rank(number, 2, script, host="AB"[number], **{**changes, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
        for number in only
    )


FAULTS: tuple[Fault, ...] = (
    # --- ranks that are not there
    Fault("rank-1-missing", ("DDP101",), (1,), ranks(2, only=(0,)), "rank 1 was never started", quick=True),
    Fault("rank-0-missing", ("DDP101",), (0,), (rank(1, 2),), "rank 0 was never started: nobody listens", settle=2.5),
    Fault("rank-2-of-3-missing", ("DDP101",), (2,), ranks(3, only=(0, 1)), "ranks 0 and 1 of 3 are there"),
    Fault("ranks-2-3-of-4-missing", ("DDP101",), (2, 3), ranks(4, only=(0, 1)), "half of the ranks are there"),
    Fault("rank-1-died-before-init", ("DDP101", "DDP606"), (1,), (rank(0, 2), rank(1, 2, MODE="die")),
          "rank 1 exits with code 3 before init"),
    Fault("rank-2-killed-mid-init", ("DDP101", "DDP606"), (2,), ranks(3, "die_mid.py", HOW="kill", WHO="2"),
          "rank 2 joins the store and is killed before it writes its key", settle=2.5),
    Fault("spawned-one-too-few", ("DDP101",), (2,),
          (Part("started.py", ("spawn",), {"HOW": "", "STARTED": "2", "SIZE": "3", "MASTER_PORT": PORT}),),
          "mp.spawn starts 2 processes, world_size is 3", marks=2, settle=2.5),
    # --- the numbers of the ranks
    Fault("rank-1-twice-of-3", ("DDP116",), (1,), (rank(0, 3), rank(1, 3), rank(1, 3)), "ranks 0, 1, 1 of 3"),
    Fault("rank-1-twice-of-2", ("DDP116",), (1,), (rank(1, 2), rank(1, 2)), "ranks 1, 1 of 2: no rank 0", settle=2.5),
    Fault("forked-same-rank", ("DDP116",), (1,),
          (Part("started.py", ("fork",), {"HOW": "same-rank", "STARTED": "3", "MASTER_PORT": PORT}),),
          "three forked ranks, two of which call themselves 1", marks=3, settle=2.0),
    Fault("second-job-on-the-port", ("DDP116",), (1,),
          (rank(0, 2, MODE="compute"), rank(1, 2, MODE="compute", JOB="B"), rank(1, 2, delay=6.0)),
          "rank 1 of another job joined this job's store first", settle=3.0),
    Fault("world-size-3-and-2", ("DDP117",), (0, 1), (rank(0, 3), rank(1, 2)), "rank 0 says 3 ranks, rank 1 says 2"),
    Fault("world-size-2-and-3", ("DDP117",), (0, 1), (rank(0, 2), rank(1, 3)), "rank 0 says 2 ranks, rank 1 says 3"),
    Fault("world-size-odd-one-of-4", ("DDP117",), (3,), (*ranks(4, only=(0, 1, 2)), rank(3, 5)), "rank 3 says 5, all others 4"),
    # --- where they meet
    Fault("port-differs", ("DDP111",), (0, 1), (rank(0, 2), rank(1, 2, MASTER_PORT="{other}")),
          "MASTER_PORT differs between the two ranks", settle=2.5),
    Fault("port-of-rank-2-differs", ("DDP111",), (2,), (*ranks(3, only=(0, 1)), rank(2, 3, MASTER_PORT="{other}")),
          "MASTER_PORT of rank 2 differs", settle=2.5),
    Fault("mute-server", ("DDP209",), (1,), (server("mute"), rank(1, 2, delay=1.0)),
          "a program that accepts and says nothing holds the port", quick=True),
    Fault("server-that-never-accepts", ("DDP209",), (1,), (server("noaccept"), rank(1, 2, delay=1.0)),
          "a program that listens and never accepts holds the port"),
    Fault("http-server", ("DDP209",), (1,), (server("http"), rank(1, 2, delay=1.0)), "a web server holds the port", settle=2.5),
    Fault("server-that-closes", ("DDP209",), (1,), (server("close"), rank(1, 2, delay=1.0)),
          "a program that closes every connection holds the port", settle=2.5),
    Fault("port-taken-from-rank-0", ("DDP209", "DDP112"), (1,),
          (server("mute", BIND="0.0.0.0"), rank(0, 2, delay=1.0), rank(1, 2)),
          "rank 0 died of EADDRINUSE, rank 1 talks to the intruder", settle=3.0),
    Fault("name-does-not-resolve", ("DDP201",), (0, 1), ranks(2, MASTER_ADDR="no-such-host.invalid"),
          "MASTER_ADDR has no address", settle=2.5),
    Fault("file-store-differs", ("DDP206",), (0, 1),
          (rank(0, 2, "file_store.py", STORE_FILE="{folder}/a"), rank(1, 2, "file_store.py", STORE_FILE="{folder}/b")),
          "the two ranks use different rendezvous files", settle=2.5),
    Fault("file-store-rank-0-missing", ("DDP101",), (0,), (rank(1, 2, "file_store.py", STORE_FILE="{folder}/store"),),
          "only rank 1 opened the rendezvous file", settle=2.5),
    # --- launchers
    Fault("agent-store-leak", ("DDP110",), (0, 1), ranks(2, TORCHELASTIC_USE_AGENT_STORE="True"),
          "variables of a torchrun worker leaked into a job without torchrun", settle=2.5),
    Fault("torchrun-one-node-of-2", ("DDP101",), None,
          (torchrun("--nnodes=2", "--node-rank=0", "--nproc-per-node=1", "--master-addr=127.0.0.1", "--master-port={port}"),),
          "static torchrun, the second node never started", marks=0, settle=7.0),
    Fault("torchrun-c10d-one-node-of-2", ("DDP101",), None,
          (torchrun("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=a"),),
          "torchrun with a c10d rendezvous, the second node never started", marks=0, settle=8.0),
    Fault("torchrun-ids-differ", ("DDP205",), None,
          tuple(torchrun("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={id}")
                for id in "ab"),
          "two nodes with different --rdzv-id", marks=0, settle=8.0),
    Fault("relaunched-child-waits-for-a-queue", ("DDP119",), (1,),
          (Part("relaunch.py", (), {"HOW": "queue", "MASTER_PORT": PORT}),),
          "the re-run script waits for a request that came once, in a thread", marks=2, settle=2.0, quick=True),
    Fault("relaunched-child-waits-for-a-message", ("DDP119",), (1,),
          (Part("relaunch.py", (), {"HOW": "message", "MASTER_PORT": PORT}),),
          "the re-run script waits for a message that was taken already", marks=2, settle=2.0),
    Fault("relaunched-child-waits-for-input", ("DDP119",), (1,),
          (Part("relaunch.py", (), {"HOW": "input", "MASTER_PORT": PORT}),),
          "the re-run script waits for input", marks=2, settle=2.0),
    Fault("threads-as-ranks", ("DDP103",), (0, 1), (Part("threads_as_ranks.py", (), {"MASTER_PORT": PORT}, waited_for=False),),
          "two threads of one process are to be ranks 0 and 1", marks=0, settle=6.0),
    Fault("threads-as-ranks-lazy", ("DDP103",), (0, 1), (Part("lazy_threads.py", (), {"MASTER_PORT": PORT}),),
          "the same with a lazy backend: both inits returned", marks=1, settle=2.0),
    Fault("init-outside-the-main-guard", ("DDP115",), None,
          (Part("unguarded.py", (), {"PORT": PORT}),), "spawned children run init while they import the script", marks=3, settle=4.0),
    # --- settings that differ
    Fault("debug-detail-on-rank-1", ("DDP118",), (1,),
          (rank(0, 3), rank(1, 3, TORCH_DISTRIBUTED_DEBUG="DETAIL"), rank(2, 3)),
          "TORCH_DISTRIBUTED_DEBUG=DETAIL on rank 1 only", settle=2.0),
    Fault("init-barrier-on-rank-2", ("DDP118",), (2,),
          (*ranks(3, only=(0, 1)), rank(2, 3, TORCH_DIST_INIT_BARRIER="1")),
          "TORCH_DIST_INIT_BARRIER=1 on rank 2 only", settle=2.0),
    # --- a rank that is elsewhere
    Fault("rank-1-prepares-data", ("DDP604",), (1,), (rank(0, 2), rank(1, 2, MODE="prepare")),
          "rank 1 prepares data before init"),
    Fault("rank-0-prepares-data", ("DDP604",), (0,), (rank(0, 2, MODE="prepare"), rank(1, 2)), "rank 0 prepares data before init",
          settle=2.5),
    Fault("rank-2-of-4-prepares-data", ("DDP604",), (2,),
          (rank(0, 4), rank(1, 4), rank(2, 4, MODE="prepare"), rank(3, 4)), "rank 2 of 4 prepares data before init"),
    Fault("rank-1-sleeps-before-init", ("DDP604",), (1,), (rank(0, 2), rank(1, 2, MODE="sleep-first")), "rank 1 sleeps before init"),
    Fault("forked-rank-1-busy", ("DDP604",), (1,),
          (Part("started.py", ("fork",), {"HOW": "busy", "MASTER_PORT": PORT}),),
          "a forked rank without RANK in its environment is busy before init", marks=2, settle=2.0),
    Fault("rank-1-evaluates", ("DDP604", "DDP601"), (1,), ranks(2, "collectives.py", HOW="evaluates", ODD="1"),
          "rank 1 computes while the other waits in a collective", watch_is_silent=True),
    Fault("rank-1-computes-for-ever", ("DDP604", "DDP601"), (1,), (rank(0, 2), rank(1, 2, MODE="compute")),
          "rank 1 never calls the collective", watch_is_silent=True),
    Fault("rank-0-stopped-mid-init", ("DDP608",), (0,), ranks(2, "die_mid.py", HOW="stop"), "rank 0, the store's host, is stopped",
          settle=2.5, quick=True),
    Fault("rank-1-stopped-before-init", ("DDP608",), (1,), (rank(0, 2), rank(1, 2, MODE="stop-first")), "rank 1 is stopped before init"),
    Fault("rank-1-stopped-in-training", ("DDP608",), (1,), ranks(2, "stalled.py", HOW="stop"), "rank 1 is stopped after init"),
    Fault("spawned-rank-1-stopped", ("DDP608",), (1,),
          (Part("started.py", ("spawn",), {"HOW": "stopped", "MASTER_PORT": PORT}),), "a spawned rank is stopped", marks=2, settle=2.5),
    Fault("gil-held", ("DDP506",), (1,), ranks(2, "stalled.py", HOW="gil"), "a C call of rank 1 keeps the GIL"),
    Fault("gil-held-by-another-thread", ("DDP506",), (1,), ranks(2, "stalled.py", HOW="gil-thread"),
          "a C call in another thread of rank 1 keeps the GIL"),
    Fault("import-lock", ("DDP506",), (1,), ranks(2, "import_lock.py"), "rank 1 deadlocks in an import"),
    Fault("two-locks", ("DDP506",), (1,), ranks(2, "stalled.py", HOW="locks", BEFORE="1"), "two threads of rank 1 took two locks in opposite order"),
    Fault("forked-with-a-lock", ("DDP506",), (0, 1),
          (Part("started.py", ("fork",), {"HOW": "lock", "MASTER_PORT": PORT}),),
          "the ranks were forked while another thread held a lock", marks=2, settle=1.5),
    Fault("forked-after-openmp", ("DDP506",), (0, 1),
          (Part("started.py", ("fork",), {"HOW": "omp", "MASTER_PORT": PORT, "OMP_NUM_THREADS": "2"}),),
          "the ranks were forked after OpenMP had started its threads", marks=2, settle=2.5),
    Fault("file-lock", ("DDP505",), (1,),
          (Part("hold_lock.py", (), {"LOCK_FILE": "{folder}/lock"}, bystander=True),
           *ranks(2, "stalled.py", HOW="flock", BEFORE="1", LOCK_FILE="{folder}/lock")),
          "rank 1 waits for a file lock that a stray process holds"),
    Fault("pipe", ("DDP505",), (1,), ranks(2, "stalled.py", HOW="pipe"), "rank 1 reads from a pipe that nobody writes to"),
    Fault("data-workers", ("DDP505",), (1,), ranks(2, "data_workers.py"), "rank 1's DataLoader workers are deadlocked", settle=2.0),
    # --- calls that differ
    Fault("rank-0-barrier", ("DDP601",), (0,), ranks(2, "collectives.py", HOW="rank0-barrier"),
          "a barrier under `if rank == 0`", quick=True),
    Fault("rank-0-checkpoint-barrier", ("DDP601",), (0,), ranks(3, "collectives.py", HOW="rank0-checkpoint"),
          "a barrier in a function that only rank 0 calls"),
    Fault("rank-0-only-allreduce", ("DDP601",), (0,), ranks(2, "collectives.py", HOW="rank0-only"),
          "an all_reduce under `if rank == 0`, the others go on without it"),
    Fault("allreduce-and-barrier", ("DDP603",), (0, 1), ranks(2, "collectives.py", HOW="allreduce-or-barrier"),
          "one rank is in barrier, the other in all_reduce"),
    Fault("rank-2-broadcasts", ("DDP603",), (2,), ranks(3, "collectives.py", HOW="allreduce-or-broadcast", ODD="2"),
          "rank 2 is in broadcast, the others in all_reduce"),
    Fault("rank-1-gathers", ("DDP603",), (1,), ranks(3, "collectives.py", HOW="gather-or-allreduce", ODD="1"),
          "rank 1 is in all_gather, the others in all_reduce"),
    Fault("recv-that-nobody-sends", ("DDP601", "DDP604"), None, ranks(2, "collectives.py", HOW="recv-nobody-sends"),
          "rank 0 receives from rank 1, which does not send"),
    Fault("subgroups-in-other-order", ("DDP605",), None, ranks(3, "groups.py", HOW="order"), "new_group in another order on rank 2",
          quick=True),
    Fault("subgroup-on-some-ranks", ("DDP605",), (2,), ranks(3, "groups.py", HOW="some"), "rank 2 skips new_group"),
    Fault("subgroup-skipped-earlier", ("DDP605",), (2,), ranks(3, "groups.py", HOW="shift"), "rank 2 skipped an earlier new_group"),
    Fault("subgroup-not-all-members", ("DDP601", "DDP603"), None, ranks(3, "groups.py", HOW="not-a-member"),
          "rank 1 of a pair does not take part in the pair's all_reduce"),
    Fault("ddp-on-rank-0-only", ("DDP601", "DDP604"), (1,), ranks(2, "ddp.py", HOW="some"), "rank 1 never wraps its model", settle=7.0),
    Fault("ddp-on-rank-0-barrier-on-1", ("DDP601",), (1,), ranks(2, "ddp.py", HOW="some-barrier"),
          "rank 1 goes to a barrier before it wraps its model", settle=7.0),
    Fault("buffer-on-rank-1-only", ("DDP607",), (0, 1), ranks(2, "ddp.py", HOW="extra-buffer"),
          "the model of rank 1 has one more buffer", settle=7.0),
    Fault("backward-on-rank-0-only", ("DDP601",), (0,), ranks(2, "ddp.py", HOW="one-backward"), "only rank 0 runs backward", settle=7.0),
    Fault("uneven-batches", ("DDP602",), None, ranks(2, "ddp.py", HOW="uneven"), "rank 0 has one more batch than rank 1",
          settle=7.0),
    # --- between hosts
    Fault("loopback-address-on-2-hosts", ("DDP111",), (0, 1), on_hosts(MASTER_ADDR="localhost"), "MASTER_ADDR=localhost on two hosts",
          settle=2.5),
    Fault("master-is-the-other-host", ("DDP204",), (0, 1), on_hosts(MASTER_ADDR="10.77.0.2"), "rank 0 runs on A, MASTER_ADDR is B's",
          settle=2.5),
    Fault("own-name-is-loopback", ("DDP202",), None, on_hosts(knows=("127.0.1.1 hostA", "127.0.1.1 hostB")),
          "the hosts' own names are 127.0.1.1, as on Debian", settle=3.0),
    Fault("gloo-on-an-unreachable-network", ("DDP301",), (1,), on_hosts(knows=("10.77.0.1 hostA", "10.66.0.1 hostB")),
          "B's own name is an address on a network that A cannot reach", settle=3.0,
          network=("-n B addr add 10.66.0.1/32 dev vB", "-n A route add 10.66.0.0/24 dev vA",
                   "-n A neigh add 10.66.0.1 lladdr 02:00:00:00:00:99 dev vA nud permanent")),
    Fault("firewall-on-master-port", ("DDP302",), (1,), on_hosts(), "packets to MASTER_PORT are dropped on A", settle=3.0,
          network=(*FILTER, "-n A rule add pref 20 iif vA ipproto tcp dport {port} blackhole")),
    Fault("firewall-on-ephemeral-ports", ("DDP302",), None, on_hosts(), "only MASTER_PORT is open, Gloo's ports are not", settle=3.0,
          network=(*FILTER, *(f"-n {host} rule add pref 10 iif v{host} ipproto tcp {end} {{port}} lookup local" for host in "AB" for end in ("dport", "sport")),
                   *(f"-n {host} rule add pref 20 iif v{host} ipproto tcp dport 1024-65000 blackhole" for host in "AB"))),
    Fault("master-address-swallowed", ("DDP302",), (1,), on_hosts(only=(1,), MASTER_ADDR="10.88.0.77"),
          "MASTER_ADDR is an address that swallows packets", settle=3.0,
          network=("-n B route add 10.88.0.0/24 dev vB", "-n B neigh add 10.88.0.77 lladdr 02:00:00:00:00:99 dev vB nud permanent")),
    Fault("ipv6-master-without-ipv6", ("DDP303",), (1,), on_hosts(only=(1,), MASTER_ADDR="fd00:ddb::1"),
          "MASTER_ADDR is an IPv6 address, and rank 1's host has no IPv6", settle=2.5,
          network=("netns exec B sysctl -qw net.ipv6.conf.all.disable_ipv6=1",)),
    # --- a port or a rank that an earlier run kept
    Fault("port-held-and-rank-0-tries-again", ("DDP112",), (0,),
          (server("mute", BIND="0.0.0.0"), rank(0, 2, MODE="try-again", delay=1.0)),
          "rank 0 tries again and again to bind MASTER_PORT, which another program holds", settle=2.5),
    Fault("rank-1-of-an-earlier-run", ("DDP410",), (1,),
          (rank(1, 3, orphan=True, waited_for=False), rank(0, 3, delay=9.0), rank(1, 3)),
          "an orphan of an earlier run joined as rank 1 of 3, and the right rank 1 too", settle=3.0),
    # --- NCCL, the real library on a described node
    Fault("nccl-rank-2-missing", ("DDP101",), (2,), tuple(nccl_rank(number, 3, ID_FILE="{folder}/id") for number in (0, 1)),
          "the communicator waits in its bootstrap for rank 2, which was never started", settle=3.0),
    Fault("nccl-rank-1-late", ("DDP604",), (1,), (nccl_rank(0, 2), nccl_rank(1, 2, HOW="late")),
          "rank 1 prepares data before it forms the communicator, rank 0 waits in the bootstrap", settle=3.0),
    Fault("nccl-versions-differ", ("DDP501",), (0, 1),
          (nccl_rank(0, 2, "2.27.5", ID_FILE="{folder}/id"), nccl_rank(1, 2, "2.30.7", ID_FILE="{folder}/id")),
          "the ranks have NCCL 2.27.5 and 2.30.7 and hang in the bootstrap", settle=3.0),
    Fault("nccl-hang-in-nvml", ("DDP407",), (1,), (nccl_rank(0, 2), nccl_rank(1, 2, hangs=("nvmlDeviceGetP2PStatus",))),
          "a call of NVML does not return to rank 1", settle=3.0),
    Fault("nccl-hang-in-topology", ("DDP407",), (1,), (nccl_rank(0, 2), nccl_rank(1, 2, hangs=("cudaDeviceCanAccessPeer",))),
          "a call of the driver does not return to rank 1 while NCCL reads the topology", settle=3.0),
    Fault("nccl-hang-in-connect", ("DDP402",), (1,),
          (nccl_rank(0, 2), nccl_rank(1, 2, hangs=("cuMemImportFromShareableHandle", "cudaIpcOpenMemHandle"))),
          "the driver does not open the memory of rank 0's GPU to rank 1", settle=3.0),
    Fault("nccl-hang-at-launch", ("DDP407",), (1,), (nccl_rank(0, 2), nccl_rank(1, 2, hangs=("launch",))),
          "the launch of the first collective does not return on rank 1", settle=3.0),
    Fault("nccl-interface-on-rank-1", ("DDP301",), (1,),
          tuple(nccl_rank(number, 2, ID_FILE="{folder}/id", NCCL_DEBUG="INFO", NCCL_SOCKET_IFNAME=name) for number, name in enumerate(("lo", "eth77"))),
          "rank 1 died of NCCL_SOCKET_IFNAME, rank 0 waits in the bootstrap; the log tells", settle=3.0, logged=True),
    # --- in a container, seen from outside
    Fault("container-rank-2-missing", ("DDP101",), (2,), (container(2, 3),), "two of three ranks in a container", marks=2, settle=2.5),
    Fault("container-rank-1-prepares-data", ("DDP604",), (1,), (container(2, 2, LATE_RANK="1"),),
          "a rank in a container prepares data before init", marks=2, settle=2.5),
)  # fmt: skip

CONTROLS: tuple[Fault, ...] = (
    Fault("nccl-all-reduces", (), None, (nccl_rank(0, 2), nccl_rank(1, 2)), "two ranks all-reduce over NCCL", settle=3.0),
    Fault("nccl-all-reduces-logged", (), None,
          tuple(nccl_rank(number, 2, ID_FILE="{folder}/id", NCCL_DEBUG="INFO") for number in range(2)),
          "the same without torch, with NCCL's log", settle=3.0, logged=True),
    Fault("training-logged", (), None, ranks(2, "healthy.py", HOW=""), "two ranks train and print to a file", logged=True),
    Fault("training", (), None, ranks(2, "healthy.py", HOW=""), "two ranks train", quick=True),
    Fault("training-slowly", (), None, ranks(2, "healthy.py", HOW="slow"), "two ranks train, 5 steps a second"),
    Fault("training-3", (), None, ranks(3, "healthy.py", HOW=""), "three ranks train"),
    Fault("many-threads", (), None, ranks(2, "healthy.py", HOW="many-threads"), "250 threads in each rank"),
    Fault("idle", (), None, ranks(2, "healthy.py", HOW="idle"), "both ranks sleep after init"),
    Fault("in-a-group", (), None, ranks(2, "healthy.py", HOW="group"), "all_reduce in a group of its own"),
    Fault("torchrun-training", (), None,
          (torchrun("--standalone", "--nproc-per-node=2", script="healthy.py", HOW=""),), "torchrun trains", marks=2),
    Fault("starting-up", (), None,
          (rank(0, 2), rank(1, 2, "meet.py", MODE="slow-import", delay=2.0)), "rank 1 still imports torch", marks=2, settle=1.3),
    Fault("one-rank", (), None, ranks(1, "healthy.py", HOW=""), "a job of one rank"),
    Fault("relaunch-that-works", (), None, (Part("relaunch.py", (), {"HOW": "plain", "MASTER_PORT": PORT}),),
          "a re-run script that reaches training", marks=2, settle=3.0),
    Fault("beside-another-job", (), None,
          (*ranks(2, "healthy.py", HOW="", MASTER_PORT=PORT), *ranks(2, "healthy.py", HOW="slow", MASTER_PORT="{other}")),
          "two jobs on one node"),
    Fault("one-rank-first", (), None, ranks(2, "healthy.py", HOW="one-rank-first"), "rank 0 prepares data, the other waits in a barrier"),
    Fault("training-on-2-hosts", (), None, on_hosts("healthy.py", HOW=""), "two hosts train"),
)  # fmt: skip


@contextmanager
def running(
    fault: Fault, logs: Path | None = None, seconds: float = 90.0, under: tuple[str, ...] = ()
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The fault's processes once they stand in their hang; all of them and their children are killed at the end.

    What the job's parts print goes into `logs`, one `part<number>.log` each. `under` is a command,
    `ddp-doctor watch --`, that runs one which starts all processes of the job.
    """
    folder = Path(tempfile.mkdtemp(prefix="ddp-doctor-live-"))
    marks = folder / "ready"
    marks.mkdir()
    values = {"port": str(free_port()), "other": str(free_port()), "folder": str(folder)}
    started: list[subprocess.Popen[bytes]] = []
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        cleanup.callback(_kill, started, folder / "orphan")
        log = cleanup.enter_context(open(folder / "train.log", "wb")) if fault.logged and logs is None else None
        stage = Stage(folder) if fault.needs_nccl else None
        hosts = cleanup.enter_context(_hosts(fault, values)) if any(part.host for part in fault.parts) else {}
        together: list[dict[str, object]] = []
        for number, part in enumerate(fault.parts):
            command = [sys.executable, *(each.format(**values) for each in part.module), str(HANGS / part.script)]
            command += [each.format(**values) for each in part.arguments]
            variables = {name: value.format(**values) for name, value in part.variables.items()}
            output = str(logs / f"part{number}.log") if logs and not part.bystander else log.name if log else os.devnull
            if stage is not None and part.nccl:
                variables |= _with_gpus(part, stage, len(started) + len(together))
            if part.orphan:
                command = ["bash", "-c", 'echo $$ > "$0"; exec "$@"', str(folder / "orphan"), *command]
                command = ["bash", "-c", '"$@" & disown', "bash", *command]
            argv = [*_on(part, hosts, folder), *command]
            environ = _environment() | {"READY": str(marks)} | variables
            if under and not (part.bystander or part.orphan):
                together.append({"delay": part.delay, "argv": argv, "environ": environ, "output": output})
                continue
            time.sleep(part.delay)
            started.append(_start(argv, environ, log or cleanup.enter_context(open(output, "wb"))))
        if together:
            starter = [sys.executable, str(HANGS / "start_all.py"), json.dumps(together)]
            silent = cleanup.enter_context(open(os.devnull, "wb"))
            started.append(_start([*under, *starter], _environment(), silent))
        wanted = len(fault.parts) if fault.marks is None else fault.marks
        deadline = time.monotonic() + seconds
        while len(list(marks.iterdir())) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{fault.name}: {len(list(marks.iterdir()))} of {wanted} processes came to their place"
                )
            time.sleep(0.05)
        time.sleep(fault.settle)
        yield started


def _with_gpus(part: Part, stage: Stage, number: int) -> dict[str, str]:
    """What loads the described node's driver into a rank."""
    node = healthy(8)
    if part.hangs:
        node = with_rules(node, *(Rule(call=call, hang=True) for call in part.hangs))
    size = int(part.variables["WORLD_SIZE"])
    return {**stage.environ(node, f"rank{number}", size), "LIBNCCL": str(libnccl(part.nccl))}


def _start(argv: list[str], environ: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )


@contextmanager
def _hosts(fault: Fault, values: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Two network namespaces joined by a cable, `A` and `B` -> their names."""
    names = {host: f"ddpl{os.getpid()}{host}" for host in "AB"}

    def ip(command: str) -> None:
        words = [names.get(word, word) for word in command.format(**values).split()]
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        for host in "AB":
            ip(f"netns add {host}")
        ip("link add vA netns A type veth peer name vB netns B")
        for host, address in (("A", "10.77.0.1/24"), ("B", "10.77.0.2/24")):
            ip(f"-n {host} addr add {address} dev v{host}")
            ip(f"-n {host} link set lo up")
            ip(f"-n {host} link set v{host} up")
        for command in fault.network:
            ip(command)
        for host in "AB":
            _await_carrier(names[host], f"v{host}")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _await_carrier(host: str, link: str) -> None:
    """The kernel tells of a carrier a moment after both ends are up."""
    deadline = time.monotonic() + 5
    show = ["ip", "-n", host, "-br", "link", "show", link]
    while " UP " not in subprocess.run(show, check=True, capture_output=True, text=True).stdout:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{link} has no carrier")
        time.sleep(0.02)


def _on(part: Part, hosts: Mapping[str, str], folder: Path) -> list[str]:
    """The start of a command that runs on a host of its own, with its name and its /etc/hosts."""
    if part.contained:
        return ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"]
    if not part.host:
        return []
    known = folder / f"hosts-{part.host}"
    known.write_text("\n".join(("127.0.0.1 localhost", *part.knows, "")))
    prepare = f'hostname host{part.host}; mount --bind {known} /etc/hosts; exec "$@"'
    return ["ip", "netns", "exec", hosts[part.host], "unshare", "--uts", "--mount", "bash", "-c", prepare, "bash"]


def a_member(fault: Fault, started: list[subprocess.Popen[bytes]]) -> int:
    """The PID of the first process of the job that still lives."""
    for part, process in zip(fault.parts, started, strict=True):
        if not part.bystander and process.poll() is None:
            return process.pid
    raise AssertionError(f"{fault.name}: no process of the job is left")


def _environment() -> dict[str, str]:
    """This shell's, without what a launcher may have left in it."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "TORCHELASTIC", "GROUP_", "ROLE_", "SLURM_", "OMPI_")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def _kill(started: list[subprocess.Popen[bytes]], orphan: Path) -> None:
    """Kill each part with its descendants, also those that left its session (torchrun's workers do)."""
    pids = [pid for process in started for pid in (*descendants(process.pid), process.pid)]
    pids += [int(orphan.read_text())] if orphan.exists() else []
    segments = {segment for pid in pids for segment in _segments(pid)}
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what outlived its parent
        except ProcessLookupError:
            pass
    for process in started:
        process.wait()
    for segment in segments:
        Path(segment).unlink(missing_ok=True)


def _segments(pid: int) -> set[str]:
    """The shared memory of NCCL's that a killed rank would leave behind."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()
    return {line.split()[-1] for line in lines if "/dev/shm/nccl-" in line and "(deleted)" not in line}


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path("/proc", entry, "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    found, ahead = [], [pid]
    while ahead:
        children = parents.get(ahead.pop(), [])
        found += children
        ahead += children
    return found
