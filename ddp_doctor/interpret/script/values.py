"""What an expression of a script may stand for. Values are abstract: mostly unknown, sometimes known for one rank."""

from __future__ import annotations

import ast
from typing import Any

NONE: frozenset[str] = frozenset()

# Tags say where a value comes from.
VARIES = "varies"  # differs between ranks
RANK = "rank"  # is the global rank itself
LOCAL = "local"  # is the local rank itself
NODE = "node"  # is the node's number
ARGUMENT = "argument"  # is what a spawned process got as its index
NAMED = "named"  # known by its name only
ASSUMED = "assumed"  # a number this reader made up: a world size, a device count
MODULO = "modulo"  # a rank modulo something
EACH = "each"  # another value in each round of a loop
ENVIRON = "environ"  # read from the environment
FREE = "free"  # a free port or a random number: another one in each process


class Val:
    """Any value."""

    __slots__ = ("tags",)

    def __init__(self, tags: frozenset[str] = NONE) -> None:
        self.tags = tags


class Unknown(Val):
    """A value nothing is known of but perhaps its name."""

    __slots__ = ("attrs", "name")

    def __init__(self, name: str = "", tags: frozenset[str] = NONE) -> None:
        super().__init__(tags)
        self.name = name
        self.attrs: dict[str, Val] = {}


class Known(Val):
    """A number, text, truth value or None."""

    __slots__ = ("value",)

    def __init__(self, value: Any, tags: frozenset[str] = NONE) -> None:
        super().__init__(tags)
        self.value = value


class Series(Val):
    """A list, tuple or range whose items are known; `whole` is False where there may be more."""

    __slots__ = ("items", "whole")

    def __init__(self, items: list[Val], tags: frozenset[str] = NONE, whole: bool = True) -> None:
        super().__init__(tags)
        self.items = items
        self.whole = whole


class Table(Val):
    """A dictionary with known keys."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[Any, Val]) -> None:
        super().__init__()
        self.entries = entries


class External(Val):
    """A name of a module that is not the user's, by its dotted path."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path


class Made(Val):
    """What calling an external name gave."""

    __slots__ = ("args", "attrs", "kwargs", "module", "node", "path")

    def __init__(
        self,
        path: str,
        args: list[Val],
        kwargs: dict[str, Val],
        node: ast.AST,
        module: Any,
        tags: frozenset[str] = NONE,
    ) -> None:
        super().__init__(tags)
        self.path = path
        self.args = args
        self.kwargs = kwargs
        self.node = node
        self.module = module
        self.attrs: dict[str, Val] = {}


class Scope:
    """Names of a module, function or class body."""

    __slots__ = ("foreign", "module", "names", "parent")

    def __init__(self, module: Any, parent: Scope | None) -> None:
        self.names: dict[str, Val] = {}
        self.module = module
        self.parent = parent
        self.foreign: dict[str, Scope] = {}

    def find(self, name: str) -> Val | None:
        """The value a name has here, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.foreign:
                return scope.foreign[name].names.get(name)
            value = scope.names.get(name)
            if value is not None:
                return value
            scope = scope.parent
        return None

    def set(self, name: str, value: Val) -> None:
        """Bind a name here, or where `global` or `nonlocal` says."""
        self.foreign.get(name, self).names[name] = value


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Function(Val):
    """A function, method or lambda of the user's; `bound` is its `self`."""

    __slots__ = ("bound", "defaults", "module", "node", "only", "owner", "scope")

    def __init__(self, node: FunctionNode, scope: Scope, module: Any, bound: Val | None = None) -> None:
        super().__init__()
        self.node = node
        self.scope = scope
        self.module = module
        self.bound = bound
        self.owner: UserClass | None = None
        self.defaults: dict[str, Val] = {}
        self.only: str = ""
        """`rank` or `local` where a decorator lets only the first (local) rank in."""

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")

    def bind(self, receiver: Val | None, owner: UserClass) -> Function:
        copy = Function(self.node, self.scope, self.module, receiver)
        copy.defaults = self.defaults
        copy.only = self.only
        copy.owner = owner
        return copy


class UserClass(Val):
    """A class of the user's."""

    __slots__ = ("bases", "module", "node", "scope")

    def __init__(self, node: ast.ClassDef, scope: Scope, module: Any, bases: list[Val]) -> None:
        super().__init__()
        self.node = node
        self.scope = scope
        self.module = module
        self.bases = bases

    def lookup(self, name: str, seen: int = 0) -> Val | None:
        """An attribute of the class or of its user-made bases."""
        value = self.scope.names.get(name)
        if value is not None or seen > 8:
            return value
        for base in self.bases:
            if isinstance(base, UserClass):
                value = base.lookup(name, seen + 1)
                if value is not None:
                    return value
        return None

    def externals(self, seen: int = 0) -> list[str]:
        """The dotted paths of its foreign bases, near and far."""
        paths = []
        for base in self.bases:
            if isinstance(base, External):
                paths.append(base.path)
            elif isinstance(base, UserClass) and seen < 8:
                paths += base.externals(seen + 1)
        return paths


class Instance(Val):
    """An object of one of the user's classes."""

    __slots__ = ("args", "attrs", "kind", "kwargs", "node")

    def __init__(self, kind: UserClass, node: ast.AST | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.node = node
        self.attrs: dict[str, Val] = {}
        self.args: list[Val] = []
        self.kwargs: dict[str, Val] = {}


class Method(Val):
    """An attribute of something that is not the user's, about to be called."""

    __slots__ = ("name", "receiver")

    def __init__(self, receiver: Val, name: str) -> None:
        super().__init__(receiver.tags - {RANK, LOCAL, NODE})
        self.receiver = receiver
        self.name = name


class Partial(Val):
    """`functools.partial`."""

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Val, args: list[Val], kwargs: dict[str, Val]) -> None:
        super().__init__()
        self.function = function
        self.args = args
        self.kwargs = kwargs


class Super(Val):
    """`super()` inside a method."""

    __slots__ = ("owner", "receiver")

    def __init__(self, owner: UserClass | None, receiver: Val | None) -> None:
        super().__init__()
        self.owner = owner
        self.receiver = receiver


def merge(one: Val | None, other: Val | None) -> Val:
    """What is left to say of a name that is one or the other."""
    if one is other and one is not None:
        return one
    if one is None or other is None:
        value = one if one is not None else other
        assert value is not None
        return value
    if isinstance(one, Known) and isinstance(other, Known) and type(one.value) is type(other.value):
        if one.value == other.value:
            return Known(one.value, one.tags | other.tags)
    elif isinstance(one, Known) and one.value is None:
        return other
    elif isinstance(other, Known) and other.value is None:
        return one
    informative = (Made, Function, Instance, UserClass, Partial, External)
    if isinstance(one, informative):
        return one
    if isinstance(other, informative):
        return other
    name = getattr(one, "name", "") or getattr(other, "name", "")
    return Unknown(name if isinstance(name, str) else "", (one.tags | other.tags) - {RANK, LOCAL, NODE, ARGUMENT})


def text_of(value: Val | None) -> str | None:
    """A known text."""
    return value.value if isinstance(value, Known) and isinstance(value.value, str) else None


def number_of(value: Val | None) -> int | None:
    """A known whole number, also when it is written as text."""
    if not isinstance(value, Known) or isinstance(value.value, bool):
        return None
    if isinstance(value.value, int):
        return value.value
    if isinstance(value.value, str):
        try:
            return int(value.value)
        except ValueError:
            return None
    return None


def truth_of(value: Val) -> bool | None:
    """Whether a value is true, or None where that is not known."""
    if isinstance(value, Known):
        return bool(value.value)
    if isinstance(value, Series):
        return bool(value.items) or (False if value.whole else None)
    if isinstance(value, (Function, UserClass, Instance, Partial)):
        return True
    return None
