"""Reads a training script without running it: source text in, facts about how it starts its ranks out.

The script is walked once for each of a few imagined ranks of one job (two nodes of four devices, or as many ranks as the
code itself names). What one rank calls and another does not is then a plain comparison of two lists.
"""

from __future__ import annotations

import ast
import io
import posixpath
import re
import tokenize
from collections.abc import Callable

import msgspec

from ddp_doctor.facts.script import KINDS, ScriptFact, ScriptRead
from ddp_doctor.interpret.script.notebook import Notebook, read_notebook
from ddp_doctor.interpret.script.process import DEVICES, NODES, Process, ThreadRun, events
from ddp_doctor.interpret.script.show import show
from ddp_doctor.interpret.script.source import Module, parse
from ddp_doctor.interpret.script.values import Function, Instance, UserClass, Val
from ddp_doctor.interpret.script.walk import OutOfSteps, Sources, Stop, Walker
from ddp_doctor.model import Absent, Fact, Facts

Load = Callable[[str], "str | None"]
WORLD_LITERAL = re.compile(r"""(?:world_size|nprocs|WORLD_SIZE["']\]?)\s*[=,:]\s*["']?(\d{1,4})\b""")
RANK_LITERAL = re.compile(r"""rank\w*\s*(?:\(\s*\))?\s*(?:==|!=|<=|>=|<|>)\s*(\d{1,3})\b""")
TOUCHES_RANKS = re.compile(r"torch|lightning|accelerate|deepspeed|transformers")
"""Without one of these words in it, or in a file beside it, a script starts no ranks."""
TOUCHES_GROUPS = re.compile(
    r"distributed|accelerat|lightning|[Ff]abric|deepspeed|\bdist\b|local_rank|global_rank|world_size"
)
RANKS_AT_MOST = 6


def read_script(path: str, text: str, load: Load | None = None) -> list[Fact]:
    """What a script shows. `load` gives the text of a file beside the script by its relative path, or None.

    A script that cannot be parsed yields one `ScriptRead` with the reason.
    """
    lines = text.count("\n") + 1
    if "\0" in text:
        return [ScriptRead(source=path, path=path, lines=lines, error="it holds NUL bytes, so it is no Python text")]
    try:
        module = parse(path, text, "__main__", posixpath.basename(path))
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        return [ScriptRead(source=where, path=path, lines=lines, error=_why(error, text), line=error.lineno)]
    except ValueError as error:
        return [ScriptRead(source=path, path=path, lines=lines, error=str(error))]
    sources = _sources(module, load)
    if not TOUCHES_RANKS.search(text) and not sources.any_beside():
        return [ScriptRead(source=path, path=path, lines=lines)]
    walkers, complete = _walk(sources)
    facts = show(walkers)
    distributed = any(
        process.inits or process.launches or process.threads or any(True for _ in events(process.trace))
        for process in walkers[0].processes
    )
    read = ScriptRead(source=path, path=path, lines=lines, complete=complete, distributed=distributed)
    return [read, *(_sourced(fact) for fact in facts)]


def script_facts(path: str, content: bytes, load: Load | None = None) -> Facts:
    """What a script shows, as facts to judge: what was looked for and is not there, and what could not be read.

    The text is decoded as Python does, by its byte order mark or coding line.
    """
    found: list[Fact]
    try:
        if path.endswith(".ipynb"):
            found = _of_notebook(read_notebook(path, content), load)
        else:
            found = read_script(path, decoded(content), load)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        found = [ScriptRead(source=path, path=path, error=f"its text cannot be decoded: {error}")]
    except ValueError as error:
        found = [ScriptRead(source=path, path=path, error=str(error))]
    read = found[0]
    assert isinstance(read, ScriptRead)
    if read.error:
        return Facts(found, _unread(read, read.error, "mend it so that `python -m py_compile` accepts it"))
    if not read.complete:
        return Facts(
            found, _unread(read, "it is too large to be followed to its end", "name the file that starts the ranks")
        )
    return Facts(found, (), [kind.kind() for kind in KINDS])


def _of_notebook(notebook: Notebook, load: Load | None) -> list[Fact]:
    """What the code cells of a notebook show, each line at its place in its cell."""
    read, *facts = read_script(notebook.path, notebook.text, load)
    assert isinstance(read, ScriptRead)
    if read.line is not None:
        path, line = notebook.place(read.line)
        error = read.error.replace(f"line {read.line} ", f"{path.removeprefix(notebook.path).strip()} line {line} ", 1)
        read = msgspec.structs.replace(read, source=f"{path}:{line}", error=error, line=line)
    return [read, *(_sourced(notebook.fact(fact)) for fact in facts if isinstance(fact, ScriptFact))]


def decoded(content: bytes) -> str:
    """The text of a Python file; raises what a wrong or unknown encoding raises."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def _unread(read: ScriptRead, reason: str, how_to_get: str) -> list[Absent]:
    return [
        Absent(kind=kind.kind(), status="absent", reason=f"{read.path}: {reason}", how_to_get=how_to_get)
        for kind in KINDS
    ]


def _sourced(fact: ScriptFact) -> Fact:
    return msgspec.structs.replace(fact, source=fact.at.source)


def _why(error: SyntaxError, text: str) -> str:
    line = text.split("\n")[error.lineno - 1].strip() if error.lineno and error.lineno <= text.count("\n") + 1 else ""
    if line.startswith(("%", "!")):
        return f"line {error.lineno} is a notebook command, not Python: export the notebook as a script first"
    if re.match(r"print\s+[^(=]", line) or re.match(r"except\s+\w+\s*,\s*\w+\s*:", line):
        return f"line {error.lineno} is Python 2: {error.msg}"
    return f"line {error.lineno} is no Python this reader knows: {error.msg}"


def _sources(module: Module, load: Load | None) -> Sources:
    folder = posixpath.dirname(module.path)

    def beside(relative: str) -> Module | None:
        found = load(relative) if load is not None else None
        if found is None:
            return None
        name = relative.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        try:
            return parse(posixpath.join(folder, relative), found, name, relative)
        except (SyntaxError, ValueError):
            return None

    return Sources(module, beside)


def _walk(sources: Sources) -> tuple[list[Walker], bool]:
    text = sources.main.text
    world, ranks = _job(text)
    walkers: list[Walker] = []
    complete = True
    reached: frozenset[ast.AST] = frozenset()
    for rank in ranks:
        devices = DEVICES if world > DEVICES else world
        process = Process(("main",), "launcher", rank, rank % devices, rank // devices, world)
        walker = Walker(sources, process, children=not walkers)
        walkers.append(walker)
        try:
            walker.run_main()
            for function, how, spot in walker.handlers:
                if how.startswith("FastAPI") and isinstance(function.node, ast.AsyncFunctionDef):
                    continue
                _run_handler(walker, function, how, spot)
            reached = reached or frozenset(walker.visited)
            _run_entries(walker, reached)
        except OutOfSteps:
            complete = False
        except RecursionError:
            complete = False
        if not complete or not (TOUCHES_GROUPS.search(text) or sources.any_beside()):
            break
    if not complete:
        del walkers[1:]  # ranks that were followed to different lines cannot be compared
    return walkers, complete


def _run_handler(walker: Walker, function: Function, how: str, spot: tuple[Module, ast.AST]) -> None:
    run = ThreadRun(spot, f"{how} handler", function.name, True, spot, handler=True)
    walker.frames = []
    walker.as_thread(run, lambda: walker.run_entry(function, []))


def _job(text: str) -> tuple[int, list[int]]:
    """How many ranks to imagine, and which of them to follow."""
    sizes = [int(found) for found in WORLD_LITERAL.findall(text)]
    sizes = [size for size in sizes if 1 < size <= 64]
    world = min(sizes) if sizes else NODES * DEVICES
    named = [int(found) for found in RANK_LITERAL.findall(text)]
    extra = [rank for rank in dict.fromkeys(named) if rank < world]
    ranks = list(dict.fromkeys([0, 1, min(DEVICES, world - 1), world - 1, *extra]))
    return world, ranks[:RANKS_AT_MOST]


def _run_entries(walker: Walker, reached: frozenset[ast.AST]) -> None:
    """Walk what the script defines and never calls: a library's functions, a framework's hooks.

    `reached` are the functions the first rank got to; all ranks must walk the same others.
    """
    module = walker.sources.main
    main = walker.process

    def as_entry(name: str, node: ast.AST, body: Callable[[], object]) -> None:
        entry = Process(("entry", name, id(node)), "unknown", main.rank, main.local, main.node, main.world)
        entry.initialized = entry.named = True
        walker.as_process(entry, body)

    def run(name: str, function: Function) -> None:
        if function.node in reached or not walker.sources.interesting(function.node, module):
            return
        as_entry(name, function.node, lambda: walker.run_entry(function, []))

    for name, value in list(walker.main_scope.names.items()):
        if isinstance(value, Function) and value.module is module:
            run(name, value)
        elif isinstance(value, UserClass) and value.module is module:
            _run_methods(walker, value, run, as_entry)


def _run_methods(
    walker: Walker,
    kind: UserClass,
    run: Callable[[str, Function], None],
    as_entry: Callable[[str, ast.AST, Callable[[], object]], None],
) -> None:
    holder: list[Val] = []

    def construct() -> None:
        try:
            holder.append(walker.call(kind, [], {}, kind.node))
        except Stop:
            return

    as_entry(kind.node.name, kind.node, construct)
    instance = holder[0] if holder and isinstance(holder[0], Instance) else Instance(kind)
    for name, member in list(kind.scope.names.items()):
        if isinstance(member, Function) and name != "__init__":
            run(f"{kind.node.name}.{name}", member.bind(instance, kind))
        elif isinstance(member, UserClass):
            _run_methods(walker, member, run, as_entry)
