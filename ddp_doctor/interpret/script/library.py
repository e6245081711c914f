"""What calls of torch, the launchers and the standard library do to an imagined process."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from typing import TYPE_CHECKING

from ddp_doctor.interpret.script import starts, vocabulary as words
from ddp_doctor.interpret.script.process import DEFAULT, DEVICES, CudaUse, Device, Init, Mask
from ddp_doctor.interpret.script.values import (
    ARGUMENT,
    ASSUMED,
    ENVIRON,
    FREE,
    LOCAL,
    MODULO,
    NODE,
    NONE,
    RANK,
    VARIES,
    External,
    Function,
    Instance,
    Known,
    Made,
    Partial,
    Series,
    Super,
    Table,
    Unknown,
    Val,
    number_of,
    text_of,
    truth_of,
)

if TYPE_CHECKING:
    from ddp_doctor.interpret.script.walk import Walker

BUILTINS = frozenset(dir(builtins))
WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*\d{4,}")
SAFE_TEXT_METHODS = frozenset(
    {"strip", "lower", "upper", "startswith", "endswith", "isdigit", "removeprefix", "removesuffix"}
)
RUNNERS = frozenset(
    {"fire.Fire", "typer.run", "absl.app.run", "torch.distributed.elastic.multiprocessing.errors.record"}
)


# --- the environment


def is_set(name: object) -> bool | None:
    """Whether a variable is in the environment of a rank that torchrun started."""
    if name in words.TORCHRUN_VARIABLES:
        return True
    if name in words.RANK_VARIABLES | words.LOCAL_VARIABLES | words.WORLD_VARIABLES | words.NODE_VARIABLES:
        return False
    return None


def variable(walker: Walker, key: Val, default: Val | None = None) -> Val:
    """The value of an environment variable for this rank."""
    name = text_of(key)
    process = walker.process
    if name is None:
        return Unknown()
    if name in process.env:
        return process.env[name]
    if name in words.RANK_VARIABLES:
        return Known(str(process.rank), frozenset({VARIES, RANK, ENVIRON}))
    if name in words.LOCAL_VARIABLES:
        return Known(str(process.local), frozenset({VARIES, LOCAL, ENVIRON}))
    if name in words.WORLD_VARIABLES:
        return Known(str(process.world), frozenset({ASSUMED, ENVIRON}))
    if name == "LOCAL_WORLD_SIZE":
        return Known(str(DEVICES), frozenset({ASSUMED, ENVIRON}))
    if name in words.NODE_VARIABLES:
        return Known(str(process.node), frozenset({VARIES, NODE, ENVIRON}))
    if default is not None and name not in ("MASTER_ADDR", "MASTER_PORT"):
        return Unknown(name, default.tags - {FREE})
    return Unknown(name)


def set_variable(walker: Walker, key: Val, value: Val, node: ast.AST, *, only_if_missing: bool = False) -> None:
    """The script sets a variable of its own environment."""
    name = text_of(key)
    process = walker.process
    if name is None:
        return
    if only_if_missing and (name in process.env or (process.started_by == "launcher" and is_set(name))):
        return
    process.env[name] = value
    process.env_spots[name] = walker.spot(node)
    if name == "CUDA_VISIBLE_DEVICES":
        mask = Mask(walker.spot(node), value, "", process.first_cuda, walker.unsure == 0)
        process.masks.append(mask)


# --- CUDA


def use_cuda(walker: Walker, node: ast.AST, call: str, *, only_asked: bool = False) -> None:
    """A call initialises CUDA, or only asks the driver for its devices."""
    process = walker.process
    use = CudaUse(walker.spot(node), call, walker.unsure == 0, only_asked)
    if only_asked:
        process.asked = process.asked or use
    else:
        process.cuda = process.cuda or use
        process.own_cuda = process.own_cuda or use


def choose_device(walker: Walker, node: ast.AST, call: str, value: Val) -> None:
    """A device is chosen by its number."""
    process = walker.process
    process.devices.append(Device(walker.spot(node), call, value))
    mask = process.masks[-1] if process.masks else None
    if mask is None or mask.index is not None:
        return
    number = _index(value)
    masked = mask.value
    devices = mask_size(masked)
    if number is None or (not isinstance(masked, Known) and VARIES not in masked.tags):
        return
    same = VARIES in masked.tags and VARIES in value.tags and MODULO not in value.tags | masked.tags
    same = same and (number_of(masked) == number or not isinstance(masked, Known))
    fixed = VARIES not in masked.tags and (VARIES not in value.tags or process.proven_size)
    beyond = fixed and devices is not None and 0 < devices <= number and ASSUMED not in value.tags
    if same or beyond:
        mask.index, mask.index_text, mask.same_value = walker.spot(node), call, same


def mask_size(value: Val) -> int | None:
    """How many devices a mask names, where its text is known."""
    text = text_of(value)
    if text is None:
        return None
    return len([part for part in text.split(",") if part.strip()])


def _index(value: Val) -> int | None:
    """The device number in `1`, `"cuda:1"` or a device."""
    if isinstance(value, Made) and value.path == "torch.device":
        if len(value.args) > 1:
            return number_of(value.args[1])
        value = value.args[0] if value.args else value
    text = text_of(value)
    if text is not None and ":" in text:
        tail = text.rsplit(":", 1)[1]
        return int(tail) if tail.isdigit() else None
    return number_of(value)


def _is_cuda(value: Val) -> bool:
    if isinstance(value, Made) and value.path == "torch.device":
        return bool(value.args) and (
            _is_cuda(value.args[0]) or (isinstance(value.args[0], Known) and number_of(value.args[0]) is not None)
        )
    text = text_of(value)
    if text is not None:
        return text.startswith("cuda")
    if isinstance(value, Unknown):
        return value.name.startswith("text cuda")
    return (
        isinstance(value, Known) and isinstance(value.value, int) and bool(value.tags & {RANK, LOCAL, ARGUMENT, MODULO})
    )


def _numbered(value: Val) -> bool:
    """Whether a CUDA device value names one device."""
    if isinstance(value, Made) and value.path == "torch.device":
        return len(value.args) > 1 or (bool(value.args) and _numbered(value.args[0]))
    text = text_of(value)
    if text is not None:
        return ":" in text
    return not (isinstance(value, Known) and isinstance(value.value, str))


def place_on(walker: Walker, node: ast.AST, call: str, value: Val) -> None:
    """Something is put on a device."""
    if not _is_cuda(value):
        return
    use_cuda(walker, node, call)
    if _numbered(value):
        if not (isinstance(value, Made) and value.path == "torch.device"):
            choose_device(walker, node, call, value)
    else:
        walker.process.default_cuda.append(walker.spot(node))


# --- groups


def group_of(walker: Walker, value: Val | None) -> tuple[str, tuple[int, ...] | None] | None:
    """A group's name and known members; `default` for everybody; None where it cannot be told."""
    if value is None or (isinstance(value, Known) and value.value is None):
        return (DEFAULT, None)
    if isinstance(value, External) and value.path.endswith((".WORLD", ".group.WORLD")):
        return (DEFAULT, None)
    if isinstance(value, Made):
        if value.path.endswith("._get_default_group"):
            return (DEFAULT, None)
        members = value.attrs.get(" members")
        if isinstance(members, Known):
            line = getattr(value.node, "lineno", 0)
            return (f"{line}:{members.value}", members.value)
    return None


def collective(walker: Walker, op: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST, position: int) -> Val:
    """A collective of torch.distributed."""
    given = kwargs.get("group", kwargs.get("process_group"))
    if given is None and 0 <= position < len(args):
        given = args[position]
    group = group_of(walker, given) if position >= 0 else (DEFAULT, None)
    if group is not None:
        name, members = group
        if members is None or walker.process.rank in members:
            walker.event(op, node, name, ranks=members, touched=[*args, *kwargs.values()])
    return Unknown()


def new_group(walker: Walker, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    """`new_group`: every rank of the default group has to call it, with the same members."""
    ranks = kwargs.get("ranks", args[0] if args else None)
    made = Made("torch.distributed.new_group", args, kwargs, node, walker.module)
    members = "?"
    if ranks is None or (isinstance(ranks, Known) and ranks.value is None):
        members = "everybody"
        made.attrs[" members"] = Known(tuple(range(walker.process.world)))
    elif isinstance(ranks, Series) and ranks.whole:
        numbers = [number_of(item) for item in ranks.items]
        if all(number is not None for number in numbers):
            made.attrs[" members"] = Known(tuple(sorted(number for number in numbers if number is not None)))
            # a group of the rank alone works: nobody looks for anybody else's keys
            members = "one rank" if len(numbers) == 1 else str(numbers)
    local = kwargs.get("use_local_synchronization")
    if local is None or truth_of(local) is False:
        walker.event("new_group", node, members=members)
    return made


def init_group(walker: Walker, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    """`init_process_group`."""
    process = walker.process

    def given(name: str, position: int) -> Val | None:
        value = kwargs.get(name, args[position] if len(args) > position else None)
        return None if isinstance(value, Known) and value.value in (-1, None, "") else value

    rank, world = given("rank", 4), given("world_size", 3)
    rank_spot = walker.spot(node)
    if rank is None and "RANK" in process.env:
        rank, rank_spot = process.env["RANK"], process.env_spots["RANK"]
    if world is None and "WORLD_SIZE" in process.env:
        world = process.env["WORLD_SIZE"]
    method = given("init_method", 1)
    port: Val | None = method
    port_spot = walker.spot(node)
    if method is None or text_of(method) == "env://":
        variable_name = next(
            (name for name in ("MASTER_PORT", "MASTER_ADDR") if name in process.env and FREE in process.env[name].tags),
            None,
        )
        port = process.env[variable_name] if variable_name else None
        port_spot = process.env_spots[variable_name] if variable_name else port_spot
    device = kwargs.get("device_id")
    if device is not None:
        choose_device(walker, node, "device_id=", device)
    init = Init(
        walker.spot(node),
        text_of(given("backend", 0)),
        rank,
        rank_spot,
        world,
        port,
        port_spot,
        walker.unsure == 0,
        walker.thread,
    )
    process.inits.append(init)
    if walker.thread is not None:
        walker.thread.inits.append(init)
    number, size = number_of(rank), number_of(world)
    if process.started_by in ("spawn", "fork", "forkserver") and number is not None and not walker.thread:
        process.rank = number
    if size is not None and world is not None and ASSUMED not in world.tags and process.started_by != "launcher":
        process.world = size
    process.initialized = True
    if world is None or rank is None or process.started_by != "launcher":
        walker.event("init_process_group", node)  # else a part of the ranks may well make a group of their own
    return Known(None)


# --- calls


def external_call(walker: Walker, path: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    """A call of a foreign function or class."""
    if path.startswith("torch.multiprocessing.") and path not in words.SPAWN_PATHS:
        path = path[6:]
    root = path.split(".", 1)[0]
    if root == "builtins":
        return _builtin(walker, path[9:], args, kwargs, node)
    if root == "os":
        return _os_call(walker, path, args, kwargs, node)
    if path.startswith(words.DEVICE_KEEPERS):
        walker.process.kept_device = True
    if root == "torch":
        answer = _torch_call(walker, path, args, kwargs, node)
        if answer is not None:
            return answer
    started = starts.external(walker, path, args, kwargs, node)
    if started is not None:
        return started
    if path in words.COLLECTIVE_PATHS:
        alone = kwargs.get("no_dist")
        group = group_of(walker, kwargs.get("process_group"))
        sharded = not path.startswith(words.STATE_OF_A_MODEL) or (
            bool(args) and isinstance(args[0], Made) and args[0].path in words.FSDP_PATHS
        )
        if sharded and (alone is None or truth_of(alone) is False) and group == (DEFAULT, None):
            walker.event(path.rsplit(".", 1)[-1], node, touched=args)
        return Made(path, args, kwargs, node, walker.module)
    op = words.collective(path)
    if op is not None:
        return _distributed(walker, op, args, kwargs, node)
    if path == "functools.partial" and args:
        return Partial(args[0], args[1:], kwargs)
    if path in RUNNERS and args and isinstance(args[0], Function):
        return walker.call(args[0], [], {}, node)
    if path == "sys.exit":
        from ddp_doctor.interpret.script.walk import Stop

        raise Stop
    if words.FREE_CALLS.search(path) or path in words.RANDOM_PATHS:
        return starts.free_value(walker, node, path)
    if root not in words.KNOWN_ROOTS and root not in sys.stdlib_module_names:
        walker.process.opaque += 1
        named = named_call(walker, path.rsplit(".", 1)[-1], args, node)
        if not (isinstance(named, Unknown) and not named.name):
            return named
    return Made(path, args, kwargs, node, walker.module)


def _distributed(walker: Walker, op: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    if op == "init_process_group":
        return init_group(walker, args, kwargs, node)
    if op == "new_group":
        return new_group(walker, args, kwargs, node)
    return collective(walker, op, args, kwargs, node, words.COLLECTIVES[op])


def _torch_call(walker: Walker, path: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val | None:
    process = walker.process
    if path.startswith("torch.cuda."):
        return _cuda_call(walker, path[11:], args, node)
    if path.startswith("torch.distributed."):
        name = path.rsplit(".", 1)[-1]
        if name in ("get_rank", "get_world_size", "get_node_local_rank"):
            return _asked_rank(walker, name, args, kwargs)
        if name == "is_initialized":
            return Known(True) if process.initialized else Unknown(name)
        if name in ("is_available", "is_nccl_available", "is_gloo_available", "is_torchelastic_launched"):
            return Known(True)
        if path in words.FSDP_PATHS or name == "fully_shard":
            group = group_of(walker, kwargs.get("process_group", kwargs.get("mesh")))
            if group == (DEFAULT, None):
                walker.event(name, node)
            return Made(path, args, kwargs, node, walker.module)
        return None
    if path in words.DDP_PATHS:
        group = group_of(walker, kwargs.get("process_group", args[5] if len(args) > 5 else None))
        if group is not None and (group[1] is None or process.rank in group[1]):
            walker.event("DistributedDataParallel", node, group[0], ranks=group[1])
        devices = kwargs.get("device_ids", args[1] if len(args) > 1 else None)
        if isinstance(devices, Series) and devices.items:
            choose_device(walker, node, "device_ids=", devices.items[0])
        return Made(path, args, kwargs, node, walker.module)
    if path == "torch.device" and args:
        made = Made(path, args, kwargs, node, walker.module, args[-1].tags)
        if _is_cuda(made) and _numbered(made):
            choose_device(walker, node, "torch.device", args[1] if len(args) > 1 else args[0])
        return made
    if (
        path in ("torch.set_default_device", "torch.accelerator.set_device_index", "torch.accelerator.set_device_idx")
        and args
    ):
        place_on(walker, node, path, args[0])
        if path.startswith("torch.accelerator."):
            choose_device(walker, node, path, args[0])
        return Known(None)
    if path == "torch.accelerator.is_available":
        return Known(True)
    if path == "torch.accelerator.device_count":
        return Known(DEVICES, frozenset({ASSUMED}))
    if path.startswith("torch.") and path[6:] in words.TENSOR_MAKERS:
        device = kwargs.get("device")
        if device is not None:
            place_on(walker, node, f"{path}(device=...)", device)
        return Made(path, [], {}, node, walker.module)
    if path == "torch.compile" and args:
        return args[0]
    return None


def _cuda_call(walker: Walker, name: str, args: list[Val], node: ast.AST) -> Val | None:
    if name in words.ASKS_CUDA:
        use_cuda(walker, node, f"torch.cuda.{name}", only_asked=True)
        return Known(True) if name == "is_available" else Known(DEVICES, frozenset({ASSUMED}))
    if name == "is_initialized":
        return Unknown(name)
    if name in words.USES_CUDA:
        if name == "set_device" and args:
            choose_device(walker, node, "torch.cuda.set_device", args[0])
        use_cuda(walker, node, f"torch.cuda.{name}")
        return Unknown()
    return None


def _asked_rank(walker: Walker, name: str, args: list[Val], kwargs: dict[str, Val]) -> Val:
    process = walker.process
    group = group_of(walker, kwargs.get("group", args[0] if args else None))
    if name == "get_node_local_rank":
        return Known(process.local, frozenset({VARIES, LOCAL}))
    if group is None:
        return Unknown()
    _, members = group
    if name == "get_world_size":
        if members is not None:
            return Known(len(members) if process.rank in members else -1)
        return Known(process.world, NONE if process.proven_size else frozenset({ASSUMED}))
    if members is not None:
        return Known(members.index(process.rank) if process.rank in members else -1, frozenset({VARIES}))
    return Known(process.rank, frozenset({VARIES, RANK}))


def named_call(walker: Walker, name: str, args: list[Val], node: ast.AST) -> Val:
    """A call of which only the name is known."""
    process = walker.process
    if name in words.RANK_CALLS:
        return walker.by_name("rank") or Unknown()
    if name in words.LOCAL_CALLS:
        return walker.by_name("local_rank") or Unknown()
    if name in words.WORLD_CALLS:
        return walker.by_name("world_size") or Unknown()
    if name in words.FIRST_NAMES or name in words.LOCAL_FIRST_NAMES:
        return walker.by_name(name) or Unknown()
    if words.FREE_CALLS.search(name):
        return starts.free_value(walker, node, name)
    if name in words.DISTINCT:
        process.opaque += 1
        walker.event(name, node, touched=args)
    return Unknown()


def _builtin(walker: Walker, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    first = args[0] if args else None
    if name in ("int", "str", "float", "bool") and first is not None:
        return _converted(name, first)
    if name == "range":
        return _range(args)
    if name == "len" and first is not None:
        if isinstance(first, Series) and first.whole:
            assumed = {ASSUMED} if any(ASSUMED in item.tags for item in first.items) else set()
            return Known(len(first.items), frozenset(assumed))
        return Unknown("len", first.tags - {RANK, LOCAL, NODE})
    if name in ("list", "tuple", "sorted", "set", "reversed", "iter"):
        if isinstance(first, Series):
            return Series(list(first.items), first.tags, first.whole)
        return Series([]) if first is None else Unknown("", first.tags)
    if name == "dict" and not args:
        return Table(dict(kwargs))
    if name == "enumerate" and isinstance(first, Series):
        pairs: list[Val] = [Series([Known(index), item]) for index, item in enumerate(first.items)]
        return Series(pairs, first.tags, first.whole)
    if name == "zip" and args and all(isinstance(arg, Series) for arg in args):
        columns = [arg.items for arg in args if isinstance(arg, Series)]
        rows: list[Val] = [Series(list(row)) for row in zip(*columns, strict=False)]
        return Series(rows, whole=all(isinstance(arg, Series) and arg.whole for arg in args))
    if name == "map" and len(args) == 2:
        source = args[1]
        if isinstance(source, Series) and source.whole and len(source.items) <= 16:
            return Series([walker.call(args[0], [item], {}, node) for item in source.items])
        return Unknown()
    if name in ("min", "max") and len(args) == 2 and all(isinstance(arg, Known) for arg in args):
        numbers = [number_of(arg) for arg in args]
        if None not in numbers:
            chosen = (min if name == "min" else max)(number for number in numbers if number is not None)
            return Known(chosen, args[0].tags | args[1].tags)
    if name == "getattr" and len(args) >= 2:
        attribute = text_of(args[1])
        return walker.attribute(args[0], attribute) if attribute else Unknown()
    if name == "super":
        function = walker.frame.function
        if function is not None and function.owner is not None:
            return Super(function.owner, function.bound)
        return Unknown()
    if name in ("exit", "quit"):
        from ddp_doctor.interpret.script.walk import Stop

        raise Stop
    if name == "__import__" and first is not None and text_of(first):
        return walker.imported(text_of(first) or "")
    return Unknown()


def _converted(name: str, value: Val) -> Val:
    tags = value.tags
    if isinstance(value, Known):
        try:
            if name == "int":
                return Known(int(value.value), tags)
            if name == "str":
                return Known(str(value.value), tags)
            if name == "bool":
                return Known(bool(value.value), tags)
            return Known(float(value.value), tags)
        except (TypeError, ValueError, OverflowError):
            return Unknown("", tags)
    if name == "bool":
        truth = truth_of(value)
        return Unknown("", tags) if truth is None else Known(truth, tags)
    return Unknown(getattr(value, "name", "") if isinstance(value, Unknown) else "", tags)


def _range(args: list[Val]) -> Val:
    numbers = [number_of(arg) for arg in args]
    tags = NONE
    for arg in args:
        tags |= arg.tags
    tags -= {RANK, LOCAL, NODE, ARGUMENT, ENVIRON}
    if not args or None in numbers:
        return Unknown("range", tags)
    try:
        values = range(*[number for number in numbers if number is not None])
    except (TypeError, ValueError):
        return Unknown("range", tags)
    shown = values[:64]
    return Series([Known(value, tags) for value in shown], tags, len(values) <= 64)


def _os_call(walker: Walker, path: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    if path in ("os.environ.get", "os.getenv") and args:
        return variable(walker, args[0], args[1] if len(args) > 1 else None)
    if path in ("os.environ.setdefault", "os.putenv") and len(args) > 1:
        set_variable(walker, args[0], args[1], node, only_if_missing=path.endswith("setdefault"))
        return variable(walker, args[0])
    if path == "os.environ.pop" and args:
        value = variable(walker, args[0])
        name = text_of(args[0])
        if name:
            walker.process.env.pop(name, None)
        return value
    if path == "os.environ.update":
        entries: dict[str, Val] = dict(kwargs)
        if args and isinstance(args[0], Table):
            entries.update((key, value) for key, value in args[0].entries.items() if isinstance(key, str))
        for key, value in entries.items():
            set_variable(walker, Known(key), value, node)
        return Known(None)
    if path == "os.fork":
        return starts.os_fork(walker, node)
    if path in ("os._exit", "os.abort", "os.execv", "os.execvp", "os.execve", "os.execvpe"):
        from ddp_doctor.interpret.script.walk import Stop

        raise Stop
    return Made(path, args, kwargs, node, walker.module)


# --- methods


def method_call(
    walker: Walker, receiver: Val, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST
) -> Val:
    """A call of a method of something that is not the user's."""
    if isinstance(receiver, Series):
        return _series_method(receiver, name, args)
    if isinstance(receiver, Table):
        return _table_method(walker, receiver, name, args)
    if isinstance(receiver, Known):
        return _text_method(receiver, name, args, kwargs)
    if name == "cuda":
        return _to_cuda(walker, receiver, args, kwargs, node)
    if name == "to":
        for value in [*args, *kwargs.values()]:
            place_on(walker, node, ".to()", value)
        return receiver
    started = starts.method(walker, receiver, name, args, kwargs, node)
    if started is not None:
        return started
    if isinstance(receiver, Made):
        answer = _made_method(walker, receiver, name, args, kwargs, node)
        if answer is not None:
            return answer
    elif isinstance(receiver, Instance):
        return _instance_method(walker, receiver, name, args, kwargs, node)
    elif isinstance(receiver, Unknown):
        return _unknown_method(walker, receiver, name, args, kwargs, node)
    path = receiver.path if isinstance(receiver, Made) else ""
    return Made(f"{path}.{name}", args, kwargs, node, walker.module, receiver.tags - {RANK, LOCAL, NODE})


def _to_cuda(walker: Walker, receiver: Val, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    use_cuda(walker, node, ".cuda()")
    device = args[0] if args else kwargs.get("device")
    if device is None or (isinstance(device, Known) and device.value is None):
        walker.process.default_cuda.append(walker.spot(node))
    elif not (isinstance(device, Known) and isinstance(device.value, bool)):
        choose_device(walker, node, ".cuda()", device)
    return receiver


def _series_method(receiver: Series, name: str, args: list[Val]) -> Val:
    if name == "append" and args:
        receiver.items.append(args[0])
    elif name == "extend" and args:
        if isinstance(args[0], Series):
            receiver.items += args[0].items
            receiver.whole = receiver.whole and args[0].whole
        else:
            receiver.whole = False
    elif name == "copy":
        return Series(list(receiver.items), receiver.tags, receiver.whole)
    elif name == "pop" and receiver.items:
        return receiver.items.pop()
    elif name == "clear":
        receiver.items.clear()
    elif name == "index" and args and isinstance(args[0], Known):
        for index, item in enumerate(receiver.items):
            if isinstance(item, Known) and item.value == args[0].value:
                return Known(index, args[0].tags - {RANK, LOCAL, NODE, ARGUMENT})
    return Unknown("", receiver.tags)


def _table_method(walker: Walker, receiver: Table, name: str, args: list[Val]) -> Val:
    if name in ("get", "pop") and args and isinstance(args[0], Known):
        try:
            value = receiver.entries.get(args[0].value)
        except TypeError:
            value = None
        if value is not None:
            return value
        return walker.by_name(str(args[0].value)) or (args[1] if len(args) > 1 else Unknown())
    if name == "update" and args and isinstance(args[0], Table):
        receiver.entries.update(args[0].entries)
    elif name == "items":
        return Series([Series([Known(key), value]) for key, value in receiver.entries.items()])
    elif name == "values":
        return Series(list(receiver.entries.values()))
    elif name == "keys":
        return Series([Known(key) for key in receiver.entries])
    return Unknown()


def _text_method(receiver: Known, name: str, args: list[Val], kwargs: dict[str, Val]) -> Val:
    if isinstance(receiver.value, str):
        tags = receiver.tags
        for value in (*args, *kwargs.values()):
            tags |= value.tags
        if name == "format" and len(receiver.value) < 400 and not re.search(r":[^}]*\d{3,}", receiver.value):
            values = [value.value for value in args if isinstance(value, Known)]
            named = {key: value.value for key, value in kwargs.items() if isinstance(value, Known)}
            if len(values) == len(args) and len(named) == len(kwargs):
                try:
                    return Known(receiver.value.format(*values, **named), tags)
                except (ValueError, IndexError, KeyError, AttributeError, TypeError):
                    return Unknown("", tags)
            return Unknown(f"text {receiver.value.split('{', 1)[0]}", tags)
        if name in SAFE_TEXT_METHODS and all(isinstance(value, Known) for value in args):
            try:
                result = getattr(receiver.value, name)(*[value.value for value in args if isinstance(value, Known)])
            except (TypeError, ValueError):
                return Unknown("", tags)
            return Known(result, tags)
        return Unknown("", tags - {RANK, LOCAL, NODE, ARGUMENT})
    return Unknown("", receiver.tags - {RANK, LOCAL, NODE, ARGUMENT})


def _made_method(
    walker: Walker, receiver: Made, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST
) -> Val | None:
    path = receiver.path
    if path in words.ACCELERATORS:
        if name in words.ACCELERATOR_METHODS:
            walker.event(f"accelerator.{name}", node, touched=args)
            return Unknown()
        if name == "is_main_process":
            return walker.by_name(name)
    elif path in words.FABRICS and name in words.FABRIC_METHODS:
        walker.event(f"fabric.{name}", node, touched=args)
        return Unknown()
    elif path in words.LIGHTNING_TRAINERS and name in words.TRAINER_METHODS:
        walker.event(f"trainer.{name}", node)
        return Unknown()
    elif path == "deepspeed.initialize[0]" and name in words.ENGINE_METHODS:
        walker.event(f"engine.{name}", node)
        return Unknown()
    elif path in words.FSDP_PATHS and name == "state_dict":
        walker.event("FullyShardedDataParallel.state_dict", node)
        return Unknown()
    elif path == "socket.socket" and name == "bind":
        address = args[0] if args else None
        if isinstance(address, Series) and len(address.items) > 1 and number_of(address.items[1]) == 0:
            receiver.attrs[" free"] = Known(True)
        return Known(None)
    elif path == "socket.socket" and name == "getsockname" and " free" in receiver.attrs:
        return Series([Unknown(), starts.free_value(walker, node, "a free port")])
    elif path.startswith("torch.distributed.") and name in words.COLLECTIVES and not path.endswith("new_group"):
        return None
    if name in words.RANK_CALLS | words.LOCAL_CALLS | words.WORLD_CALLS:
        return named_call(walker, name, args, node)
    if name in words.DISTINCT and not path.startswith("torch."):
        walker.event(name, node, touched=args)
        return Unknown()
    return None


def _instance_method(
    walker: Walker, receiver: Instance, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST
) -> Val:
    if any(path in words.MODULES for path in receiver.kind.externals()):
        if name in words.MODULE_METHODS:
            walker.event(f"self.{name}", node, touched=args)
        elif name in ("log", "log_dict"):
            everywhere = kwargs.get("sync_dist")
            if everywhere is not None and truth_of(everywhere) is True:
                walker.event(f"self.{name}(sync_dist=True)", node)
        return Unknown()
    walker.process.opaque += 1
    named = named_call(walker, name, args, node)
    return named if not isinstance(named, Unknown) else Made(name, args, kwargs, node, walker.module)


def _unknown_method(
    walker: Walker, receiver: Unknown, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST
) -> Val:
    dotted = receiver.name
    if name in words.RANK_CALLS | words.LOCAL_CALLS | words.WORLD_CALLS | words.FIRST_NAMES | words.LOCAL_FIRST_NAMES:
        return named_call(walker, name, args, node)
    if words.COMMUNICATORS.search(dotted):
        walker.process.opaque += 1
        if name in words.COLLECTIVES and name not in ("init_process_group", "new_group"):
            return collective(walker, name, args, kwargs, node, words.COLLECTIVES[name])
        if "accelerator" in dotted and name in words.ACCELERATOR_METHODS:
            walker.event(f"accelerator.{name}", node, touched=args)
            return Unknown()
    if name in words.DISTINCT:
        walker.process.opaque += 1
        walker.event(name, node, touched=args)
        return Unknown()
    return Made(f"{dotted}.{name}" if dotted else f".{name}", args, kwargs, node, walker.module)


def known_attribute(walker: Walker, owner: Val, name: str) -> Val | None:
    """An attribute whose value follows from what its owner is."""
    if isinstance(owner, Made) and owner.path == "torch.device" and name == "type":
        return Known("cuda") if _is_cuda(owner) else None
    if name == "world" and isinstance(owner, Unknown):
        return None
    if name in ("is_main_process", "is_last_process") and isinstance(owner, Made) and owner.path in words.ACCELERATORS:
        first = name == "is_main_process"
        return Known(walker.process.rank == (0 if first else walker.process.world - 1), frozenset({VARIES}))
    if (
        isinstance(owner, Unknown)
        and not words.COMMUNICATORS.search(name)
        and name in ("dist", "fabric", "strategy", "accelerator")
    ):
        return Unknown(name)
    if isinstance(owner, (Unknown, Made)) and words.COMMUNICATORS.search(name):
        return Unknown(name)
    return None


def made_call(walker: Walker, made: Made, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    """A call of what an external call returned: a decorator, a launcher, a model."""
    started = starts.made_called(walker, made, args, node)
    if started is not None:
        return started
    if args and isinstance(args[0], (Function, Partial)):
        return args[0]
    return Made(f"{made.path}()", args, kwargs, node, walker.module)


def constructed(walker: Walker, instance: Instance, node: ast.AST) -> None:
    """One of the user's classes with a foreign base is instantiated."""
    for path in instance.kind.externals():
        if path.startswith(words.DEVICE_KEEPERS):
            walker.process.kept_device = True


def entered(walker: Walker, context: Val, node: ast.AST) -> Val:
    """What `with` gives for a context manager."""
    if isinstance(context, Made) and context.path == "torch.cuda.device":
        use_cuda(walker, node, "torch.cuda.device")
        if context.args:
            choose_device(walker, node, "torch.cuda.device", context.args[0])
    return context


def expects_failure(context: Val) -> bool:
    """Whether a test's context manager expects what happens in it to fail."""
    return isinstance(context, Made) and context.path.rsplit(".", 1)[-1] in (
        "assertRaises",
        "assertRaisesRegex",
        "raises",
    )
