"""Mechanical rewrites of the user's code, as unified diffs. None where one is not known to be right."""

from __future__ import annotations

import ast
import builtins
import difflib
import itertools
from collections.abc import Container
from dataclasses import dataclass

from ddp_doctor.interpret.script.source import Module
from ddp_doctor.interpret.script.walk import words

GUARD = 'if __name__ == "__main__":'
SPAWN_IMPORT = "import torch.multiprocessing as mp"


@dataclass(frozen=True)
class Edit:
    """Replace lines `first` to `last` (1-based, inclusive); an insertion before `first` has `last = first - 1`."""

    first: int
    last: int
    lines: tuple[str, ...]


def diff(module: Module, edits: list[Edit]) -> str | None:
    """The edits as a unified diff of the file, or None where they collide or leave something that does not parse."""
    old = module.raw_lines
    new = list(old)
    ordered = sorted(edits, key=lambda edit: (edit.first, edit.last), reverse=True)
    for later, earlier in itertools.pairwise(ordered):
        if earlier.last >= later.first:
            return None
    for edit in ordered:
        new[edit.first - 1 : edit.last] = [line + module.newline for line in edit.lines]
    try:
        ast.parse("".join(new))
    except (SyntaxError, ValueError):
        return None
    lines = difflib.unified_diff(old, new, module.relative, module.relative)
    out = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return out or None


def statement(module: Module, node: ast.AST) -> ast.stmt | None:
    """The statement a node is part of."""
    current: ast.AST | None = node
    while current is not None and not isinstance(current, ast.stmt):
        current = module.parents.get(current)
    return current


def block(module: Module, node: ast.stmt) -> list[ast.stmt]:
    """The statements among which one stands."""
    parent = module.parents.get(node)
    for name in ("body", "orelse", "finalbody"):
        siblings = getattr(parent, name, None)
        if isinstance(siblings, list) and node in siblings:
            return siblings
    return []


def span(module: Module, node: ast.stmt) -> tuple[int, int] | None:
    """First and last line of a statement that has these lines to itself, decorators included."""
    first = min([node.lineno, *(part.lineno for part in getattr(node, "decorator_list", ()))])
    last = node.end_lineno or node.lineno
    line = module.lines[first - 1]
    if line[: node.col_offset].strip() or ";" in line or (";" in module.lines[last - 1]):
        return None
    return (first, last)


def indent(node: ast.stmt) -> str:
    return " " * node.col_offset


def _shifted(module: Module, first: int, last: int, by: str) -> tuple[str, ...] | None:
    """Lines moved to the right; None where a text spans lines, since moving it would change it."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and getattr(node, "lineno", 0) >= first:
            end = node.end_lineno or node.lineno
            if (
                end <= last
                and end > node.lineno
                and (isinstance(node, ast.JoinedStr) or isinstance(node.value, (str, bytes)))
            ):
                return None
    return tuple(by + line if line.strip() else line for line in module.lines[first - 1 : last])


# --- the main guard


def guard_edits(module: Module, top: ast.stmt, replaced: dict[int, Edit] | None = None) -> list[Edit] | None:
    """Put a top-level statement, and the plain statements after it, under the main guard."""
    body = module.tree.body
    if top not in body or isinstance(top, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return None
    start = body.index(top)
    rest = [top]
    for following in body[start + 1 :]:
        if isinstance(following, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            break
        rest.append(following)
    spans = [span(module, node) for node in rest]
    if any(part is None for part in spans):
        return None
    first = spans[0][0]  # type: ignore[index]
    last = spans[-1][1]  # type: ignore[index]
    lines = _shifted(module, first, last, "    ")
    if lines is None:
        return None
    return [Edit(first, last, (GUARD, *lines))]


def guarded(module: Module, top: ast.stmt | None) -> str | None:
    """The diff that puts a top-level statement under the main guard."""
    if top is None:
        return None
    edits = guard_edits(module, top)
    return diff(module, edits) if edits else None


def needs_guard(module: Module, node: ast.AST) -> ast.stmt | None:
    """The top-level statement that holds a node and is not the main guard."""
    current = statement(module, node)
    while current is not None and current not in module.tree.body:
        parent = module.parents.get(current)
        current = parent if isinstance(parent, ast.stmt) else statement(module, parent) if parent else None
    if isinstance(current, ast.If) and "__name__" in words(current.test):
        return None
    return current


# --- imports


def import_edit(module: Module, line: str) -> list[Edit]:
    """Add an import after the last one at the top of the file, unless it is there."""
    wanted = ast.unparse(ast.parse(line))
    for node in module.tree.body:
        if isinstance(node, ast.Import) and any(
            wanted == ast.unparse(ast.Import(names=[alias])) for alias in node.names
        ):
            return []
    last = 0
    for node in module.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            last = node.end_lineno or node.lineno
        elif last:
            break
    if not last and module.tree.body:
        first = module.tree.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            last = first.end_lineno or first.lineno
    return [Edit(last + 1, last, (line,))]


def _spawn_name(module: Module) -> tuple[str, list[Edit]]:
    """How the file can call torch.multiprocessing, and the import that this needs."""
    taken = False
    for node in module.tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch.multiprocessing" and alias.asname:
                    return (alias.asname, [])
                taken = taken or (alias.asname or alias.name) == "mp"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module == "torch" and alias.name == "multiprocessing":
                    return (alias.asname or alias.name, [])
                taken = taken or (alias.asname or alias.name) == "mp"
    if taken:
        return ("torch.multiprocessing", import_edit(module, "import torch.multiprocessing"))
    return ("mp", import_edit(module, SPAWN_IMPORT))


# --- threads to processes


@dataclass(frozen=True)
class ThreadLoop:
    """Threads of one origin: the statements that make, start and join them, and what each runs."""

    statements: list[ast.stmt]
    target: ast.expr
    args: list[ast.expr]
    keywords: list[ast.keyword]
    variable: str
    count: str


def threads_to_spawn(module: Module, made: ast.AST) -> tuple[str | None, tuple[str, ...]]:
    """Replace threads by processes: the diff where that is safe, and the lines that take the threads' place."""
    loop = _thread_loop(module, made)
    if loop is None:
        return (None, ())
    adapter, call = _spawn_call(module, loop)
    if call is None or not _can_be_imported(module, loop.target):
        return (None, ())
    name, imports = _spawn_name(module)
    line = f"{name}.{call}"
    shown = (*(edit.lines[0] for edit in imports), "", *adapter, GUARD, f"    {line}")
    if not _finds_all_it_uses(module, loop) or not _unused_after(module, loop):
        return (None, shown)
    first = loop.statements[0]
    spans = [span(module, node) for node in loop.statements]
    if any(part is None for part in spans):
        return (None, shown)
    top = needs_guard(module, first)
    edits = list(imports)
    for node, part in zip(loop.statements, spans, strict=True):
        assert part is not None
        new = (indent(first) + line,) if node is first else ()
        edits.append(Edit(part[0], part[1], new))
    if top is not None:
        moved = _guard_over(module, top, edits)
        if moved is None:
            return (None, shown)
        edits = moved
    if adapter:
        anchor = top if top is not None else _top_of(module, first)
        anchor_span = span(module, anchor) if anchor is not None else None
        if anchor_span is None:
            return (None, shown)
        edits = _insert_before(edits, anchor_span[0], (*adapter, "", ""))
    return (diff(module, edits), shown)


def _insert_before(edits: list[Edit], line: int, lines: tuple[str, ...]) -> list[Edit]:
    """Insert lines before one that an edit may already replace."""
    for index, edit in enumerate(edits):
        if edit.first == line and edit.last >= line:
            edits[index] = Edit(edit.first, edit.last, (*lines, *edit.lines))
            return edits
    return [*edits, Edit(line, line - 1, lines)]


def _top_of(module: Module, node: ast.stmt) -> ast.stmt | None:
    current: ast.AST | None = node
    while current is not None and current not in module.tree.body:
        current = module.parents.get(current)
    return current if isinstance(current, ast.stmt) else None


def _guard_over(module: Module, top: ast.stmt, edits: list[Edit]) -> list[Edit] | None:
    """The same edits with the top-level statement they belong to under the main guard."""
    if isinstance(top, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        callers = [node for node in module.tree.body if isinstance(node, (ast.Expr, ast.Assign)) and _calls(node)]
        inner = [node for node in callers if top.name in words(node) or not _defines(module, node)]
        chosen = next((node for node in inner if top.name in words(node)), None)
        if chosen is None:
            return edits if not callers else None
        more = guard_edits(module, chosen)
        return None if more is None else [*edits, *more]
    whole = guard_edits(module, top)
    if whole is None:
        return None
    first, last = whole[0].first, whole[0].last
    inside = [edit for edit in edits if first <= edit.first <= last]
    outside = [edit for edit in edits if edit not in inside]
    lines: list[str] = [GUARD]
    by_line = {edit.first: edit for edit in inside}
    number = first
    while number <= last:
        edit = by_line.get(number)
        if edit is None:
            text = module.lines[number - 1]
            lines.append("    " + text if text.strip() else text)
            number += 1
        else:
            lines += ["    " + text if text.strip() else text for text in edit.lines]
            number = max(edit.last, number) + (1 if edit.last >= number else 0)
    return [*outside, Edit(first, last, tuple(lines))]


def _calls(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _defines(module: Module, node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign)


def _thread_loop(module: Module, made: ast.AST) -> ThreadLoop | None:
    call = made if isinstance(made, ast.Call) else None
    owner = statement(module, made)
    if call is None or owner is None:
        return None
    shape = _mapped(module, call, owner) or _comprehended(module, call, owner) or _looped(module, call, owner)
    return shape or _single(module, call, owner)


def _job(call: ast.Call) -> tuple[ast.expr, list[ast.expr], list[ast.keyword]] | None:
    """What a thread made by this call runs: function, arguments, keywords."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if name in ("Thread",):
        target = keywords.get("target") or (call.args[1] if len(call.args) > 1 else None)
        given = keywords.get("args") or (call.args[3] if len(call.args) > 3 else None)
        named = keywords.get("kwargs")
        if target is None or (given is not None and not isinstance(given, (ast.Tuple, ast.List))):
            return None
        more: list[ast.keyword] = []
        if named is not None:
            if not isinstance(named, ast.Dict):
                return None
            for key, value in zip(named.keys, named.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                    return None
                more.append(ast.keyword(arg=key.value, value=value))
        return _unwrapped(target, list(given.elts) if given is not None else [], more)
    if name == "submit" and call.args:
        return _unwrapped(call.args[0], list(call.args[1:]), list(call.keywords))
    if name == "to_thread" and call.args:
        return _unwrapped(call.args[0], list(call.args[1:]), list(call.keywords))
    if name == "run_in_executor" and len(call.args) > 1:
        return _unwrapped(call.args[1], list(call.args[2:]), [])
    if name in ("apply_async", "apply") and call.args:
        given = call.args[1] if len(call.args) > 1 else keywords.get("args")
        if given is not None and not isinstance(given, (ast.Tuple, ast.List)):
            return None
        return _unwrapped(call.args[0], list(given.elts) if given is not None else [], [])
    return None


def _unwrapped(
    target: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]
) -> tuple[ast.expr, list[ast.expr], list[ast.keyword]] | None:
    """See through a lambda that only calls something, and through functools.partial."""
    if isinstance(target, ast.Lambda):
        if args or keywords or not isinstance(target.body, ast.Call):
            return None
        defaults = dict(zip([part.arg for part in target.args.args], target.args.defaults, strict=False))
        body = target.body
        given = [defaults.get(part.id, part) if isinstance(part, ast.Name) else part for part in body.args]
        return (body.func, given, body.keywords)
    if (
        isinstance(target, ast.Call)
        and (getattr(target.func, "attr", "") or getattr(target.func, "id", "")) == "partial"
    ):
        if not target.args:
            return None
        return (target.args[0], [*target.args[1:], *args], [*target.keywords, *keywords])
    return (target, args, keywords)


def _count(node: ast.expr) -> str | None:
    """How many rounds `range(n)` or a list of the first numbers makes."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and len(node.args) == 1:
        return ast.unparse(node.args[0])
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [part.value if isinstance(part, ast.Constant) else None for part in node.elts]
        if values == list(range(len(values))) and values:
            return str(len(values))
    return None


def _mapped(module: Module, call: ast.Call, owner: ast.stmt) -> ThreadLoop | None:
    """`pool.map(worker, range(n))`, `pool.starmap(worker, [(0, n), (1, n)])`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in ("map", "imap", "imap_unordered", "map_async", "starmap") or len(call.args) != 2:
        return None
    target, rows = call.args
    if name == "starmap":
        if isinstance(rows, (ast.ListComp, ast.GeneratorExp)) and len(rows.generators) == 1:
            generator = rows.generators[0]
            count = _count(generator.iter)
            if (
                count
                and isinstance(generator.target, ast.Name)
                and isinstance(rows.elt, ast.Tuple)
                and not generator.ifs
            ):
                return ThreadLoop(
                    _pool_block(module, owner), target, list(rows.elt.elts), [], generator.target.id, count
                )
            return None
        if (
            isinstance(rows, ast.List)
            and rows.elts
            and all(isinstance(row, ast.Tuple) and row.elts for row in rows.elts)
        ):
            given = [list(row.elts) for row in rows.elts if isinstance(row, ast.Tuple)]
            firsts = [part[0].value if isinstance(part[0], ast.Constant) else None for part in given]
            tails = {tuple(ast.unparse(item) for item in part[1:]) for part in given}
            if firsts == list(range(len(given))) and len(tails) == 1:
                index: ast.expr = ast.Name(id="rank", ctx=ast.Load())
                return ThreadLoop(
                    _pool_block(module, owner), target, [index, *given[0][1:]], [], "rank", str(len(given))
                )
        return None
    count = _count(rows)
    if count is None:
        return None
    if isinstance(target, ast.Lambda) and len(target.args.args) == 1 and isinstance(target.body, ast.Call):
        body = target.body
        return ThreadLoop(
            _pool_block(module, owner), body.func, list(body.args), list(body.keywords), target.args.args[0].arg, count
        )
    variable: ast.expr = ast.Name(id="rank", ctx=ast.Load())
    job = _unwrapped(target, [variable], [])
    if job is None:
        return None
    return ThreadLoop(_pool_block(module, owner), *job, "rank", count)


def _pool_block(module: Module, owner: ast.stmt) -> list[ast.stmt]:
    """The `with` block around a pool's use where that is all it holds, else the statement alone and what waits for it."""
    parent = module.parents.get(owner)
    if isinstance(parent, (ast.For, ast.AsyncFor)) and parent.body == [owner]:
        owner = parent
        parent = module.parents.get(owner)
    if isinstance(parent, (ast.With, ast.AsyncWith)) and len(parent.items) == 1:
        names = _targets(owner)
        rest = [node for node in parent.body if node is not owner]
        if all(_waits_for(node, names) for node in rest):
            after = block(module, parent)
            index = after.index(parent)
            return [parent, *_waiting(after[index + 1 :], names)]
        return []
    siblings = block(module, owner)
    index = siblings.index(owner)
    return [owner, *_waiting(siblings[index + 1 :], _targets(owner) | _pool_names(owner))]


def _pool_names(owner: ast.stmt) -> set[str]:
    return {
        part.func.value.id
        for part in ast.walk(owner)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and isinstance(part.func.value, ast.Name)
    }


def _targets(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign):
        return {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return {
            part.func.value.id
            for part in ast.walk(node)
            if isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr == "append"
            and isinstance(part.func.value, ast.Name)
        } | {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return set()


WAITING = frozenset(
    {"start", "join", "result", "wait", "setDaemon", "shutdown", "close", "as_completed", "gather", "get"}
)


def _waits_for(node: ast.stmt, names: set[str]) -> bool:
    """Whether a statement does nothing but start, join or await what these names hold."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        if not (words(node.iter) & names) or not isinstance(node.target, ast.Name):
            return False
        inner = names | {node.target.id}
        return all(_waits_for(part, inner) for part in node.body)
    if not isinstance(node, ast.Expr):
        return False
    value = node.value.value if isinstance(node.value, ast.Await) else node.value
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        generator = value.generators[0]
        if not (words(generator.iter) & names) or not isinstance(generator.target, ast.Name):
            return False
        names = names | {generator.target.id}
        value = value.elt
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in WAITING and bool(words(value) & names)


def _waiting(following: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for node in following:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and not node.value.elts:
            continue
        if _waits_for(node, names):
            found.append(node)
    return found


def _empty_lists(siblings: list[ast.stmt], index: int, names: set[str]) -> list[ast.stmt]:
    return [
        node
        for node in siblings[:index]
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.List)
        and not node.value.elts
        and _targets(node) <= names
    ]


def _comprehended(module: Module, call: ast.Call, owner: ast.stmt) -> ThreadLoop | None:
    """`threads = [Thread(target=worker, args=(r,)) for r in range(n)]`, `gather(*(to_thread(worker, r) for r in ...))`."""
    parent = module.parents.get(call)
    if (
        not isinstance(parent, (ast.ListComp, ast.GeneratorExp))
        or parent.elt is not call
        or len(parent.generators) != 1
    ):
        return None
    generator = parent.generators[0]
    job, count = _job(call), _count(generator.iter)
    if job is None or count is None or generator.ifs or not isinstance(generator.target, ast.Name):
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("submit", "apply_async"):
        return ThreadLoop(_pool_block(module, owner), *job, generator.target.id, count)
    siblings = block(module, owner)
    index = siblings.index(owner)
    return ThreadLoop([owner, *_waiting(siblings[index + 1 :], _targets(owner))], *job, generator.target.id, count)


def _looped(module: Module, call: ast.Call, owner: ast.stmt) -> ThreadLoop | None:
    """`for r in range(n): t = Thread(...); t.start(); threads.append(t)`."""
    loop = module.parents.get(owner)
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return None
    job, count = _job(call), _count(loop.iter)
    if job is None or count is None:
        return None
    names = _targets(owner)
    for node in loop.body:
        if node is owner or _waits_for(node, names):
            continue
        value = node.value if isinstance(node, ast.Expr) else None
        appended = (
            isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "append" and bool(words(value) & names)
        )
        flagged = (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Attribute)
            and node.targets[0].attr == "daemon"
        )
        if not appended and not flagged:
            return None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("submit", "apply_async"):
        return ThreadLoop(_pool_block(module, owner), *job, loop.target.id, count)
    siblings = block(module, loop)
    index = siblings.index(loop)
    held = _targets(loop) - {loop.target.id}
    statements = [*_empty_lists(siblings, index, held), loop, *_waiting(siblings[index + 1 :], held)]
    return ThreadLoop(statements, *job, loop.target.id, count)


def _single(module: Module, call: ast.Call, owner: ast.stmt) -> ThreadLoop | None:
    """Several `t0 = Thread(target=worker, args=(0, n))` in one block that differ in the first argument only."""
    siblings = block(module, owner)
    job = _job(call)
    if job is None or not siblings:
        return None
    target = ast.unparse(job[0])
    members: list[tuple[ast.stmt, list[ast.expr]]] = []
    for node in siblings:
        if not isinstance(node, (ast.Assign, ast.Expr)):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Call):
                other = _job(part)
                if other is not None and ast.unparse(other[0]) == target and not other[2]:
                    members.append((node, other[1]))
                    break
    if len(members) < 2 or any(not args for _, args in members):
        return None
    firsts = [args[0].value if isinstance(args[0], ast.Constant) else None for _, args in members]
    tails = {tuple(ast.unparse(item) for item in args[1:]) for _, args in members}
    if firsts != list(range(len(members))) or len(tails) != 1:
        return None
    names: set[str] = set()
    for node, _ in members:
        names |= _targets(node)
    statements = [node for node, _ in members]
    index = siblings.index(statements[-1])
    between = [
        node
        for node in siblings[siblings.index(statements[0]) : index]
        if node not in statements and _waits_for(node, names)
    ]
    statements = sorted({*statements, *between, *_waiting(siblings[index + 1 :], names)}, key=lambda node: node.lineno)
    variable: ast.expr = ast.Name(id="rank", ctx=ast.Load())
    return ThreadLoop(statements, job[0], [variable, *members[0][1][1:]], [], "rank", str(len(members)))


def _spawn_call(module: Module, loop: ThreadLoop) -> tuple[tuple[str, ...], str | None]:
    """The call of spawn, and the module-level function it needs where the worker does not take its rank first."""
    if not isinstance(loop.target, (ast.Name, ast.Attribute)):
        return ((), None)
    worker = ast.unparse(loop.target)
    rest = loop.args[1:]
    direct = (
        bool(loop.args)
        and isinstance(loop.args[0], ast.Name)
        and loop.args[0].id == loop.variable
        and not loop.keywords
        and not any(loop.variable in words(part) for part in rest)
        and not any(isinstance(part, ast.Starred) for part in rest)
    )
    if direct:
        given = "".join(f"{ast.unparse(part)}, " for part in rest)
        args = f"args=({given.rstrip(' ') if len(rest) == 1 else given.rstrip(', ')}), " if rest else ""
        return ((), f"spawn({worker}, {args}nprocs={loop.count})")
    if any(isinstance(part, ast.Starred) for part in loop.args) or any(
        keyword.arg is None for keyword in loop.keywords
    ):
        return ((), None)
    used: set[str] = set()
    for part in [*loop.args, *(keyword.value for keyword in loop.keywords)]:
        used |= {name.id for name in ast.walk(part) if isinstance(name, ast.Name)}
    free = sorted(used - {loop.variable} - set(dir(builtins)) - _module_functions(module))
    texts = [ast.unparse(part) for part in loop.args]
    texts += [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in loop.keywords]
    adapter = (
        f"def start_rank({', '.join([loop.variable, *free])}):",
        f"    {worker}({', '.join(texts)})",
    )
    args = f"args=({', '.join(free)}{',' if len(free) == 1 else ''}), " if free else ""
    return (adapter, f"spawn(start_rank, {args}nprocs={loop.count})")


def _module_functions(module: Module) -> set[str]:
    names: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".", 1)[0] for alias in node.names)
    return names


def _can_be_imported(module: Module, target: ast.expr) -> bool:
    """Whether another process can find the function by its name."""
    if isinstance(target, ast.Attribute):
        return isinstance(target.value, ast.Name) and target.value.id in _module_functions(module)
    return isinstance(target, ast.Name) and target.id in _module_functions(module)


def _finds_all_it_uses(module: Module, loop: ThreadLoop) -> bool:
    """Whether what the worker uses is in a new process as it was for the threads."""
    name = loop.target.id if isinstance(loop.target, ast.Name) else ""
    worker = next(
        (
            node
            for node in module.tree.body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
        ),
        None,
    )
    if worker is None:
        return True
    guarded_names: set[str] = set()
    for node in module.tree.body:
        if isinstance(node, ast.If) and "__name__" in words(node.test):
            guarded_names |= {
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
    computed = {
        name
        for node in module.tree.body
        if isinstance(node, ast.Assign) and _varies_by_process(node.value)
        for name in _targets(node)
    }
    local = {part.arg for part in ast.walk(worker) if isinstance(part, ast.arg)} | {
        part.id for part in ast.walk(worker) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    used = {part.id for part in ast.walk(worker) if isinstance(part, ast.Name)} - local
    shared = any(isinstance(part, (ast.Global, ast.Nonlocal)) for part in ast.walk(worker))
    return not (used & (guarded_names | computed)) and not shared


PER_PROCESS = ("port", "rand", "temp", "uuid", "time", "Lock", "Queue", "Event", "Barrier", "Semaphore")


def _varies_by_process(node: ast.expr) -> bool:
    """Whether a module-level value would come out different, or empty of others' doing, in another process."""
    if isinstance(node, (ast.List, ast.Dict, ast.Set)) and not (
        getattr(node, "elts", None) or getattr(node, "keys", None)
    ):
        return True  # an empty container that threads fill and share
    return any(
        isinstance(part, ast.Call) and any(mark in ast.unparse(part.func) for mark in PER_PROCESS)
        for part in ast.walk(node)
    )


def _unused_after(module: Module, loop: ThreadLoop) -> bool:
    """Whether nothing else reads what the removed statements bind."""
    if not loop.statements:
        return False
    bound: set[str] = set()
    for node in loop.statements:
        bound |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    inside = {part for node in loop.statements for part in ast.walk(node)}
    holder: ast.AST = module.tree
    current: ast.AST | None = loop.statements[0]
    while current is not None:
        current = module.parents.get(current)
        if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)):
            holder = current
            break
    last = max(node.end_lineno or node.lineno for node in loop.statements)
    return not any(
        isinstance(part, ast.Name)
        and part.id in bound
        and part not in inside
        and part.lineno > last
        and isinstance(part.ctx, ast.Load)
        for part in ast.walk(holder)
    )


def thread_to_call(module: Module, made: ast.AST) -> str | None:
    """Call what one thread runs on the main thread instead."""
    owner = statement(module, made)
    if not isinstance(made, ast.Call) or owner is None:
        return None
    job = _job(made)
    if job is None or not isinstance(job[0], (ast.Name, ast.Attribute)):
        return None
    if module.parents.get(made) is not owner and not isinstance(owner, ast.Expr):
        return None
    siblings = block(module, owner)
    names = _targets(owner)
    index = siblings.index(owner)
    started = owner if isinstance(owner, ast.Expr) else None
    waiting = [node for node in siblings[index + 1 :] if _waits_for(node, names) and names]
    between = siblings[index + 1 : siblings.index(waiting[-1])] if waiting else []
    if any(node not in waiting for node in between) or (started is None and not waiting):
        return None
    statements = [owner, *waiting]
    spans = [span(module, node) for node in statements]
    if any(part is None for part in spans):
        return None
    texts = [ast.unparse(part) for part in job[1]] + [
        f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in job[2]
    ]
    call = f"{indent(owner)}{ast.unparse(job[0])}({', '.join(texts)})"
    edits = [
        Edit(part[0], part[1], (call,) if node is owner else ())
        for node, part in zip(statements, spans, strict=True)
        if part is not None
    ]
    return diff(module, edits)


# --- single places


def out_of_condition(module: Module, condition: ast.AST, call: ast.AST) -> str | None:
    """Move a call out of the `if` it stands in, so that every rank makes it."""
    inner = statement(module, call)
    if not isinstance(condition, ast.If) or inner is None or condition.orelse or inner not in condition.body:
        return None
    if not isinstance(inner, (ast.Expr, ast.Assign)):
        return None
    outer, own = span(module, condition), span(module, inner)
    if outer is None or own is None or own[0] == outer[0]:
        return None
    used = words(inner) - _targets(inner)
    position = condition.body.index(inner)
    before: set[str] = set()
    for node in condition.body[:position]:
        before |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    cut = len(inner_indent(module, own[0])) - len(inner_indent(module, outer[0]))
    lines = tuple(line[cut:] for line in module.lines[own[0] - 1 : own[1]])
    if len(condition.body) == 1:
        if used & before:
            return None
        return diff(module, [Edit(outer[0], own[1], lines)] if outer[1] == own[1] else [])
    if position == len(condition.body) - 1 and not used & before:
        return diff(module, [Edit(own[0], own[1], lines)])
    if position == 0:
        return diff(module, [Edit(outer[0], outer[0] - 1, lines), Edit(own[0], own[1], ())])
    return None


def before_condition(module: Module, condition: ast.AST, call: ast.AST, collectives: Container[str]) -> str | None:
    """Move the collectives that directly follow an `if` at which ranks leave to before it; None where others follow."""
    inner = statement(module, call)
    if not isinstance(condition, ast.If) or condition.orelse or inner is None:
        return None
    siblings = block(module, condition)
    if inner not in siblings:
        return None
    following = siblings[siblings.index(condition) + 1 :]
    moved = list(itertools.takewhile(lambda node: _is_only(node, collectives), following))
    rest = [part for node in following[len(moved) :] for part in ast.walk(node)]
    if inner not in moved or any(isinstance(part, ast.Call) and _called(part) in collectives for part in rest):
        return None
    spans = [span(module, node) for node in (condition, *moved)]
    if any(part is None for part in spans):
        return None
    first, second, last = spans[0], spans[1], spans[-1]
    assert first is not None and second is not None and last is not None
    lines = tuple(module.lines[second[0] - 1 : last[1]])
    return diff(module, [Edit(first[0], first[0] - 1, lines), Edit(second[0], last[1], ())])


def _is_only(node: ast.stmt, collectives: Container[str]) -> bool:
    """Whether a statement is nothing but the call of a collective."""
    return (
        isinstance(node, (ast.Expr, ast.Assign))
        and isinstance(node.value, ast.Call)
        and (_called(node.value) in collectives)
    )


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def inner_indent(module: Module, line: int) -> str:
    text = module.lines[line - 1]
    return text[: len(text) - len(text.lstrip())]


def replaced(module: Module, node: ast.expr, text: str, imports: tuple[str, ...] = ()) -> str | None:
    """Replace an expression that stands on one line."""
    return all_replaced(module, [(node, text)], imports)


def all_replaced(module: Module, replacements: list[tuple[ast.expr, str]], imports: tuple[str, ...] = ()) -> str | None:
    """Replace expressions, each of which stands on one line."""
    lines: dict[int, bytes] = {}
    for node, text in sorted(replacements, key=lambda each: each[0].col_offset, reverse=True):
        if node.lineno != node.end_lineno or node.end_col_offset is None:
            return None
        line = lines.get(node.lineno, module.lines[node.lineno - 1].encode())
        lines[node.lineno] = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
    edits = [Edit(number, number, (line.decode(),)) for number, line in lines.items()]
    for extra in imports:
        edits += import_edit(module, extra)
    return diff(module, edits)


def removed(module: Module, node: ast.AST) -> str | None:
    """Delete a statement."""
    target = statement(module, node)
    lines = span(module, target) if target is not None else None
    if target is None or lines is None:
        return None
    alone = len(block(module, target)) == 1
    return diff(module, [Edit(lines[0], lines[1], (f"{indent(target)}pass",) if alone else ())])


def inserted_before(module: Module, node: ast.AST, line: str, imports: tuple[str, ...] = ()) -> str | None:
    """Insert a line before the statement a node is part of."""
    target = statement(module, node)
    lines = span(module, target) if target is not None else None
    if target is None or lines is None:
        return None
    edits = [Edit(lines[0], lines[0] - 1, (indent(target) + line,))]
    for extra in imports:
        edits += import_edit(module, extra)
    return diff(module, edits)
