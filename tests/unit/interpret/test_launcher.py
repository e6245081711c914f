"""Which launcher is there, on values."""

from __future__ import annotations

import pytest
from launching import meant, tree, variables

from ddp_doctor.facts.launch import Ancestor, Launcher
from ddp_doctor.interpret.launcher import number, program, started_by, tasks_per_node
from ddp_doctor.model import Facts


def launchers(environ: dict[str, str], *commands: str) -> dict[str, Launcher]:
    return {fact.name: fact for fact in meant(*variables(environ), *tree(*commands)) if isinstance(fact, Launcher)}


def test_malformed_numbers_are_none_and_never_raise() -> None:
    environ = {
        "RANK": "x",
        "WORLD_SIZE": "",
        "LOCAL_RANK": "1.5",
        "TORCHELASTIC_RUN_ID": "a",
        "SLURM_TASKS_PER_NODE": "(",
    }
    found = launchers(
        environ | {"SLURM_NODEID": "-7", "SLURM_PROCID": "\udcff"}, "python t.py", "pt_elastic", "systemd"
    )
    assert (found["torchrun"].rank, found["torchrun"].local_rank, found["torchrun"].world_size) == (None, None, None)
    assert (found["slurm"].rank, found["slurm"].local_world_size) == (None, None)


@pytest.mark.parametrize("text", ["x", "", None, "1.5", "9" * 5000])
def test_number_reads_what_int_reads(text: str | None) -> None:
    assert number(text) is None or text == "9" * 5000


def test_alive_is_unknown_without_the_process_tree() -> None:
    (launcher,) = [fact for fact in meant(*variables({"TORCHELASTIC_RUN_ID": "a"})) if isinstance(fact, Launcher)]
    assert launcher.alive is None


def test_nobody_waits_for_impossible_ranks() -> None:
    for rank in ("2", "-1", "x"):
        assert started_by(Facts(variables({"RANK": rank, "WORLD_SIZE": "2"}))) is None


def test_a_leftover_of_torchrun_starts_nobody() -> None:
    environ = {"TORCHELASTIC_RUN_ID": "a", "RANK": "0", "WORLD_SIZE": "2"}
    assert started_by(Facts([*variables(environ), *tree("ddp-doctor", "bash", "systemd")])) is None


def test_each_examined_process_has_its_own_launchers() -> None:
    from ddp_doctor.model import Subject

    one, two = Subject(host="a", pid=1), Subject(host="a", pid=2)
    facts = [*variables({"SLURM_PROCID": "0"}, subject=one), *variables({"PMI_RANK": "1"}, subject=two)]
    assert [(fact.subject.pid, fact.name) for fact in meant(*facts) if isinstance(fact, Launcher)] == [
        (1, "slurm"),
        (2, "mpi"),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("/usr/bin/python3.11", "-u", "-m", "torch.distributed.run", "x"), "torch.distributed.run"),
        (("python", "-X", "dev", "/venv/bin/torchrun"), "torchrun"),
        (("python",), "python"),
        (("bash", "-c", "torchrun x"), "bash"),
        ((), "comm"),
    ],
)
def test_program(arguments: tuple[str, ...], expected: str) -> None:
    assert program(Ancestor(depth=1, command="comm", arguments=arguments)) == expected


def test_tasks_per_node() -> None:
    assert tasks_per_node("4(x2),3") == (4, 4, 3)
    assert tasks_per_node("") == tasks_per_node("4(x") == ()
