"""Reading of scripts: what is followed, what is not judged, and text that is no Python."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from script_cases import judged, lint_text

from ddp_doctor.facts.script import (
    ConditionalCollective,
    GroupCreation,
    MaskAssignment,
    PortChoice,
    ScriptRead,
    SpawnCall,
    ThreadedStart,
)
from ddp_doctor.interpret.script import read_script, script_facts

START = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"


def collectives(body: str, before: str = START) -> list[tuple[int, str]]:
    facts = lint_text(before + body)
    return [(fact.at.line, fact.call) for fact in facts[ConditionalCollective]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(:\n    pass\n", "line 1"),
        ("print 'hello'\n", "Python 2"),
        ("try:\n    pass\nexcept ValueError, e:\n    pass\n", "Python 2"),
        ("import torch\n%matplotlib inline\n", "notebook command"),
        ("!pip install torch\n", "notebook command"),
        ("x = 1\0\n", "NUL"),
        ("(" * 3000 + ")" * 3000, ""),
        ("x = " + "-" * 50_000 + "1\n", ""),
    ],
)
def test_text_that_does_not_parse_is_a_reading_with_a_reason(text: str, reason: str) -> None:
    facts = lint_text(text)
    read = facts.first(ScriptRead)
    assert read is not None and len(facts) == 1
    assert read.error and reason in read.error
    assert {judgement.outcome.status for judgement in judged(facts) if judgement.check.id == "DDP601"} == {"unknown"}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00bad", b"# coding: no-such-code\nx = 1\n", b"x = '\xe9'\n"])
def test_bytes_that_cannot_be_decoded_are_a_reading_with_a_reason(content: bytes) -> None:
    read = script_facts("train.py", content).first(ScriptRead)
    assert read is not None and read.error


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "\ufeffx = 1\n", "# -*- coding: latin-1 -*-\nx = 'é'\n"])
def test_little_or_odd_text_is_read(text: str) -> None:
    (read,) = read_script("train.py", text)
    assert isinstance(read, ScriptRead) and not read.error and read.complete


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from torch.distributed import barrier", "barrier()"),
        ("from torch.distributed import barrier as wait", "wait()"),
        ("from torch import distributed", "distributed.barrier()"),
        ("import torch.distributed", "torch.distributed.barrier()"),
        ("from functools import partial\nsync = partial(dist.barrier)", "sync()"),
        ("sync = lambda: dist.barrier()", "sync()"),
        ("sync = dist.barrier", "sync()"),
        (
            "class C:\n    def go(self): self.stop()\n    @staticmethod\n    def stop(): dist.barrier()\nc = C()",
            "c.go()",
        ),
        (
            "def wrap(f):\n    def inner(*a):\n        return f(*a)\n    return inner\n@wrap\ndef go(): dist.barrier()",
            "go()",
        ),
        ("async def go(): dist.barrier()\nimport asyncio", "asyncio.run(go())"),
        ("calls = {'sync': dist.barrier}", "calls['sync']()"),
    ],
)
def test_a_collective_is_found_behind_any_name(imports: str, call: str) -> None:
    assert [name for _, name in collectives(f"{imports}\nif rank == 0:\n    {call}\n")] == ["barrier"]
    assert collectives(f"{imports}\n{call}\n") == []


@pytest.mark.parametrize(
    "condition",
    [
        "rank == 0", "not rank", "rank in (0,)", "rank < 1", "0 == rank", "rank == dist.get_world_size() - 1", "rank % 2 == 0",
        "dist.get_rank() == 0 and True", "torch.ones(1).item() and rank == 0", "bool(rank == 0)", "(lambda: rank)() == 0",
        "__import__('os').environ['RANK'] == '0'", "str(rank) == '0'",
    ],
)  # fmt: skip
def test_a_condition_on_the_rank_is_seen_in_any_form(condition: str) -> None:
    assert collectives(f"if {condition}:\n    dist.barrier()\n") == [(6, "barrier")]


@pytest.mark.parametrize(
    "body",
    [
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.barrier()\n",
        "if rank != 0:\n    dist.barrier()\nif rank == 0:\n    dist.barrier()\n",
        "if dist.get_world_size() > 1:\n    dist.barrier()\n",
        "if dist.is_initialized():\n    dist.barrier()\n",
        "import sys\nif len(sys.argv) > 1:\n    dist.barrier()\n",
        "import sys\nif rank == int(sys.argv[1]):\n    dist.barrier()\n",
        "for step in range(10):\n    if rank == 0 and step % 2 == 0:\n        continue\ndist.barrier()\n",
        "for step in range(10):\n    dist.barrier()\n    if rank == 0:\n        continue\n    print('other')\n",
        "with open('x') as f:\n    if rank == 0:\n        print(f)\ndist.barrier()\n",
        "try:\n    if rank == 0:\n        raise ValueError\nexcept ValueError:\n    pass\ndist.barrier()\n",
        "g = dist.new_group([0])\nif rank == 0:\n    dist.barrier(g)\n",
        "def f(group):\n    if rank == 0:\n        dist.barrier(group)\nf(some_group())\n",
        "import threading\nb = threading.Barrier(2)\nif rank == 0:\n    b.wait()\n",
        "if rank == 0:\n    dist.send(torch.ones(1), 1)\nelif rank == 1:\n    dist.recv(torch.ones(1), 0)\n",
        "x = [1] if rank == 0 else [2]\ndist.broadcast_object_list(x)\nif x[0] == 1:\n    dist.barrier()\n",
    ],
)
def test_what_every_rank_reaches_is_silent(body: str) -> None:
    assert collectives(body) == []


def test_a_while_loop_left_by_one_rank_is_seen() -> None:
    body = "while True:\n    dist.all_reduce(torch.ones(1))\n    if rank == 0:\n        break\n"
    assert len(collectives(body)) == 1


def test_members_that_depend_on_the_rank_are_compared() -> None:
    facts = lint_text(f"{START}g = dist.new_group([rank, 5])\n")
    (made,) = facts[GroupCreation]
    assert (made.at.line, made.fault, made.proven) == (5, "different-members", True)
    assert lint_text(f"{START}g = dist.new_group([rank, 5], use_local_synchronization=True)\n")[GroupCreation] == ()
    assert lint_text(f"{START}g = dist.new_group([rank])\n")[GroupCreation] == (), "measured: a group of oneself works"
    assert lint_text(f"{START}gs = [dist.new_group([i]) for i in range(dist.get_world_size())]\n")[GroupCreation] == ()


def test_a_file_beside_the_script_is_followed_and_quoted() -> None:
    files = {
        "lib/__init__.py": "from lib.sync import wait\n",
        "lib/sync.py": "import torch.distributed as d\ndef wait():\n    d.barrier()\n",
    }
    text = f"{START}from lib import wait\nif rank == 0:\n    wait()\n"
    (fact,) = (each for each in read_script("src/train.py", text, files.get) if isinstance(each, ConditionalCollective))
    assert fact.inner is not None
    assert (fact.at.source, fact.inner.source) == ("src/train.py:7", "src/lib/sync.py:3")
    assert not any(isinstance(each, ConditionalCollective) for each in read_script("src/train.py", text))


def test_a_diff_names_no_absolute_path_since_patch_refuses_them() -> None:
    text = f"{START}if rank == 0:\n    dist.barrier()\n"
    for path, named in (("/home/me/train.py", "train.py"), ("src/train.py", "src/train.py")):
        (fact,) = (each for each in read_script(path, text) if isinstance(each, ConditionalCollective))
        assert (fact.rewrite or "").startswith(f"--- {named}\n+++ {named}\n")
        assert fact.at.path == path


def test_windows_line_ends_survive_a_rewrite() -> None:
    text = f"{START}if rank == 0:\n    dist.barrier()\n".replace("\n", "\r\n")
    (fact,) = (each for each in read_script("train.py", text) if isinstance(each, ConditionalCollective))
    assert "+dist.barrier()\r\n" in (fact.rewrite or "")


def test_a_circle_of_imports_and_calls_ends() -> None:
    files = {"a.py": "import b\ndef f(): b.g()\n", "b.py": "import a\ndef g(): a.f()\n"}
    text = f"{START}import a\na.f()\ndef again(n): return again(n - 1)\nagain(5)\n"
    read = read_script("train.py", text, files.get)[0]
    assert isinstance(read, ScriptRead) and read.complete


def test_one_thread_per_process_is_told_apart_from_threads_as_ranks() -> None:
    one = (
        "import threading, os\nimport torch.distributed as dist\n"
        "def f(r): dist.init_process_group('gloo', rank=r, world_size=2)\n"
    )
    (outside,) = lint_text(f"{one}threading.Thread(target=f, args=(int(os.environ['RANK']),)).start()\n")[ThreadedStart]
    assert (outside.rank_from, outside.proven) == ("environment", False)
    (ranks,) = lint_text(f"{one}for r in range(2): threading.Thread(target=f, args=(r,)).start()\n")[ThreadedStart]
    assert (ranks.rank_from, ranks.ranks, ranks.proven) == ("each-thread", (0, 1), True)
    (guess,) = lint_text(f"{one}for r in range(N): threading.Thread(target=f, args=(r,)).start()\n")[ThreadedStart]
    assert (guess.rank_from, guess.proven) == ("each-thread", False)
    assert lint_text(f"{one}threading.Thread(target=f, args=(0,))\n")[ThreadedStart] == (), "it is never started"


def test_a_launcher_of_one_process_in_a_thread_is_none() -> None:
    text = (
        "import threading, pytorch_lightning as pl\n"
        "def f():\n    pl.Trainer({}).fit(None)\n"
        "threading.Thread(target=f).start()\n"
    )
    for options in ("devices=1, strategy='ddp'", "devices=1", ""):
        assert lint_text(text.format(options))[ThreadedStart] == ()
    for options in (
        "devices=2, strategy='ddp'",
        "strategy='ddp'",
        "devices=[0, 1]",
        "strategy=pl.strategies.DDPStrategy()",
    ):
        (start,) = lint_text(text.format(options))[ThreadedStart]
        assert (start.what, start.launcher) == ("launcher", "Trainer.fit")


def test_the_guard_is_seen_through_functions() -> None:
    text = "import torch.multiprocessing as mp\ndef w(i): pass\ndef main():\n    mp.spawn(w, nprocs=2)\n"
    (bare,) = lint_text(f"{text}main()\n")[SpawnCall]
    (guarded,) = lint_text(f"{text}if __name__ == '__main__':\n    main()\n")[SpawnCall]
    assert (bare.guarded, guarded.guarded) == (False, True)
    assert lint_text(text)[SpawnCall] == (), "nothing calls it here"


def test_a_port_from_the_parent_is_no_choice_of_the_child() -> None:
    text = (
        "import os, random, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def w(rank):\n    dist.init_process_group('gloo', rank=rank, world_size=2)\n"
        "if __name__ == '__main__':\n"
        "    os.environ['MASTER_PORT'] = str(random.randint(1024, 60000))\n    mp.spawn(w, nprocs=2)\n"
    )
    assert lint_text(text)[PortChoice] == ()


def test_importing_torch_uses_no_gpu() -> None:
    (mask,) = lint_text("import os, torch\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n")[MaskAssignment]
    assert (mask.after, mask.value, mask.devices) == (None, "'1'", 1)


def test_the_standard_library_and_torch_are_read_without_a_crash() -> None:
    import torch

    roots = [Path(sys.modules["threading"].__file__ or "").parent, Path(torch.__file__).parent / "distributed"]
    files = [path for root in roots for path in sorted(root.glob("*.py"))][::3]
    assert len(files) > 60
    for path in files:
        read = script_facts(str(path), path.read_bytes()).first(ScriptRead)
        assert read is not None and not read.error, path


def test_torch_itself_is_found_healthy() -> None:
    import torch

    root = Path(torch.__file__).parent / "distributed"
    files = [path for folder in ("elastic", "checkpoint", "optim", "_shard") for path in (root / folder).rglob("*.py")]
    for path in sorted(files)[::2]:
        facts = script_facts(str(path), path.read_bytes())
        loud = [
            finding.summary
            for judgement in judged(facts)
            for finding in judgement.findings
            if finding.severity.value != "note"
        ]
        assert loud == [], path


def test_a_long_script_is_read_to_its_end() -> None:
    functions = "".join(
        f"def step{i}(x, model, loader):\n"
        f"    total = torch.zeros(1)\n"
        f"    for batch in loader:\n"
        f"        loss = model(batch.cuda(local_rank)).sum() * {i}\n"
        f"        loss.backward()\n"
        f"        total += loss.detach()\n"
        f"        if rank == 0 and {i} % 2 == 0:\n"
        f"            print('step', {i}, total.item())\n"
        f"    dist.all_reduce(total)\n"
        f"    return total / dist.get_world_size()\n\n"
        for i in range(180)
    )
    calls = "".join(f"step{i}(1, None, [])\n" for i in range(180))
    text = f"{START}local_rank = 0\n{functions}{calls}if rank == 0:\n    dist.barrier()\n"
    assert text.count("\n") > 2000
    started = time.process_time()
    facts = lint_text(text)
    assert time.process_time() - started < 3
    read = facts.first(ScriptRead)
    assert read is not None and read.complete
    assert [fact.call for fact in facts[ConditionalCollective]] == ["barrier"]


def notebook(*cells: str, language: str = "python") -> bytes:
    """A notebook that begins with a cell of text."""
    written = [{"cell_type": "code", "source": cell.splitlines(keepends=True), "outputs": []} for cell in cells]
    told = {
        "cells": [{"cell_type": "markdown", "source": "# Training"}, *written],
        "metadata": {"language_info": {"name": language}},
        "nbformat": 4,
    }
    return json.dumps(told).encode()


def test_a_notebook_is_read_by_its_code_cells() -> None:
    commands = "%matplotlib inline\n!pip install torch\nfiles = !ls\nx = (7\n % 3)\nif x:\n    %time\nprint?\n"
    shell = "%%bash\nif true; then\n  ls\nfi\n"
    facts = script_facts(
        "a/train.ipynb", notebook(commands, shell, START, "if rank == 0:\n    dist.barrier()\nprint(1)\n")
    )
    read = facts.first(ScriptRead)
    assert read is not None and not read.error and read.complete
    (found,) = facts[ConditionalCollective]
    assert (found.at.source, found.source, found.rewrite) == ("a/train.ipynb cell 5:2",) * 2 + (None,)
    assert found.condition is not None and found.condition.source == "a/train.ipynb cell 5:1"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "no notebook"),
        (b"[1]", "no list of cells"),
        (b"[" * 100_000, "nested too deeply"),
        (notebook("using Flux", language="julia"), "its language is julia"),
        (notebook(), "no code cell"),
        (notebook("x = 1\n", "y = 2\ndef f(:\n"), "cell 3 line 2 is no Python"),
    ],
)
def test_what_is_no_notebook_that_can_be_read_is_a_reading_with_a_reason(content: bytes, reason: str) -> None:
    facts = script_facts("train.ipynb", content)
    read = facts.first(ScriptRead)
    assert read is not None and reason in read.error and len(facts) == 1
