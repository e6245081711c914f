"""The habits of the pack, held by tests: where a check lies, what it is called, what stands beside it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import ddp_doctor_checks
import pytest

import ddp_doctor
from ddp_doctor.interpret import Interpreter, interpret, interpreters
from ddp_doctor.model import Check, Confidence, Fact, Facts, Severity, Stage
from ddp_doctor.packs import Loaded, load_packs, page_of
from ddp_doctor.probes import probes_for_run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).parent
ENGINE = Path(ddp_doctor.__file__).parent
PACK = Path(ddp_doctor_checks.__file__).parent
AREAS = ddp_doctor_checks.AREAS
MOST_LINES = 120
QUESTIONS = {"first", "lacking"}
EXAMINED = {"torch", "pynvml"}
"""Modules that a worker is there to try out; all else it imports is the standard library."""
HEADINGS = ["What you see", "Why it hangs", "How ddp-doctor knows", "Fix", "False alarms", "References"]
PLACEHOLDER = re.compile(r"\b(DRAFT|TODO|FIXME|TBD|XXX)\b")

IDS: dict[str, dict[str, str]] = tomllib.loads((PACK / "ids.toml").read_text(encoding="utf-8"))
LOADED: Loaded = load_packs(third_party=False)
CHECKS: list[type[Check]] = sorted(LOADED.pack.checks, key=lambda check: check.id)
PROBES = (*probes_for_run(), *LOADED.pack.probes)
WORKERS = sorted((ENGINE / "workers").glob("*.py"))

each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
each_probe = pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
each_worker = pytest.mark.parametrize("worker", WORKERS, ids=lambda worker: worker.stem)


def source_of(check: type[Check]) -> Path:
    return Path(inspect.getfile(check))


def test_of(check: type[Check]) -> Path:
    path = source_of(check)
    return TESTS / "unit" / path.parent.name / f"test_{path.name}"


test_of.__test__ = False  # type: ignore[attr-defined]


def test_ids_and_names_are_given_once() -> None:
    given = [pair for area in IDS.values() for pair in area.items()]
    ids, names = [id for id, _ in given], [name for _, name in given]
    assert len(set(ids)) == len(ids)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("area", AREAS)
def test_ids_of_an_area_share_its_hundred(area: str) -> None:
    hundred = AREAS.index(area) + 1
    assert [id for id in IDS[area] if not re.fullmatch(rf"DDP{hundred}\d\d", id)] == []
    assert list(IDS[area]) == sorted(IDS[area])


def test_no_two_checks_share_an_id() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)


def test_the_engine_works_without_any_check() -> None:
    from ddp_doctor.examine import examine
    from ddp_doctor.packs import Pack

    report = examine("run", Loaded(pack=Pack()))
    assert (report.verdict.status, report.findings, report.outcomes) == ("unknown", (), ())


@each_check
def test_id_name_and_place_agree(check: type[Check]) -> None:
    path = source_of(check)
    area = path.parent.name
    assert path.parent.parent == PACK
    assert IDS[area].get(check.id) == check.name
    assert path.stem == check.name.replace("-", "_")


@each_check
def test_a_file_holds_one_check(check: type[Check]) -> None:
    assert [other.name for other in CHECKS if other.__module__ == check.__module__] == [check.name]


@each_check
def test_a_check_introduces_itself(check: type[Check]) -> None:
    module = inspect.getdoc(importlib.import_module(check.__module__)) or ""
    assert module.startswith(f"{check.id}: ")
    assert check.title and not check.title.endswith(".")
    assert check.acts_at and all(isinstance(stage, Stage) for stage in check.acts_at)


@each_check
def test_a_check_is_short(check: type[Check]) -> None:
    source = source_of(check).read_text(encoding="utf-8")
    words = [
        node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "told" and node.end_lineno
    ]  # its words about logs are data
    assert source.count("\n") - sum(words) <= MOST_LINES, "a fact or an interpreter is missing"


@each_check
def test_nothing_is_left_to_fill_in(check: type[Check]) -> None:
    files = (source_of(check), source_of(check).with_suffix(".md"), test_of(check))
    found = {path.name: PLACEHOLDER.findall(path.read_text(encoding="utf-8")) for path in files if path.exists()}
    assert {name: words for name, words in found.items() if words} == {}


@each_check
def test_a_page_stands_beside_the_check(check: type[Check]) -> None:
    page = page_of(check)
    assert page, f"no page {source_of(check).with_suffix('.md').name}"
    lines = page.splitlines()
    assert lines[0] == f"# {check.id} {check.name} - {check.title}"
    severities, confidences, rest = next(line for line in lines[1:] if line).split(" - ", 2)
    assert first_words(severities) <= {severity.value for severity in Severity}
    assert first_words(confidences) <= {confidence.value for confidence in Confidence}
    assert re.fullmatch(r"needs: .+ - since \d+\.\d+", rest)
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS
    empty = [
        head for head, text in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", page, re.MULTILINE) if not text.strip()
    ]
    assert empty == []


def first_words(alternatives: str) -> set[str]:
    """`certain from stacks, likely from a log` -> {certain, likely}"""
    return {alternative.split()[0] for alternative in re.split(", | or ", alternatives)}


@each_check
def test_the_tests_show_a_hit_a_clear_and_an_unknown(check: type[Check]) -> None:
    path = test_of(check)
    assert path.exists()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {"hit", "clear", "unknown"} <= said
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert [test.name for test in tests if not asserts_something(test)] == []


def asserts_something(test: ast.FunctionDef) -> bool:
    """Whether it asserts, expects an exception, or calls a function of the test file that is there to assert."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Attribute) and node.attr == "raises")
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("assert_"))
        for node in ast.walk(test)
    )


def kinds_read(module_name: str) -> set[type[Fact]]:
    """Kinds that a module asks the facts for: `facts[Kind]`, `facts.first(Kind)`, `facts.lacking(Kind)`."""
    module = importlib.import_module(module_name)
    names: set[str] = set()
    for node in expressions(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
            names.add(node.slice.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUESTIONS:
            names.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
    found = (getattr(module, name, None) for name in names)
    return {kind for kind in found if isinstance(kind, type) and issubclass(kind, Fact)}


def expressions(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node outside annotations, where `list[Kind]` is a type and no question to the facts."""
    ahead: list[ast.AST] = [tree]
    while ahead:
        node = ahead.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                children = value if isinstance(value, list) else [value]
                ahead += [child for child in children if isinstance(child, ast.AST)]


def kinds_needed(check: type[Check]) -> set[type[Fact]]:
    needed = {kind for need in check.needs for kind in (need if isinstance(need, tuple) else (need,))}
    return needed | set(check.also_reads)


@each_check
def test_needs_names_every_kind_the_check_reads(check: type[Check]) -> None:
    assert check.needs, "without needs no probe runs for it, and it is always clear"
    assert all(issubclass(kind, Fact) for kind in kinds_needed(check))
    assert {kind.__name__ for kind in kinds_read(check.__module__) - kinds_needed(check)} == set()


@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda each: each.interpret.__module__.rpartition(".")[2])
def test_an_interpreter_names_every_kind_it_reads_and_gives(interpreter: Interpreter) -> None:
    assert interpreter.reads and interpreter.gives
    assert kinds_read(interpreter.interpret.__module__) <= set(interpreter.reads)
    assert interpret(Facts(), [interpreter]).absents == ()


def test_an_interpreter_that_fails_costs_only_what_it_would_have_told() -> None:
    def fails(facts: Facts) -> list[Fact]:
        raise ValueError("no such key")

    kind = next(all_kinds())
    broken = Interpreter(reads=(kind,), gives=(kind,), interpret=fails)
    (absent,) = interpret(Facts(), [broken]).lacking(kind)
    assert (absent.status, absent.reason) == ("crashed", "what it means could not be told: ValueError: no such key")


def test_what_explains_what_has_no_cycle() -> None:
    explains = {check.id: check.explains for check in CHECKS}
    known = {id for area in IDS.values() for id in area}
    assert {echo for echoes in explains.values() for echo in echoes} <= known
    for start in explains:
        assert start not in reached_from(start, explains), f"{start} explains itself"


def reached_from(start: str, explains: dict[str, tuple[str, ...]]) -> set[str]:
    reached: set[str] = set()
    ahead = list(explains[start])
    while ahead:
        echo = ahead.pop()
        if echo not in reached:
            reached.add(echo)
            ahead += explains.get(echo, ())
    return reached


@each_probe
def test_a_probe_says_which_facts_it_gives(probe: ddp_doctor.Probe) -> None:
    assert probe.gives
    assert all(isinstance(kind, type) and issubclass(kind, Fact) for kind in (*probe.gives, *probe.builds_on))
    assert not set(probe.gives) & set(probe.builds_on), "it would wait for itself"


def test_every_probe_gets_its_turn() -> None:
    """No two probes wait for each other's facts."""
    waiting = list(PROBES)
    while waiting:
        outstanding = {kind for probe in waiting for kind in probe.gives}
        still = [probe for probe in waiting if outstanding.intersection(probe.builds_on)]
        assert len(still) < len(waiting), [probe.name for probe in still]
        waiting = still


def test_probes_have_names_of_their_own() -> None:
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)


def all_kinds() -> Iterator[type[Fact]]:
    for path in sorted((ENGINE / "facts").glob("[a-z]*.py")):
        module = importlib.import_module(f"ddp_doctor.facts.{path.stem}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Fact) and value.__module__ == module.__name__:
                yield value


def test_only_the_command_line_prints() -> None:
    config = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    rules = config["tool"]["ruff"]["lint"]
    assert "T20" in rules["select"]
    excused = {glob for glob, codes in rules["per-file-ignores"].items() if "T20" in codes}
    shipped = {glob for glob in excused if glob.startswith(("ddp_doctor", "checks"))}
    assert shipped == {"ddp_doctor/workers/*", "ddp_doctor/cli/*"}


def test_kinds_of_facts_have_names_of_their_own() -> None:
    kinds = [kind.kind() for kind in all_kinds()]
    assert len(set(kinds)) == len(kinds)


@each_worker
def test_a_worker_runs_on_old_interpreters_and_alone(worker: Path) -> None:
    tree = ast.parse(worker.read_text(encoding="utf-8"), feature_version=(3, 8))
    roots = {
        (node.module or "." if isinstance(node, ast.ImportFrom) else name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    allowed = set(sys.stdlib_module_names) | EXAMINED
    assert roots <= allowed, "a worker is one file, run under any interpreter"
    if worker.stem != "guard":
        assert "main" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
