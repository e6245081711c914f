"""Walks a script the way one rank would, statement by statement, without running any of it.

Branches whose condition is known for this rank are taken, others are walked on both sides. User functions are followed
into; what foreign names do is told by `library`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ddp_doctor.interpret.script import library
from ddp_doctor.interpret.script.process import (
    DEFAULT,
    DEVICES,
    NODES,
    Choice,
    Decision,
    Event,
    Item,
    Leave,
    Loop,
    Process,
    Spot,
    ThreadRun,
)
from ddp_doctor.interpret.script.source import Module
from ddp_doctor.interpret.script.values import (
    ARGUMENT,
    ASSUMED,
    EACH,
    ENVIRON,
    LOCAL,
    MODULO,
    NAMED,
    NODE,
    NONE,
    RANK,
    VARIES,
    External,
    Function,
    FunctionNode,
    Instance,
    Known,
    Made,
    Method,
    Partial,
    Scope,
    Series,
    Super,
    Table,
    Unknown,
    UserClass,
    Val,
    merge,
    truth_of,
)
from ddp_doctor.interpret.script.vocabulary import (
    FIRST_NAMES,
    INTERESTING,
    LOCAL_FIRST_NAMES,
    LOCAL_NAMES,
    NODE_NAMES,
    RANK_NAMES,
    SERVERS,
    WORLD_NAMES,
)

STEPS = 60_000
DEPTH = 24
ROUNDS = 16
STRUCTURAL = frozenset(
    {
        "Thread", "Timer", "Process", "submit", "start", "new_group", "apply_async", "append", "to_thread", "run_in_executor",
        "create_task", "start_new_thread", "fork", "init_process_group", "starmap", "spawn",
    }
)  # fmt: skip
"""Loops that hold one of these are walked round by round."""

RETURN, BREAK, CONTINUE = "return", "break", "continue"
IDENTITY = frozenset({RANK, LOCAL, NODE, ARGUMENT, ENVIRON})


class Stop(Exception):
    """The process, or the call, ends here: an exit or an exception that nothing catches."""


class OutOfSteps(Exception):
    """The script is too large to be followed to its end."""


@dataclass
class Frame:
    """One call of a user function, or a module body."""

    scope: Scope
    module: Module
    call: Spot | None = None
    function: Function | None = None
    returns: list[Val] = field(default_factory=list)
    loops: int = 0


class Sources:
    """Files beside the script, parsed at most once for all ranks."""

    def __init__(self, main: Module, load: Callable[[str], Module | None]) -> None:
        self.main = main
        self._load = load
        self._known: dict[str, Module | None] = {}
        self._assigned: dict[ast.AST, frozenset[str]] = {}
        self._structural: dict[ast.AST, bool] = {}
        self._wanted: dict[Module, frozenset[str]] = {}
        self._shapes: dict[Module, frozenset[str]] = {}
        self._interesting: dict[ast.AST, bool] = {}
        self._definitions: dict[Module, tuple[dict[str, set[str]], set[str]]] = {}

    def module(self, name: str) -> Module | None:
        """The user's module of that dotted name, if it lies beside the script."""
        if name not in self._known:
            path = name.replace(".", "/")
            self._known[name] = self._load(f"{path}.py") or self._load(f"{path}/__init__.py")
        return self._known[name]

    def any_beside(self) -> bool:
        """Whether the script imports a file that lies beside it."""
        for node in ast.walk(self.main.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            if any(self.module(name) is not None for name in names):
                return True
        return False

    def wanted(self, module: Module) -> frozenset[str]:
        """Names that make a function of the module worth following: interesting words, and functions that hold one."""
        if module not in self._wanted:
            self._wanted[module] = self._closure(module, INTERESTING)
        return self._wanted[module]

    def interesting(self, node: FunctionNode, module: Module) -> bool:
        """Whether a function needs to be followed."""
        known = self._interesting.get(node)
        if known is None:
            body = node.body if isinstance(node.body, list) else [node.body]
            short = len(body) <= 2 and not isinstance(node, ast.Lambda)
            known = short or isinstance(node, ast.Lambda) or bool(words(node) & self.wanted(module))
            self._interesting[node] = known
        return known

    def structural(self, node: ast.AST, body: Iterable[ast.AST], module: Module) -> bool:
        """Whether a loop's rounds matter one by one."""
        if node not in self._structural:
            if module not in self._shapes:
                self._shapes[module] = self._closure(module, STRUCTURAL)
            shapes = self._shapes[module]
            self._structural[node] = any(words(part) & shapes for part in body)
        return self._structural[node]

    def assigned(self, node: ast.AST) -> frozenset[str]:
        """Names a loop assigns."""
        if node not in self._assigned:
            self._assigned[node] = frozenset(
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            )
        return self._assigned[node]

    def _closure(self, module: Module, start: frozenset[str]) -> frozenset[str]:
        """The words, and the names of all functions and classes that lead to one of them."""
        if module not in self._definitions:
            self._definitions[module] = _definitions(module)
        functions, imported = self._definitions[module]
        wanted = set(start) | imported
        grown = True
        while grown:
            fresh = {name for name, used in functions.items() if name not in wanted and not used.isdisjoint(wanted)}
            wanted |= fresh
            grown = bool(fresh)
        return frozenset(wanted)


def _definitions(module: Module) -> tuple[dict[str, set[str]], set[str]]:
    """The words of each function and class by its name, and the imported names."""
    functions: dict[str, set[str]] = {}
    imported: set[str] = set()

    def visit(node: ast.AST, holders: tuple[set[str], ...]) -> None:
        for child in ast.iter_child_nodes(node):
            word = _word(child)
            if word:
                for holder in holders:
                    holder.add(word)
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                visit(child, (*holders, functions.setdefault(child.name, set())))
            else:
                if isinstance(child, ast.ImportFrom):
                    imported.update(alias.asname or alias.name for alias in child.names)
                visit(child, holders)

    visit(module.tree, ())
    return functions, imported


def _word(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, (ast.keyword, ast.arg)):
        return node.arg
    return None


def words(node: ast.AST) -> set[str]:
    """Every name, attribute, keyword and parameter in a node."""
    return {word for part in ast.walk(node) if (word := _word(part))}


class Walker:
    """One walk for one rank. `processes` are the imagined processes: the script's own, then those it starts."""

    def __init__(self, sources: Sources, process: Process, *, children: bool) -> None:
        self.sources = sources
        self.process = process
        self.processes = [process]
        self.walks_children = children
        self.items: list[Item] = process.trace
        self.frames: list[Frame] = []
        self.unsure = 0
        self.thread: ThreadRun | None = None
        self.guarded = False
        self.in_main = True
        self.top: ast.stmt | None = None
        self.steps = 0
        self.visited: set[ast.AST] = set()
        self.active: list[ast.AST] = []
        self.free_calls: list[tuple[Process, Spot, str]] = []
        self.handlers: list[tuple[Function, str, Spot]] = []
        self.user_modules: dict[str, Scope] = {}
        self.main_scope = Scope(sources.main, None)
        self._statements: dict[type, Callable[[Any], str | None]] = {
            ast.Expr: self._expr,
            ast.Assign: self._assign,
            ast.AugAssign: self._augassign,
            ast.AnnAssign: self._annassign,
            ast.If: self._if,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.FunctionDef: self._functiondef,
            ast.AsyncFunctionDef: self._functiondef,
            ast.ClassDef: self._classdef,
            ast.Return: self._return,
            ast.Break: lambda _: BREAK,
            ast.Continue: lambda _: CONTINUE,
            ast.Raise: self._raise,
            ast.Import: self._import,
            ast.ImportFrom: self._importfrom,
            ast.Global: self._global,
            ast.Nonlocal: self._nonlocal,
            ast.Delete: lambda _: None,
            ast.Assert: self._assert,
            ast.Match: self._match,
        }
        if hasattr(ast, "TryStar"):
            self._statements[ast.TryStar] = self._try
        self._expressions: dict[type, Callable[[Any], Val]] = {
            ast.Constant: lambda node: Known(node.value),
            ast.Name: self._name,
            ast.Attribute: lambda node: self.attribute(self.eval(node.value), node.attr),
            ast.Call: self._call,
            ast.BinOp: lambda node: self.binary(node.op, self.eval(node.left), self.eval(node.right)),
            ast.BoolOp: self._boolop,
            ast.UnaryOp: self._unaryop,
            ast.Compare: self._compare,
            ast.IfExp: self._ifexp,
            ast.JoinedStr: self._joinedstr,
            ast.FormattedValue: lambda node: self.eval(node.value),
            ast.List: self._series,
            ast.Tuple: self._series,
            ast.Set: self._series,
            ast.Dict: self._dict,
            ast.Subscript: self._subscript,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._dictcomp,
            ast.Lambda: lambda node: self._make_function(node),
            ast.Await: lambda node: self.eval(node.value),
            ast.Starred: lambda node: self.eval(node.value),
            ast.NamedExpr: self._namedexpr,
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
            ast.Slice: lambda _: Unknown(),
        }

    # --- entering and leaving

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def scope(self) -> Scope:
        return self.frames[-1].scope

    @property
    def module(self) -> Module:
        return self.frames[-1].module

    def spot(self, node: ast.AST) -> Spot:
        return (self.module, node)

    def run_main(self) -> None:
        """Walk the script from its first line to its last."""
        self.run_module(self.sources.main, self.main_scope, "__main__")

    def run_module(self, module: Module, scope: Scope, name: str) -> None:
        scope.names["__name__"] = Known(name)
        scope.names["__file__"] = Unknown("__file__")
        outer_main, self.in_main = self.in_main, name == "__main__"
        self.frames.append(Frame(scope=scope, module=module))
        try:
            for statement in module.tree.body:
                if self.in_main:
                    self.top = statement
                if self.exec(statement):
                    break
        except Stop:
            pass
        finally:
            self.frames.pop()
            self.in_main = outer_main

    def run_entry(self, function: Function, args: list[Val]) -> None:
        """Walk a function nobody in the script calls."""
        self.frames = [Frame(scope=self.main_scope, module=self.sources.main)]
        bare = Function(function.node, function.scope, function.module, function.bound)
        bare.owner, bare.only = function.owner, function.only  # whoever calls it need not rely on its defaults
        try:
            self.invoke(bare, args, {}, function.node)
        except Stop:
            pass
        self.frames = []

    def as_process(self, child: Process, body: Callable[[], object]) -> None:
        """Walk something as another process; this one's state is put aside meanwhile."""
        state = (self.process, self.items, self.frames, self.unsure, self.thread, self.guarded)
        self.process, self.items, self.thread, self.unsure = child, child.trace, None, 0
        self.frames = [Frame(scope=self.main_scope, module=self.sources.main)]
        self.processes.append(child)
        try:
            body()
        except Stop:
            pass
        finally:
            self.process, self.items, self.frames, self.unsure, self.thread, self.guarded = state

    def as_thread(self, thread: ThreadRun, body: Callable[[], object]) -> None:
        """Walk something as another thread: its collectives belong to no rank's order."""
        if self.thread is None:
            self.process.threads.append(thread)
        outer, items, initialized = self.thread, self.items, self.process.initialized
        self.thread = outer or thread
        self.items = []
        try:
            body()
        except Stop:
            pass
        finally:
            self.thread, self.items, self.process.initialized = outer, items, initialized

    def event(
        self,
        op: str,
        node: ast.AST,
        group: str = DEFAULT,
        *,
        members: str = "",
        ranks: tuple[int, ...] | None = None,
        touched: Iterable[Val] = (),
    ) -> None:
        """Record a collective; what it was given holds other values afterwards."""
        for value in touched:
            if isinstance(value, Series):
                value.items[:] = [Unknown() for _ in value.items]
            elif isinstance(value, Table):
                value.entries.clear()
        stack = tuple(frame.call for frame in self.frames[1:] if frame.call is not None)
        self.items.append(
            Event(op, group, self.spot(node), stack, len(self.process.decisions), members, ranks, self.unsure > 0)
        )

    def decide(self, node: ast.AST, taken: bool, tags: frozenset[str] = NONE) -> None:
        """Note a branch this rank takes for certain."""
        self.process.decisions.append(Decision(self.spot(node), taken, len(self.frames) - 1, NAMED in tags))

    @property
    def in_script(self) -> bool:
        """Whether this is the script's own process on its way from the first line to the last."""
        return self.process.key == ("main",)

    # --- statements

    def exec(self, node: ast.stmt) -> str | None:
        """Walk a statement; returns how it leaves its block, or None."""
        self.steps += 1
        if self.steps > STEPS:
            raise OutOfSteps
        run = self._statements.get(type(node))
        return run(node) if run else None

    def block(self, statements: list[ast.stmt]) -> str | None:
        for statement in statements:
            left = self.exec(statement)
            if left:
                return left
        return None

    def _expr(self, node: ast.Expr) -> None:
        self.eval(node.value)

    def _assign(self, node: ast.Assign) -> None:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value, node)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value), node)

    def _augassign(self, node: ast.AugAssign) -> None:
        load = ast.copy_location(_loaded(node.target), node.target)
        left, right = self.eval(load), self.eval(node.value)
        if isinstance(left, Series) and isinstance(right, Series):
            left.items += right.items
            left.whole = left.whole and right.whole
            return
        self.assign(node.target, self.binary(node.op, left, right), node)

    def assign(self, target: ast.expr, value: Val, node: ast.AST) -> None:
        """Bind a target to a value."""
        if isinstance(target, ast.Name):
            self.scope.set(target.id, value)
        elif isinstance(target, ast.Attribute):
            owner = self.eval(target.value)
            if isinstance(owner, (Instance, Made, Unknown)):
                owner.attrs[target.attr] = value
            elif isinstance(owner, UserClass):
                owner.scope.names[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner, key = self.eval(target.value), self.eval(target.slice)
            if isinstance(owner, External) and owner.path == "os.environ":
                library.set_variable(self, key, value, node)
            elif isinstance(owner, Table) and isinstance(key, Known):
                _store(owner, key.value, value)
            elif isinstance(owner, Series):
                owner.items[:] = [merge(item, value) for item in owner.items]
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, part in enumerate(target.elts):
                if isinstance(part, ast.Starred):
                    self.assign(part.value, Unknown(), node)
                elif isinstance(value, Series) and value.whole and len(value.items) == len(target.elts):
                    self.assign(part, value.items[index], node)
                elif isinstance(value, Made):
                    self.assign(
                        part, Made(f"{value.path}[{index}]", [], {}, value.node, value.module, value.tags), node
                    )
                else:
                    self.assign(part, self.by_name(getattr(part, "id", "")) or Unknown("", value.tags - IDENTITY), node)

    def _if(self, node: ast.If) -> str | None:
        test = self.eval(node.test)
        truth = truth_of(test)
        if truth is None:
            return self.fork(
                node,
                lambda: self._side(node, True, test.tags),
                lambda: self._side(node, False, test.tags),
                alike=VARIES not in test.tags,
            )
        guard = self.in_main and _is_guard(node.test)
        if not guard:
            self.decide(node, truth, test.tags)
        if guard and truth:
            outer, self.guarded = self.guarded, True
            try:
                return self.block(node.body)
            finally:
                self.guarded = outer
        return self.block(node.body if truth else node.orelse)

    def _side(self, node: ast.If, taken: bool, tags: frozenset[str]) -> str | None:
        self.decide(node, taken, tags)
        return self.block(node.body if taken else node.orelse)

    def fork(
        self,
        node: ast.AST,
        first: Callable[[], str | None],
        second: Callable[[], str | None],
        *,
        alike: bool = True,
    ) -> str | None:
        """Walk both sides of a branch that cannot be decided, and keep what holds after either.

        Not `alike` is a branch that ranks may take differently (`if rank == src` with a source nobody knows): it counts
        only where both sides make the same calls.
        """
        choice = Choice(node)
        scope, outer, before = self.scope, self.items, self.scope.names
        initialized = self.process.initialized
        frames = len(self.frames)
        self.unsure += 1
        ends: list[tuple[str | None, dict[str, Val]]] = []
        for items, side in ((choice.then, first), (choice.other, second)):
            scope.names = dict(before)
            self.items = items
            try:
                left = side()
            except Stop:
                del self.frames[frames:]
                left = "stop"
            if left in (BREAK, RETURN, CONTINUE) and self.frame.loops:
                items.append(Leave(self.spot(node), len(self.process.decisions), left))
            ends.append((left, scope.names))
        self.unsure -= 1
        self.items = outer
        if not alike:
            if [item.key for item in choice.then] == [item.key for item in choice.other]:
                outer += choice.then
        elif choice.then or choice.other:
            outer.append(choice)
        self.process.initialized = self.process.initialized or initialized
        (left, names), (left_other, names_other) = ends
        if left and left_other:
            scope.names = names
            if left == left_other == "stop":
                raise Stop
            return left if left != "stop" else left_other
        if left:
            scope.names = names_other
        elif left_other:
            scope.names = names
        else:
            scope.names = {
                name: merge(names.get(name), names_other.get(name)) for name in (names.keys() | names_other.keys())
            }
        return None

    def _for(self, node: ast.For | ast.AsyncFor) -> str | None:
        source = self.eval(node.iter)
        if isinstance(source, Series) and source.whole and not source.items:
            return self.block(node.orelse)
        if (
            isinstance(source, Series)
            and source.whole
            and len(source.items) <= ROUNDS
            and self.sources.structural(node, [*node.body, node.iter], self.module)
        ):
            for item in list(source.items):
                self.assign(node.target, item, node)
                left = self.block(node.body)
                if left == BREAK:
                    return None
                if left == RETURN:
                    return left
            return self.block(node.orelse)
        item = self._one_of(source)
        return self._loop(node, lambda: self.assign(node.target, item, node))

    def _one_of(self, source: Val) -> Val:
        if isinstance(source, Series) and source.items:
            first = source.items[0]
            if not isinstance(first, Known):
                return first
            if len(source.items) == 1 and source.whole:
                return first
        return Unknown("", (source.tags - IDENTITY) | {EACH})

    def _while(self, node: ast.While) -> str | None:
        if truth_of(self.eval(node.test)) is False:
            return self.block(node.orelse)
        return self._loop(node, lambda: None)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, begin: Callable[[], None]) -> str | None:
        scope = self.scope
        for name in self.sources.assigned(node):
            value = scope.names.get(name)
            if isinstance(value, Known) and VARIES not in value.tags:
                scope.names[name] = Unknown(name)
        loop = Loop(node)
        outer, self.items = self.items, loop.body
        frame = self.frame
        frame.loops += 1
        try:
            begin()
            left = self.block(node.body)
            if left in (BREAK, RETURN):
                loop.body.append(Leave(self.spot(node), len(self.process.decisions), left))
        finally:
            frame.loops -= 1
            self.items = outer
            if loop.body:
                outer.append(loop)
        self.block(node.orelse)
        return None

    def _with(self, node: ast.With | ast.AsyncWith) -> str | None:
        expected_to_fail = False
        for item in node.items:
            context = self.eval(item.context_expr)
            entered = library.entered(self, context, item.context_expr)
            expected_to_fail = expected_to_fail or library.expects_failure(context)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, entered, node)
        outer = self.items
        if expected_to_fail:
            self.items = []
        try:
            return self.block(node.body)
        finally:
            self.items = outer

    def _try(self, node: ast.Try) -> str | None:
        left: str | None = None
        frames = len(self.frames)
        try:
            left = self.block(node.body)
        except Stop:
            del self.frames[frames:]
            left = "stop"
        for handler in node.handlers:

            def handle(handler: ast.ExceptHandler = handler) -> str | None:
                if handler.name:
                    self.scope.set(handler.name, Unknown(handler.name))
                return self.block(handler.body)

            self.fork(handler, handle, lambda: None)
        if left is None:
            left = self.block(node.orelse)
        final = self.block(node.finalbody)
        if final:
            return final
        if left == "stop":
            if not node.handlers:
                raise Stop
            return None
        return left

    def _match(self, node: ast.Match) -> str | None:
        self.eval(node.subject)

        def case(index: int) -> str | None:
            if index >= len(node.cases):
                return None
            return self.fork(node.cases[index], lambda: self.block(node.cases[index].body), lambda: case(index + 1))

        return case(0)

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function: Val = self._make_function(node)
        for decorator in reversed(node.decorator_list):
            function = self._decorated(decorator, function)
        self.scope.set(node.name, function)

    def _decorated(self, decorator: ast.expr, function: Val) -> Val:
        value = self.eval(decorator)
        path = value.path if isinstance(value, (External, Made)) else ""
        name = value.name if isinstance(value, Method) else path.rsplit(".", 1)[-1]
        target = function if isinstance(function, Function) else None
        if target is not None and name in {"rank_zero_only", "on_main_process", "main_process_only", "master_only"}:
            target.only = RANK
        elif target is not None and name == "on_local_main_process":
            target.only = LOCAL
        elif target is not None and isinstance(value, Made) and value.attrs.get("handler"):
            self.handlers.append((target, path, self.spot(target.node)))
        elif isinstance(value, (Function, Partial)):
            result = self.call(value, [function], {}, decorator)
            if isinstance(result, (Function, Partial, Instance)):
                return result
        return function

    def _make_function(self, node: FunctionNode) -> Function:
        function = Function(node, self.scope, self.module)
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        for argument, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
            function.defaults[argument.arg] = self.eval(default)
        for argument, default_or_none in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False):
            if default_or_none is not None:
                function.defaults[argument.arg] = self.eval(default_or_none)
        return function

    def _classdef(self, node: ast.ClassDef) -> None:
        bases = [self.eval(base) for base in node.bases]
        for decorator in node.decorator_list:
            self.eval(decorator)
        scope = Scope(self.module, self.scope)
        kind = UserClass(node, scope, self.module, bases)
        self.scope.set(node.name, kind)
        self.frames.append(Frame(scope=scope, module=self.module))
        try:
            self.block(node.body)
        finally:
            self.frames.pop()

    def _return(self, node: ast.Return) -> str:
        self.frame.returns.append(Known(None) if node.value is None else self.eval(node.value))
        return RETURN

    def _raise(self, node: ast.Raise) -> str | None:
        if node.exc is not None:
            self.eval(node.exc)
        raise Stop

    def _assert(self, node: ast.Assert) -> None:
        self.eval(node.test)

    def _global(self, node: ast.Global) -> None:
        top = self.user_modules.get(self.module.name, self.main_scope)
        for name in node.names:
            self.scope.foreign[name] = top

    def _nonlocal(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            outer = self.scope.parent
            while outer is not None and name not in outer.names:
                outer = outer.parent
            if outer is not None:
                self.scope.foreign[name] = outer

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.asname:
                self.scope.set(alias.asname, self.imported(alias.name))
            else:
                first = alias.name.split(".", 1)[0]
                self.imported(alias.name)
                self.scope.set(first, self.imported(first))

    def _importfrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            package = self.module.name.split(".")[: -node.level] if self.module.name != "__main__" else []
            base = ".".join([*package, *([base] if base else [])])
        for alias in node.names:
            if alias.name == "*":
                source = self._user_scope(base)
                for name, value in (source.names if source else {}).items():
                    if not name.startswith("_"):
                        self.scope.set(name, value)
                continue
            self.scope.set(alias.asname or alias.name, self._member(base, alias.name))

    def _member(self, base: str, name: str) -> Val:
        source = self._user_scope(base) if base else None
        if source is not None:
            value = source.names.get(name)
            if value is not None:
                return value
        full = f"{base}.{name}" if base else name
        if source is not None or not base:
            return self.imported(full)
        return External(full)

    def imported(self, name: str) -> Val:
        """A module by its dotted name: the user's own where it lies beside the script, else a foreign name."""
        scope = self._user_scope(name)
        if scope is None:
            return External(name)
        holder = Unknown(name)
        holder.attrs = scope.names
        return holder

    def _user_scope(self, name: str) -> Scope | None:
        if name in self.user_modules:
            return self.user_modules[name]
        module = self.sources.module(name)
        if module is None:
            return None
        scope = Scope(module, None)
        self.user_modules[name] = scope
        self.run_module(module, scope, name)
        return scope

    # --- expressions

    def eval(self, node: ast.expr) -> Val:
        """What an expression stands for; calls in it are followed."""
        self.steps += 1
        if self.steps > STEPS * 6:
            raise OutOfSteps
        run = self._expressions.get(type(node))
        return run(node) if run else Unknown()

    def _name(self, node: ast.Name) -> Val:
        value = self.scope.find(node.id)
        if value is not None:
            return value
        if node.id in library.BUILTINS:
            return External(f"builtins.{node.id}")
        return self.by_name(node.id) or Unknown(node.id)

    def by_name(self, name: str) -> Val | None:
        """What a name by itself suggests where its value cannot be followed."""
        process = self.process
        lowered = name.lower().lstrip("_")
        if lowered in RANK_NAMES:
            return Known(process.rank, frozenset({VARIES, RANK, NAMED}))
        if lowered in LOCAL_NAMES:
            return Known(process.local, frozenset({VARIES, LOCAL, NAMED}))
        if lowered in WORLD_NAMES:
            return Known(process.world, frozenset({ASSUMED, NAMED}))
        if lowered in NODE_NAMES:
            return Known(process.node, frozenset({VARIES, NODE, NAMED}))
        if lowered in FIRST_NAMES:
            return Known(process.rank == 0, frozenset({VARIES, NAMED}))
        if lowered in LOCAL_FIRST_NAMES:
            return Known(process.local == 0, frozenset({VARIES, NAMED}))
        return None

    def attribute(self, owner: Val, name: str) -> Val:
        """An attribute of a value."""
        if isinstance(owner, External):
            return External(f"{owner.path}.{name}")
        if isinstance(owner, Instance):
            value = owner.attrs.get(name)
            if value is not None:
                return value
            value = owner.kind.lookup(name)
            if isinstance(value, Function):
                return self._bound(value, owner, owner.kind)
            if value is not None:
                return value
            return self.by_name(name) or Method(owner, name)
        if isinstance(owner, UserClass):
            value = owner.lookup(name)
            if isinstance(value, Function):
                return value.bind(None, owner)
            return value if value is not None else Method(owner, name)
        if isinstance(owner, Super):
            if owner.owner is not None:
                for base in owner.owner.bases:
                    if isinstance(base, UserClass):
                        value = base.lookup(name)
                        if isinstance(value, Function):
                            return value.bind(owner.receiver, base)
            return Method(Unknown(), name)
        if isinstance(owner, (Made, Unknown)):
            value = owner.attrs.get(name)
            if value is not None:
                return value
            return library.known_attribute(self, owner, name) or self.by_name(name) or Method(owner, name)
        return Method(owner, name)

    def _bound(self, function: Function, owner: Instance, kind: UserClass) -> Val:
        decorators = {getattr(part, "id", "") for part in getattr(function.node, "decorator_list", ())}
        if "staticmethod" in decorators:
            return function
        bound = function.bind(kind if "classmethod" in decorators else owner, kind)
        if decorators & {"property", "cached_property"}:
            return self.invoke(bound, [], {}, function.node)
        return bound

    def _call(self, node: ast.Call) -> Val:
        function = self.eval(node.func)
        args: list[Val] = []
        for argument in node.args:
            value = self.eval(argument)
            if isinstance(argument, ast.Starred):
                if isinstance(value, Series) and value.whole:
                    args += value.items
                else:
                    args.append(Unknown("*"))
                    break
            else:
                args.append(value)
        kwargs: dict[str, Val] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, Table):
                kwargs.update((key, item) for key, item in value.entries.items() if isinstance(key, str))
        return self.call(function, args, kwargs, node)

    def call(self, function: Val, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
        """What a call gives; user functions are followed."""
        if isinstance(function, External):
            return library.external_call(self, function.path, args, kwargs, node)
        if isinstance(function, Function):
            return self.invoke(function, args, kwargs, node)
        if isinstance(function, Method):
            return library.method_call(self, function.receiver, function.name, args, kwargs, node)
        if isinstance(function, UserClass):
            return self._construct(function, args, kwargs, node)
        if isinstance(function, Partial):
            return self.call(function.function, [*function.args, *args], {**function.kwargs, **kwargs}, node)
        if isinstance(function, Instance):
            method = function.kind.lookup("__call__")
            if isinstance(method, Function):
                return self.invoke(method.bind(function, function.kind), args, kwargs, node)
            return Unknown()
        if isinstance(function, Made):
            return library.made_call(self, function, args, kwargs, node)
        if isinstance(function, Known):
            return function
        if isinstance(function, Unknown):
            self.process.opaque += 1
            if function.name:
                return library.named_call(self, function.name, args, node)
        return Unknown()

    def _construct(self, kind: UserClass, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
        instance = Instance(kind, node)
        instance.args, instance.kwargs = args, kwargs
        library.constructed(self, instance, node)
        start = kind.lookup("__init__")
        if isinstance(start, Function):
            self.invoke(start.bind(instance, kind), args, kwargs, node, whole=True)
        return instance

    def invoke(
        self, function: Function, args: list[Val], kwargs: dict[str, Val], node: ast.AST, *, whole: bool = False
    ) -> Val:
        """Follow a call into a user function; its value is what all its returns have in common."""
        self.visited.add(function.node)
        if function.only:
            first = self.process.rank if function.only == RANK else self.process.local
            spot = (function.module, function.node)
            self.process.decisions.append(Decision(spot, first == 0, len(self.frames)))
            if first != 0:
                return Known(None)
        if (
            function.node in self.active
            or len(self.active) > DEPTH
            or not (whole or self.sources.interesting(function.node, function.module))
        ):
            return Unknown()
        scope = Scope(function.module, function.scope)
        self._bind(function, args, kwargs, scope)
        call = self.spot(node) if self.frames and node is not function.node else None
        frame = Frame(scope=scope, module=function.module, call=call, function=function)
        if call is None:
            frame.call = (function.module, function.node)
        self.frames.append(frame)
        self.active.append(function.node)
        depth = len(self.frames)
        try:
            if isinstance(function.node, ast.Lambda):
                return self.eval(function.node.body)
            left = self.block(function.node.body)
        finally:
            self.active.pop()
            del self.frames[depth - 1 :]
        returns = frame.returns if left == RETURN else [*frame.returns, Known(None)] if frame.returns else []
        if not returns:
            return Known(None)
        value = returns[0]
        for other in returns[1:]:
            value = merge(value, other)
        return value

    def _bind(self, function: Function, args: list[Val], kwargs: dict[str, Val], scope: Scope) -> None:
        arguments = function.node.args
        given = list(args)
        if function.bound is not None:
            given.insert(0, function.bound)
        left: dict[str, Val | None] = dict(kwargs)
        for argument in (*arguments.posonlyargs, *arguments.args):
            name = argument.arg
            if given:
                value = given.pop(0)
                if isinstance(value, Unknown) and value.name == "*":
                    given.insert(0, value)
                    value = self.by_name(name) or Unknown(name)
            else:
                value = left.pop(name, None) or function.defaults.get(name) or self.by_name(name) or Unknown(name)
            if isinstance(value, Unknown) and not value.name and not value.tags:
                value = self.by_name(name) or Unknown(name)
            scope.names[name] = value
        if arguments.vararg:
            starred = any(isinstance(value, Unknown) and value.name == "*" for value in given)
            scope.names[arguments.vararg.arg] = Series([] if starred else given, whole=not starred)
        for argument in arguments.kwonlyargs:
            name = argument.arg
            scope.names[name] = (
                left.pop(name, None) or function.defaults.get(name) or self.by_name(name) or Unknown(name)
            )
        if arguments.kwarg:
            scope.names[arguments.kwarg.arg] = Table({key: value for key, value in left.items() if value is not None})

    def binary(self, op: ast.operator, left: Val, right: Val) -> Val:
        """Arithmetic on what is known; the result remembers where its parts came from."""
        tags = left.tags | right.tags
        if isinstance(left, Series) and isinstance(right, Series) and isinstance(op, ast.Add):
            return Series([*left.items, *right.items], tags, left.whole and right.whole)
        if isinstance(op, ast.Mult) and isinstance(left, Series) and isinstance(right, Known):
            count = right.value if isinstance(right.value, int) else 0
            if 0 < count * len(left.items) <= 64:
                return Series(left.items * count, tags, left.whole)
        joined = _is_text(left) or _is_text(right)
        if not joined:
            kept = tags - IDENTITY
            if isinstance(op, ast.Mod) and VARIES in tags:
                kept |= {MODULO}
            elif isinstance(op, ast.Mult) and NODE in tags:
                kept |= {NODE}
            elif isinstance(op, ast.Add) and NODE in tags and tags & {LOCAL, ARGUMENT}:
                kept |= {RANK}
            tags = kept
        if isinstance(left, Known) and isinstance(right, Known):
            try:
                if isinstance(left.value, str) and library.WIDE_FORMAT.search(left.value):
                    return Unknown("", tags)
                value = _BINARY[type(op)](left.value, right.value)
            except Exception:  # whatever the user's own arithmetic raises
                return Unknown("", tags)
            if not isinstance(value, (str, bytes)) or len(value) < 4096:
                return Known(value, tags)
        return Unknown("", tags)

    def _boolop(self, node: ast.BoolOp) -> Val:
        stops_at = isinstance(node.op, ast.Or)
        tags: frozenset[str] = NONE
        unknown: frozenset[str] | None = None
        value: Val = Unknown()
        last = len(node.values) - 1
        for index, part in enumerate(node.values):
            value = self.eval(part)
            tags |= value.tags
            truth = truth_of(value)
            if truth is None:
                unknown = (unknown or NONE) | value.tags
            elif truth is stops_at:
                if index < last:
                    self.decide(node, not stops_at, value.tags)
                if unknown is not None:
                    return Known(stops_at, tags)
                return value
            elif index < last and VARIES in value.tags:
                self.decide(node, stops_at, value.tags)
        return value if unknown is None else Unknown("", unknown - IDENTITY)

    def _unaryop(self, node: ast.UnaryOp) -> Val:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            truth = truth_of(value)
            return Unknown("", value.tags) if truth is None else Known(not truth, value.tags - IDENTITY)
        if isinstance(value, Known) and isinstance(value.value, (int, float)):
            if isinstance(node.op, ast.USub):
                return Known(-value.value, value.tags - IDENTITY)
            if isinstance(node.op, ast.UAdd):
                return value
        return Unknown("", value.tags - IDENTITY)

    def _compare(self, node: ast.Compare) -> Val:
        left = self.eval(node.left)
        result: bool | None = True
        tags = left.tags
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.eval(comparator)
            tags |= right.tags
            one = _compared(op, left, right)
            if one is False:
                return Known(False, tags - IDENTITY)
            if one is None:
                result = None
            left = right
        return Unknown("", tags - IDENTITY) if result is None else Known(result, tags - IDENTITY)

    def _ifexp(self, node: ast.IfExp) -> Val:
        test = self.eval(node.test)
        truth = truth_of(test)
        if truth is not None:
            self.decide(node, truth, test.tags)
            return self.eval(node.body if truth else node.orelse)
        values: list[Val] = []

        def take(part: ast.expr) -> None:
            values.append(self.eval(part))

        self.fork(node, lambda: take(node.body), lambda: take(node.orelse), alike=VARIES not in test.tags)
        return merge(values[0], values[1]) if len(values) == 2 else Unknown()

    def _joinedstr(self, node: ast.JoinedStr) -> Val:
        parts = [self.eval(part) for part in node.values]
        tags: frozenset[str] = NONE
        for part in parts:
            tags |= part.tags
        plain = all(isinstance(part, Known) for part in parts) and not any(
            isinstance(part, ast.FormattedValue) and part.format_spec for part in node.values
        )
        if plain:
            return Known("".join(str(part.value) for part in parts if isinstance(part, Known)), tags)
        first = parts[0] if parts else None
        prefix = first.value if isinstance(first, Known) and isinstance(first.value, str) else ""
        return Unknown(f"text {prefix}", tags)

    def _series(self, node: ast.List | ast.Tuple | ast.Set) -> Val:
        items: list[Val] = []
        whole = True
        for part in node.elts:
            value = self.eval(part)
            if isinstance(part, ast.Starred):
                if isinstance(value, Series):
                    items += value.items
                    whole = whole and value.whole
                else:
                    whole = False
            else:
                items.append(value)
        tags: frozenset[str] = NONE
        for item in items:
            tags |= item.tags
        return Series(items, tags - IDENTITY, whole)

    def _dict(self, node: ast.Dict) -> Val:
        table = Table({})
        for key, part in zip(node.keys, node.values, strict=True):
            value = self.eval(part)
            if key is None:
                if isinstance(value, Table):
                    table.entries.update(value.entries)
                continue
            name = self.eval(key)
            if isinstance(name, Known):
                _store(table, name.value, value)
        return table

    def _subscript(self, node: ast.Subscript) -> Val:
        owner = self.eval(node.value)
        key = self.eval(node.slice)
        if isinstance(owner, External):
            if owner.path == "os.environ":
                return library.variable(self, key)
            return Unknown()
        if isinstance(owner, Table) and isinstance(key, Known):
            try:
                value = owner.entries.get(key.value)
            except TypeError:
                value = None
            return value if value is not None else self.by_name(str(key.value)) or Unknown()
        if isinstance(owner, Series):
            if isinstance(key, Known) and isinstance(key.value, int) and (owner.whole or key.value >= 0):
                try:
                    return owner.items[key.value]
                except IndexError:
                    return Unknown("", owner.tags)
            if isinstance(node.slice, ast.Slice):
                return self._slice(owner, node.slice)
            return Unknown("", owner.tags | (key.tags - IDENTITY))
        if isinstance(key, Known) and isinstance(key.value, str):
            return self.by_name(key.value) or Unknown()
        if isinstance(owner, Made) and isinstance(key, Known):
            return Made(f"{owner.path}[{key.value}]", [], {}, owner.node, owner.module, owner.tags)
        return Unknown("", owner.tags - IDENTITY)

    def _slice(self, owner: Series, node: ast.Slice) -> Val:
        bounds = [self.eval(part) if part is not None else Known(None) for part in (node.lower, node.upper, node.step)]
        if owner.whole and all(isinstance(bound, Known) for bound in bounds):
            values = [bound.value for bound in bounds if isinstance(bound, Known)]
            tags = owner.tags
            for bound in bounds:
                tags |= bound.tags - IDENTITY
            try:
                return Series(owner.items[slice(*values)], tags)
            except (TypeError, ValueError):
                return Unknown("", tags)
        return Unknown("", owner.tags)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Val:
        items: list[Val] = []
        whole = True
        for sure in self._rounds(node.generators, 0, [*_parts(node)]):
            items.append(self.eval(node.elt))
            whole = whole and sure
        tags: frozenset[str] = NONE
        for item in items:
            tags |= item.tags
        return Series(items, tags - IDENTITY, whole)

    def _dictcomp(self, node: ast.DictComp) -> Val:
        for _ in self._rounds(node.generators, 0, [*_parts(node)]):
            self.eval(node.key)
            self.eval(node.value)
        return Unknown()

    def _rounds(self, generators: list[ast.comprehension], index: int, parts: list[ast.AST]) -> Iterator[bool]:
        """Bind the loop variables of a comprehension round by round; tells whether the round is sure to happen."""
        if index == len(generators):
            yield True
            return
        generator = generators[index]
        source = self.eval(generator.iter)
        known = isinstance(source, Series) and source.whole and len(source.items) <= ROUNDS
        items = list(source.items) if known and isinstance(source, Series) else [self._one_of(source)]
        for item in items:
            self.assign(generator.target, item, generator.target)
            tests = [truth_of(self.eval(test)) for test in generator.ifs]
            if False in tests:
                continue
            for sure in self._rounds(generators, index + 1, parts):
                yield known and sure and None not in tests

    def _namedexpr(self, node: ast.NamedExpr) -> Val:
        value = self.eval(node.value)
        self.assign(node.target, value, node)
        return value

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> Val:
        if node.value is not None:
            self.eval(node.value)
        return Unknown()


def _parts(node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Iterator[ast.AST]:
    if isinstance(node, ast.DictComp):
        yield node.key
        yield node.value
    else:
        yield node.elt


def _store(table: Table, key: object, value: Val) -> None:
    try:
        table.entries[key] = value
    except TypeError:
        return


def _loaded(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(id=target.id, ctx=ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load())
    if isinstance(target, ast.Subscript):
        return ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load())
    return target


def _is_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in (test.left, *test.comparators)
    )


def is_server(value: Val) -> bool:
    """Whether a value is a web application whose handlers run in threads."""
    return isinstance(value, Made) and bool(SERVERS.search(value.path))


def _is_text(value: Val) -> bool:
    return (isinstance(value, Known) and isinstance(value.value, str)) or (
        isinstance(value, Unknown) and value.name.startswith("text ")
    )


def _compared(op: ast.cmpop, left: Val, right: Val) -> bool | None:
    if isinstance(op, (ast.Is, ast.IsNot)) or (
        isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(right, Known) and right.value is None
    ):
        negated = isinstance(op, (ast.IsNot, ast.NotEq))
        if isinstance(left, Known) and isinstance(right, Known):
            same = left.value is right.value if not isinstance(left.value, (int, str)) else left.value == right.value
            return same is not negated
        if (
            isinstance(right, Known)
            and right.value is None
            and isinstance(left, (Series, Table, Function, Instance, UserClass))
        ):
            return negated
        return None
    if isinstance(op, (ast.In, ast.NotIn)):
        if isinstance(left, Known) and isinstance(right, Series):
            if any(isinstance(item, Known) and item.value == left.value for item in right.items):
                return isinstance(op, ast.In)
            if right.whole and all(isinstance(item, Known) for item in right.items):
                return isinstance(op, ast.NotIn)
            return None
        if isinstance(right, External) and right.path == "os.environ" and isinstance(left, Known):
            there = library.is_set(left.value)
            return None if there is None else there is isinstance(op, ast.In)
        if (
            isinstance(left, Known)
            and isinstance(right, Known)
            and isinstance(left.value, str)
            and isinstance(right.value, str)
        ):
            return (left.value in right.value) is isinstance(op, ast.In)
        return None
    if not (isinstance(left, Known) and isinstance(right, Known)):
        return None
    tags = left.tags | right.tags
    if ASSUMED in tags and VARIES not in tags:
        other = right.value if ASSUMED in left.tags else left.value
        if not isinstance(other, (int, float)) or other > 1:
            at_least_two = other == 2 and isinstance(op, (ast.GtE, ast.Lt)) and ASSUMED in left.tags
            if not at_least_two:
                return None
    try:
        return bool(_COMPARE[type(op)](left.value, right.value))
    except Exception:  # whatever comparing the user's own values raises
        return None


_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _power(left: Any, right: Any) -> Any:
    if abs(left) > 1 and right > 64:
        raise ValueError("too large to be worth knowing")
    return left**right


def _times(left: Any, right: Any) -> Any:
    if isinstance(left, (str, bytes)) or isinstance(right, (str, bytes)):
        raise ValueError("too long to be worth knowing")
    return left * right


def _shifted(left: Any, right: Any) -> Any:
    if right > 64:
        raise ValueError("too large to be worth knowing")
    return left << right


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.LShift: _shifted,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

JOB = NODES * DEVICES
