"""Turns what the imagined processes did into facts about the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, TypeVar

from ddp_doctor.facts.script import (
    ConditionalCollective,
    DeviceChoice,
    ForkStart,
    GroupCreation,
    GroupStart,
    MaskAssignment,
    Place,
    PortChoice,
    ScriptFact,
    SpawnCall,
    ThreadedStart,
)
from ddp_doctor.interpret.script import rewrite
from ddp_doctor.interpret.script.compare import Divergence, compare
from ddp_doctor.interpret.script.library import mask_size
from ddp_doctor.interpret.script.process import Device, Init, Launch, Process, Spot, ThreadRun, events
from ddp_doctor.interpret.script.source import Module
from ddp_doctor.interpret.script.values import (
    ARGUMENT,
    ASSUMED,
    EACH,
    ENVIRON,
    FREE,
    LOCAL,
    MODULO,
    NAMED,
    RANK,
    VARIES,
    Known,
    Val,
    number_of,
)
from ddp_doctor.interpret.script.vocabulary import COLLECTIVES
from ddp_doctor.interpret.script.walk import Walker

LOCAL_RANK = 'int(os.environ["LOCAL_RANK"])'
S = TypeVar("S", bound=ScriptFact)


def place(spot: Spot) -> Place:
    """A spot, quoted."""
    module, node = spot
    return module.place(node)


def once(facts: Iterator[S]) -> list[S]:
    """The facts without repetitions of the same kind at the same place."""
    seen: dict[tuple[str, str], S] = {}
    for fact in facts:
        seen.setdefault((fact.kind(), fact.at.source), fact)
    return list(seen.values())


def show(walkers: list[Walker]) -> list[ScriptFact]:
    """Every fact. `walkers` walked the same script for different ranks; only the first walked its children."""
    first = walkers[0]
    facts: list[ScriptFact] = []
    for process in first.processes:
        facts += once(threads(process))
        facts += once(launches(process))
        facts += once(masks(process))
        facts += once(groups(process, first))
    facts += once(devices(first.processes))
    facts += ports(walkers)
    facts += once(divergences(walkers))
    return once(iter(facts))


# --- threads


def threads(process: Process) -> Iterator[ThreadedStart]:
    """Ranks and launchers started in threads of a process."""
    runs = [run for run in process.threads if run.inits]
    inits = [init for init in process.inits if init.thread is not None]
    own = {
        number
        for init in process.inits
        if init.rank is not None and not init.rank.tags & {ENVIRON, NAMED, RANK}
        for number in [number_of(init.rank)]
        if number is not None
    }
    if inits:
        yield _rank_threads(runs, inits, own)
    for run in process.threads:
        for spot, name in run.launches[:1]:
            module, made = run.made
            diff = None if run.handler else rewrite.thread_to_call(module, made)
            yield ThreadedStart(
                at=place(run.made),
                what="launcher",
                how=run.how,
                function=run.function,
                call=place(spot),
                launcher=name,
                proven=run.certain,
                rewrite=diff,
            )


def _rank_threads(runs: list[ThreadRun], inits: list[Init], ranks: set[int]) -> ThreadedStart:
    run = runs[0]
    init = inits[0]
    tags = frozenset().union(*(one.rank.tags for one in inits if one.rank is not None))
    source: Literal["each-thread", "environment", "literal", "unknown"]
    if len(ranks) > 1 or (init.rank is not None and EACH in init.rank.tags):
        source = "each-thread"
    elif init.rank is None or tags & {ENVIRON, NAMED, RANK}:
        source = "environment"
    elif len(ranks) == 1:
        source = "literal"
    else:
        source = "unknown"
    module, made = run.made
    diff, lines = rewrite.threads_to_spawn(module, made) if source == "each-thread" else (None, ())
    return ThreadedStart(
        at=place(run.made),
        what="rank",
        how=run.how,
        function=run.function,
        call=place(init.spot),
        ranks=tuple(sorted(ranks)),
        rank_from=source,
        proven=len(ranks) > 1
        and not tags & {ASSUMED, NAMED, EACH}
        and all(one.certain for one in inits)
        and all(one.certain for one in runs),
        rewrite=diff,
        lines=lines,
    )


# --- processes


def launches(process: Process) -> Iterator[SpawnCall | ForkStart]:
    """Processes started by this one."""
    for launch in process.launches:
        joins = any(child.inits or list(events(child.trace)) for child in launch.children)
        if process.key == ("main",) and launch.method != "fork" and (launch.method != "default" or joins):
            yield SpawnCall(
                at=place(launch.spot),
                api=launch.api,
                method=launch.method,
                guarded=launch.guarded,
                processes=launch.processes,
                proven=launch.certain,
                rewrite=None if launch.guarded else rewrite.guarded(launch.spot[0], launch.top),
            )
        child = next((child for child in launch.children if child.own_cuda is not None), None)
        if launch.inherited is not None and child is not None and child.own_cuda is not None:
            yield ForkStart(
                at=place(launch.spot),
                api=launch.api,
                method="default" if launch.method == "default" else "fork",
                parent=place(launch.inherited.spot),
                parent_call=launch.inherited.call,
                child=place(child.own_cuda.spot),
                child_call=child.own_cuda.call,
                only_asked=launch.inherited.only_asked,
                proven=launch.certain and launch.inherited.certain and child.own_cuda.certain,
                rewrite=_spawned_instead(launch),
            )


def _spawned_instead(launch: Launch) -> str | None:
    """Use the spawn method: a changed literal, or one more line where the default was used under a main guard."""
    module, _ = launch.spot
    if not launch.guarded or launch.api in ("os.fork", "notebook_launcher"):
        return None
    for part in ast.walk(module.tree):
        if isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if name in ("get_context", "set_start_method"):
                for argument in [*part.args, *(keyword.value for keyword in part.keywords)]:
                    if isinstance(argument, ast.Constant) and argument.value == "fork":
                        return rewrite.replaced(module, argument, '"spawn"')
                return None
    if launch.method != "default" or launch.top is None:
        return None
    body = launch.top.body[0] if isinstance(launch.top, ast.If) else None
    if body is None:
        return None
    line = 'multiprocessing.set_start_method("spawn")'
    return rewrite.inserted_before(module, body, line, ("import multiprocessing",))


# --- devices


def masks(process: Process) -> Iterator[MaskAssignment]:
    """Assignments of CUDA_VISIBLE_DEVICES."""
    joined = bool(process.inits or process.launches or list(events(process.trace)))
    for mask in process.masks:
        module, node = mask.spot
        owner = rewrite.statement(module, node)
        yield MaskAssignment(
            at=place(mask.spot),
            value=_value_text(owner, module),
            per_rank=VARIES in mask.value.tags,
            devices=mask_size(mask.value) if VARIES not in mask.value.tags else 1,
            after=place(mask.after.spot) if mask.after else None,
            after_call=mask.after.call if mask.after else "",
            only_asked=bool(mask.after and mask.after.only_asked),
            index=place(mask.index) if mask.index else None,
            index_text=mask.index_text,
            same_value=mask.same_value,
            distributed=joined,
            proven=mask.certain and bool(mask.after and mask.after.certain),
            rewrite=rewrite.removed(module, node) if mask.index and mask.same_value else None,
        )


def _value_text(node: ast.AST | None, module: Module) -> str:
    if isinstance(node, ast.Assign):
        return module.segment(node.value)
    return module.segment(node) if node is not None else ""


def devices(processes: list[Process]) -> Iterator[DeviceChoice]:
    """Devices chosen by number, and where the number comes from."""
    choices = [(process, device) for process in processes for device in process.devices]
    rewrites = _local_instead([device for process, device in choices if _origin(process, device) == "global-rank"])
    for process, device in choices:
        origin = _origin(process, device)
        yield DeviceChoice(
            at=place(device.spot),
            call=device.call,
            origin=origin,
            rewrite=rewrites.get(device.spot[0]) if origin == "global-rank" else None,
        )


Origin = Literal["local-rank", "global-rank", "argument", "literal", "modulo", "other"]


def _origin(process: Process, device: Device) -> Origin:
    tags = device.value.tags
    if MODULO in tags:
        return "modulo"
    if RANK in tags and NAMED not in tags and process.started_by == "launcher" and not process.named:
        return "global-rank"
    if LOCAL in tags:
        return "local-rank"
    if ARGUMENT in tags:
        return "argument"
    return "literal" if isinstance(device.value, Known) and not tags else "other"


def _local_instead(devices: list[Device]) -> dict[Module, str | None]:
    """For each file, the local rank in place of the global one wherever it chooses a device."""
    found: dict[Module, list[tuple[ast.expr, str]]] = {}
    for device in devices:
        module, node = device.spot
        places = found.setdefault(module, [])
        for argument in _device_arguments(device.call, node):
            if isinstance(argument, ast.Name) or (isinstance(argument, ast.Call) and not argument.args):
                places.append((argument, LOCAL_RANK))
            elif isinstance(argument, ast.JoinedStr) and len(argument.values) == 2:
                places.append((argument, """f"cuda:{os.environ['LOCAL_RANK']}\""""))
    return {
        module: rewrite.all_replaced(module, list(dict(places).items()), ("import os",)) if places else None
        for module, places in found.items()
    }


def _device_arguments(call: str, node: ast.AST) -> list[ast.expr]:
    """The arguments of a call that say which device."""
    if not isinstance(node, ast.Call):
        return []
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    if call == "device_ids=":
        devices = named.get("device_ids")
        return list(devices.elts) if isinstance(devices, ast.List) else []
    if call in ("torch.cuda.set_device", ".cuda()", "torch.device", ".to()", "torch.cuda.device"):
        given = node.args[-1:] if call == "torch.device" else node.args[:1]
        return given or [value for name, value in named.items() if name == "device"]
    return [value for name, value in named.items() if name in ("device", "device_id")]


# --- groups


def groups(process: Process, walker: Walker) -> Iterator[GroupStart]:
    """Calls of init_process_group outside threads."""
    literals = {number_of(init.rank) for init in process.inits if _is_literal(init.rank)}
    siblings = _siblings(process, walker)
    for init in process.inits:
        if init.thread is not None or init.backend == "fake":
            continue
        module, node = init.spot
        rank = number_of(init.rank)
        world = number_of(init.world) if init.world is not None and ASSUMED not in init.world.tags else None
        literal = _is_literal(init.rank)
        chosen = bool(process.devices) or process.kept_device or process.opaque > 0 or process.named
        chosen = chosen or any(VARIES in mask.value.tags for mask in process.masks)
        if process.started_by == "launcher":
            same = literal and len(literals) == 1 and world != 1 and not process.launches and not process.named
        else:
            theirs = [number_of(init.rank) if init.rank is not None else None for init in siblings]
            same = literal and len(theirs) > 1 and len(set(theirs)) == 1
        default = process.default_cuda[0] if process.default_cuda else None
        yield GroupStart(
            at=place(init.spot),
            backend=init.backend or "",
            started_by=process.started_by,
            rank=rank if literal else None,
            rank_from=_rank_from(init.rank),
            world_size=world,
            processes=process.world if process.proven_size else None,
            device_chosen=chosen,
            default_device=place(default) if default else None,
            same_rank=same,
            rank_place=place(init.rank_spot) if init.rank_spot and literal else None,
            rank_rewrite=_own_rank(process, init) if same else None,
            device_rewrite=None
            if chosen or process.started_by != "launcher"
            else rewrite.inserted_before(
                module, node, f"torch.cuda.set_device({LOCAL_RANK})", ("import os", "import torch")
            ),
        )


def _siblings(process: Process, walker: Walker) -> list[Init]:
    return [
        init
        for other in walker.processes
        if other.key == process.key
        for init in other.inits
        if init.thread is None and process.inits and init.spot == process.inits[0].spot
    ]


def _is_literal(rank: Val | None) -> bool:
    return number_of(rank) is not None and rank is not None and not rank.tags


def _rank_from(rank: Val | None) -> Literal["environment", "literal", "argument", "unknown"]:
    if rank is None or ENVIRON in rank.tags:
        return "environment"
    if _is_literal(rank):
        return "literal"
    return "argument" if rank.tags & {ARGUMENT, VARIES} else "unknown"


def _own_rank(process: Process, init: Init) -> str | None:
    """The rank from the environment, or from the worker's first argument, in place of the literal.

    A launcher's RANK that the script sets over is left as the launcher set it.
    """
    if init.rank_spot is None:
        return None
    module, node = init.rank_spot
    literal: ast.expr | None = None
    variable = False
    if isinstance(node, ast.Call):
        literal = next((keyword.value for keyword in node.keywords if keyword.arg == "rank"), None)
    owner = rewrite.statement(module, node)
    if literal is None and isinstance(owner, ast.Assign) and len(owner.targets) == 1:
        variable = isinstance(owner.targets[0], ast.Subscript)
        literal = owner.value if variable else None
    if variable and process.started_by == "launcher":
        return rewrite.removed(module, node)
    if not isinstance(literal, ast.Constant):
        return None
    if process.started_by == "launcher":
        return rewrite.replaced(module, literal, 'int(os.environ["RANK"])', ("import os",))
    current: ast.AST | None = owner
    while current is not None and not isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)):
        current = module.parents.get(current)
    if isinstance(current, (ast.FunctionDef, ast.AsyncFunctionDef)) and current.args.args:
        first = current.args.args[0].arg
        return rewrite.replaced(module, literal, f"str({first})" if variable else first)
    return None


def ports(walkers: list[Walker]) -> list[PortChoice]:
    """Ports and addresses that each rank would choose by itself."""
    found: dict[str, PortChoice] = {}
    mains = [{id(init.spot[1]) for init in walker.process.inits if _own_choice(init, walker)} for walker in walkers]
    for process in walkers[0].processes:
        for init in process.inits:
            if init.thread is not None or init.port is None or init.port_spot is None:
                continue
            if _alone(init):
                continue
            chosen = _own_choice(init, walkers[0])
            if process.started_by == "launcher":
                if chosen is None or process.launches or any(id(init.spot[1]) not in spots for spots in mains):
                    continue
            elif chosen is None or (chosen[0] is not process and process.started_by == "fork"):
                continue
            module, node = init.port_spot
            owner = rewrite.statement(module, node)
            name = "MASTER_PORT" if isinstance(owner, ast.Assign) else "init_method"
            removable = process.started_by == "launcher" and isinstance(owner, ast.Assign)
            fact = PortChoice(
                at=place(init.port_spot),
                variable=name,
                chosen=chosen[2],
                started_by=process.started_by,
                proven=process.proven_size and init.certain,
                rewrite=rewrite.removed(module, node) if removable else None,
            )
            found.setdefault(fact.at.source, fact)
    return list(found.values())


def _alone(init: Init) -> bool:
    return init.world is not None and number_of(init.world) == 1 and ASSUMED not in init.world.tags


def _own_choice(init: Init, walker: Walker) -> tuple[Process, Spot, str] | None:
    if init.port is None or FREE not in init.port.tags:
        return None
    for tag in init.port.tags:
        if tag.startswith("by:"):
            return walker.free_calls[int(tag[3:])]
    return None


# --- collectives


def divergences(walkers: list[Walker]) -> Iterator[ConditionalCollective | GroupCreation]:
    """Collectives that some ranks reach and others do not."""
    jobs: dict[tuple[object, ...], list[Process]] = {}
    for walker in walkers:
        for process in walker.processes:
            jobs.setdefault(process.key, []).append(process)
    for processes in jobs.values():
        if processes[0].named and "distributed.rpc" in walkers[0].sources.main.text:
            continue  # roles that call each other: which of them forms a group shows only at run time
        opaque = any(process.opaque or process.named for process in processes)
        for divergence in compare(processes):
            if divergence.decision is None and not divergence.members:
                continue  # without the branch where the ranks part there is nothing to show
            yield _divergence(divergence, opaque)


def _divergence(divergence: Divergence, opaque: bool) -> ConditionalCollective | GroupCreation:
    event, decision = divergence.event, divergence.decision
    shown = divergence.shown
    inner = None if shown == event.spot else place(event.spot)
    condition = place(decision.spot) if decision is not None else None
    named = decision is None or decision.named
    proven = not (opaque or named or event.unsure or divergence.leaves is not None)
    diff = None
    if decision is not None and decision.spot[0] is shown[0] and divergence.leaves is None and decision.taken:
        diff = rewrite.out_of_condition(shown[0], decision.spot[1], shown[1])
    leaving = _leaving(decision.spot, shown) if decision is not None and divergence.leaves is None else None
    if leaving is not None and decision is not None:
        diff = rewrite.before_condition(shown[0], decision.spot[1], shown[1], COLLECTIVES)
    if event.op == "new_group":
        return GroupCreation(
            at=place(shown),
            fault="different-members" if divergence.members else "some-ranks",
            inner=inner,
            condition=condition,
            members=tuple(sorted(divergence.members.items())),
            proven=proven or (bool(divergence.members) and not opaque),
            rewrite=diff,
        )
    return ConditionalCollective(
        at=place(shown),
        call=event.op,
        inner=inner,
        condition=condition,
        reached_by=tuple(sorted(divergence.reached)),
        missed_by=tuple(sorted(divergence.missed)),
        leaving=ast.unparse(leaving) if leaving is not None else "",
        proven=proven,
        rewrite=diff,
    )


def _leaving(condition: Spot, call: Spot) -> ast.stmt | None:
    """The statement by which some ranks leave at a condition, where the call stands behind it."""
    module, node = condition
    if module is not call[0] or not isinstance(node, ast.If):
        return None
    current: ast.AST | None = call[1]
    while current is not None and current is not node:
        current = module.parents.get(current)
    if current is node:
        return None
    ends = [branch[-1] for branch in (node.body, node.orelse) if branch]
    leaves = [end for end in ends if isinstance(end, (ast.Return, ast.Continue, ast.Raise)) or _exits(end)]
    return leaves[0] if len(leaves) == 1 else None


def _exits(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("sys.exit", "exit", "quit", "os._exit")
    )
