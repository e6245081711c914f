"""Where two ranks of one job part company: what one calls and another never does."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from ddp_doctor.interpret.script.process import Choice, Decision, Event, Item, Leave, Loop, Process, Spot, events


@dataclass
class Divergence:
    """A collective that some ranks reach and others do not, and the branch where they part."""

    event: Event
    decision: Decision | None
    reached: set[int] = field(default_factory=set)
    missed: set[int] = field(default_factory=set)
    leaves: Spot | None = None
    """Where ranks leave a loop that others go on with."""
    members: dict[int, str] = field(default_factory=dict)
    """For `new_group`: the members each rank names, where they differ."""

    @property
    def shown(self) -> Spot:
        """The line to show: the call in the function that holds the branch, else the collective itself."""
        if self.leaves is not None:
            return self.leaves
        stack = self.event.stack
        if self.decision is not None and self.decision.depth < len(stack):
            call = stack[self.decision.depth]
            if call[0] is self.decision.spot[0] and _function(call) is _function(self.decision.spot):
                return call
        return self.event.spot


def _function(spot: Spot) -> ast.AST | None:
    module, node = spot
    parent = module.parents.get(node)
    while parent is not None and not isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        parent = module.parents.get(parent)
    return parent


def compare(processes: list[Process]) -> list[Divergence]:
    """Every place where these ranks of one job differ, each once."""
    found: dict[tuple[int, str], Divergence] = {}
    by_condition: set[tuple[int, int]] = set()
    if len({process.rank for process in processes}) < 2:
        return []
    first, *others = processes
    for other in others:
        one, two = _shared(first, other), _shared(other, first)
        for mine, theirs, items in _differences(one, two, first, other):
            _note(found, by_condition, mine, theirs, items)
    return list(found.values())


def _note(
    found: dict[tuple[int, str], Divergence],
    by_condition: set[tuple[int, int]],
    mine: Process,
    theirs: Process,
    item: tuple[Event, Leave | None, Event | None],
) -> None:
    event, leave, other = item
    before = leave.decisions if leave is not None else event.decisions
    decision = _parting(mine, theirs, before)
    kind = "members" if other is not None else "leave" if leave is not None else "missing"
    key = (id(event.spot[1]), kind)
    if key not in found:
        if decision is not None and kind == "missing":
            branch = (id(decision.spot[1]), id(_function(decision.spot)))
            if branch in by_condition:
                return  # the ranks hang at the first of them
            by_condition.add(branch)
        found[key] = Divergence(event, decision, leaves=leave.spot if leave is not None else None)
    divergence = found[key]
    if leave is not None:
        divergence.reached.add(theirs.rank)
        divergence.missed.add(mine.rank)
    else:
        divergence.reached.add(mine.rank)
        divergence.missed.add(theirs.rank)
    if other is not None:
        divergence.members.update({mine.rank: event.members, theirs.rank: other.members})


def _parting(mine: Process, theirs: Process, before: int) -> Decision | None:
    """The last branch before the event that the other rank took the other way."""
    taken: dict[int, set[bool]] = {}
    for decision in theirs.decisions:
        taken.setdefault(id(decision.spot[1]), set()).add(decision.taken)
    for decision in reversed(mine.decisions[:before]):
        if taken.get(id(decision.spot[1])) == {not decision.taken}:
            return decision
    return None


def _shared(process: Process, other: Process) -> list[Item]:
    """What a rank did, less what concerns groups that the other is no member of, and less what cannot matter."""
    return _tidy(process.trace, process.rank, other.rank, in_loop=False)


def _tidy(items: list[Item], rank: int, other: int, *, in_loop: bool) -> list[Item]:
    kept: list[Item] = []
    for index, item in enumerate(items):
        if isinstance(item, Event):
            if item.ranks is None or (rank in item.ranks and other in item.ranks):
                kept.append(item)
        elif isinstance(item, Choice):
            then = _tidy(item.then, rank, other, in_loop=in_loop)
            otherwise = _tidy(item.other, rank, other, in_loop=in_loop)
            if in_loop and not any(True for _ in events(items[index + 1 :])):
                then, otherwise = _without_continue(then), _without_continue(otherwise)
            if then or otherwise:
                kept.append(Choice(item.node, then, otherwise))
        elif isinstance(item, Loop):
            body = _tidy(item.body, rank, other, in_loop=True)
            if any(True for _ in events(body)):
                kept.append(Loop(item.node, body))
        elif in_loop:
            kept.append(item)
    return kept


def _without_continue(items: list[Item]) -> list[Item]:
    return [item for item in items if not (isinstance(item, Leave) and item.how == "continue")]


Difference = tuple[Process, Process, tuple[Event, Leave | None, Event | None]]


def _differences(
    one: list[Item], two: list[Item], first: Process, second: Process, loop: list[Item] | None = None
) -> list[Difference]:
    """`loop` is the body of the loop these items stand in."""
    keys_one, keys_two = [item.key for item in one], [item.key for item in two]
    if keys_one == keys_two:
        return []
    found: list[Difference] = []
    for tag, a, b, c, d in SequenceMatcher(None, keys_one, keys_two, autojunk=False).get_opcodes():
        if tag != "equal":
            found += _unequal(one[a:b], two[c:d], first, second, loop or [])
    return found


def _unequal(
    mine: list[Item], theirs: list[Item], first: Process, second: Process, loop: list[Item]
) -> list[Difference]:
    found: list[Difference] = []
    left, right = list(mine), list(theirs)
    for item in mine:
        twin = next((other for other in right if _twins(item, other)), None)
        if twin is None:
            continue
        left.remove(item)
        right.remove(twin)
        if isinstance(item, Loop) and isinstance(twin, Loop):
            found += _differences(item.body, twin.body, first, second, [*item.body, *twin.body])
        elif isinstance(item, Choice) and isinstance(twin, Choice):
            found += _differences(item.then, twin.then, first, second, loop)
            found += _differences(item.other, twin.other, first, second, loop)
        elif isinstance(item, Event) and isinstance(twin, Event):
            found.append((first, second, (item, None, twin)))
    only_first = list(events(left))
    only_second = list(events(right))
    if any(not isinstance(item, Event) for item in (*left, *right)):
        # under conditions that cannot be decided both may well call the same
        ops = {(event.op, event.group) for event in only_first} & {(event.op, event.group) for event in only_second}
        only_first = [event for event in only_first if (event.op, event.group) not in ops]
        only_second = [event for event in only_second if (event.op, event.group) not in ops]
    if only_first and only_second and len(only_first) == len(only_second):
        only_second = []  # each calls something else at the same point: one fault
    found += [(first, second, (event, None, None)) for event in only_first]
    found += [(second, first, (event, None, None)) for event in only_second]
    if not only_first and not only_second:
        anchor = next(iter(events(loop)), None)
        for process, other, rest in ((first, second, left), (second, first, right)):
            for leave in _leaves(rest):
                if anchor is not None:
                    found.append((process, other, (anchor, leave, None)))
    return found


def _leaves(items: list[Item]) -> list[Leave]:
    found = []
    for item in items:
        if isinstance(item, Leave):
            found.append(item)
        elif isinstance(item, Choice):
            found += _leaves(item.then) + _leaves(item.other)
    return found


def _twins(one: Item, other: Item) -> bool:
    """Whether two items stand for the same place in the script."""
    if isinstance(one, Event) and isinstance(other, Event):
        return one.op == other.op == "new_group" and one.spot == other.spot
    if isinstance(one, (Loop, Choice)) and type(one) is type(other):
        return isinstance(other, (Loop, Choice)) and one.node is other.node
    return False
