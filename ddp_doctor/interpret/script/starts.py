"""What starts further threads and processes, and values that differ between the processes so started."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal

from ddp_doctor.interpret.script import vocabulary as words
from ddp_doctor.interpret.script.process import DEVICES, CudaUse, Launch, Process, ThreadRun
from ddp_doctor.interpret.script.values import (
    ARGUMENT,
    ASSUMED,
    FREE,
    VARIES,
    External,
    Function,
    Instance,
    Known,
    Made,
    Partial,
    Series,
    Table,
    Unknown,
    Val,
    number_of,
    text_of,
)

if TYPE_CHECKING:
    from ddp_doctor.facts.script import StartedBy
    from ddp_doctor.interpret.script.walk import Walker

Method = Literal["spawn", "fork", "forkserver", "default"]
METHODS: dict[str, Method] = {"spawn": "spawn", "fork": "fork", "forkserver": "forkserver"}
PROCESS_PATHS = frozenset(
    {"multiprocessing.Process", "multiprocessing.process.Process", "multiprocessing.context.Process"}
)
MANY_MAPS = frozenset({"map", "imap", "imap_unordered", "map_async", "starmap", "starmap_async"})


def free_value(walker: Walker, node: ast.AST, what: str) -> Unknown:
    """A port or number that comes out different in each process."""
    walker.free_calls.append((walker.process, walker.spot(node), what))
    return Unknown("", frozenset({FREE, f"by:{len(walker.free_calls) - 1}"}))


def settled(value: Val) -> Val:
    """A value as a child process gets it: computed once, by its parent."""
    if FREE not in value.tags:
        return value
    tags = frozenset(tag for tag in value.tags if tag != FREE and not tag.startswith("by:"))
    return Known(value.value, tags) if isinstance(value, Known) else Unknown("", tags)


# --- calls of foreign functions


def external(walker: Walker, path: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val | None:
    """Calls that start or prepare threads and processes; None for any other."""
    if path in words.SPAWN_PATHS:
        function = kwargs.get("fn", args[0] if args else None)
        given = kwargs.get("args", args[1] if len(args) > 1 else None)
        count = kwargs.get("nprocs", args[2] if len(args) > 2 else Known(1))
        method = METHODS.get(text_of(kwargs.get("start_method")) or "spawn", "spawn")
        return numbered(walker, node, path, method, function, _items(given), count)
    if path in words.NOTEBOOK_PATHS:
        return _notebook(walker, args, kwargs, node)
    if path in words.TORCHRUN_PATHS:
        launcher_called(walker, node, "torchrun")
        return Known(None)
    if path.startswith("multiprocessing."):
        if path == "multiprocessing.set_start_method" and args:
            walker.process.start_method = text_of(args[0]) or walker.process.start_method
            return Known(None)
        if path == "multiprocessing.get_context":
            made = Made(path, args, kwargs, node, walker.module)
            made.attrs[" method"] = Known(text_of(args[0]) if args else None)
            return made
    if path == "asyncio.to_thread" and args:
        return thread(walker, node, path, args[0], args[1:], kwargs, walker.spot(node))
    if path in ("_thread.start_new_thread", "_thread.start_new") and args:
        return thread(walker, node, path, args[0], _items(args[1] if len(args) > 1 else None), {}, walker.spot(node))
    if path in words.LIGHTNING_TRAINERS or path in words.FABRICS:
        walker.process.kept_device = True
    return None


def _notebook(walker: Walker, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val:
    function = kwargs.get("function", args[0] if args else None)
    given = kwargs.get("args", args[1] if len(args) > 1 else None)
    count = kwargs.get("num_processes", args[2] if len(args) > 2 else Unknown())
    if number_of(count) == 1:
        return walker.call(function, _items(given), {}, node) if function is not None else Known(None)
    if launcher_called(walker, node, "notebook_launcher"):
        return Known(None)
    launch = _launch(walker, node, "notebook_launcher", "fork", number_of(count))
    if walker.walks_children and function is not None:
        child = _child(walker, launch, 0, number_of(count) or DEVICES, "fork")
        child.kept_device = True
        walker.as_process(child, lambda: walker.call(function, _items(given), {}, node))
    return Known(None)


def numbered(
    walker: Walker, node: ast.AST, api: str, method: Method, function: Val | None, args: list[Val], count: Val | None
) -> Val:
    """`mp.spawn`: the function runs in `count` processes and gets its number first."""
    number = number_of(count)
    literal = number is not None and count is not None and ASSUMED not in count.tags
    name = api.replace("torch.multiprocessing.spawn.spawn", "torch.multiprocessing.spawn")
    if number != 1 and launcher_called(walker, node, name):
        return Known(None)
    launch = _launch(walker, node, name, method, number if literal else None)
    if not walker.walks_children or function is None:
        return Known(None)
    size = number or DEVICES
    for index in dict.fromkeys(range(size) if size <= DEVICES else (0, 1, size - 1)):
        child = _child(walker, launch, index, size, method)
        child.proven_size = literal and size > 1
        first = Known(index, frozenset({VARIES, ARGUMENT}))
        given = [first, *(settled(value) for value in args)]

        def run(given: list[Val] = given) -> None:
            walker.call(function, given, {}, node)

        walker.as_process(child, run)
    return Made(name, [], {}, node, walker.module)


# --- methods


def method(
    walker: Walker, receiver: Val, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST
) -> Val | None:
    """Methods that start threads and processes; None for any other."""
    if isinstance(receiver, Made):
        return _made_method(walker, receiver, name, args, kwargs, node)
    if isinstance(receiver, Instance) and name == "start":
        return _start_instance(walker, receiver, node)
    if isinstance(receiver, (Unknown, Series)) and name in words.BUTTONS:
        return _background(walker, name, args, kwargs, node)
    return None


def _made_method(
    walker: Walker, receiver: Made, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST
) -> Val | None:
    path = _plain(receiver.path)
    if name == "start" and path in words.THREADS:
        target = receiver.kwargs.get("target") or receiver.kwargs.get("function")
        target = target or (receiver.args[1] if len(receiver.args) > 1 else None)
        position = 2 if path.endswith("Timer") else 3
        given = receiver.kwargs.get("args") or (receiver.args[position] if len(receiver.args) > position else None)
        named = receiver.kwargs.get("kwargs")
        origin = (receiver.module, receiver.node)
        return thread(walker, node, path, target, _items(given), _entries(named), origin)
    if name == "start" and path in PROCESS_PATHS:
        return _start_process(walker, receiver, node)
    if path in words.THREAD_POOLS:
        return _pool(walker, receiver, name, args, kwargs, node, processes=False)
    if path in words.PROCESS_POOLS or path == "multiprocessing.Pool" or path == "multiprocessing.pool.Pool":
        return _pool(walker, receiver, name, args, kwargs, node, processes=True)
    if path == "multiprocessing.get_context" and name in ("Process", "Pool"):
        made = Made(f"multiprocessing.{name}", args, kwargs, node, walker.module)
        made.attrs[" method"] = receiver.attrs[" method"]
        return made
    if path == "multiprocessing.get_context" and name == "spawn":
        return None
    if name == "run_in_executor" and len(args) > 1:
        pool = args[0]
        if isinstance(pool, Made) and _plain(pool.path) in words.PROCESS_POOLS:
            return _child_call(walker, node, pool, args[1], args[2:], {})
        return thread(walker, node, "run_in_executor", args[1], args[2:], {}, walker.spot(node))
    if name == "run_until_complete" and args:
        return args[0]
    if words.SERVERS.search(path) and name in words.HANDLER_DECORATORS:
        made = Made(f"{path.rsplit('.', 1)[-1]}.{name}", args, kwargs, node, walker.module)
        made.attrs["handler"] = Known(True)
        return made
    if name in words.BUTTONS and (path.startswith("gradio.") or name == "add_task"):
        return _background(walker, name, args, kwargs, node)
    if path in words.LIGHTNING_TRAINERS and name in words.TRAINER_METHODS and _starts_ranks(receiver):
        strategy = text_of(receiver.kwargs.get("strategy")) or ""
        if launcher_called(walker, node, f"Trainer.{name}"):
            return Unknown()
        if "spawn" in strategy and name == "fit":
            _launch(walker, node, "Trainer.fit", "spawn", number_of(receiver.kwargs.get("devices")))
    if path in words.FABRICS and name == "launch" and _starts_ranks(receiver):
        launcher_called(walker, node, "Fabric.launch")
        if args and isinstance(args[0], (Function, Partial)):
            walker.call(args[0], [receiver, *args[1:]], kwargs, node)
        return Known(None)
    return None


def made_called(walker: Walker, made: Made, args: list[Val], node: ast.AST) -> Val | None:
    """`elastic_launch(config, function)(*args)`."""
    if made.path in words.ELASTIC_PATHS:
        launcher_called(walker, node, "elastic_launch")
        return Known(None)
    return None


def _plain(path: str) -> str:
    return path[6:] if path.startswith("torch.multiprocessing.") else path


def _starts_ranks(receiver: Made) -> bool:
    """Whether a Lightning Trainer or Fabric starts further processes."""
    strategy = receiver.kwargs.get("strategy")
    text = text_of(strategy)
    if text is not None and text.startswith(("ddp", "fsdp", "deepspeed")):
        devices = number_of(receiver.kwargs.get("devices"))
        return devices != 1
    if isinstance(strategy, Made) and any(part in strategy.path for part in ("DDP", "FSDP", "DeepSpeed")):
        return True
    devices_value = receiver.kwargs.get("devices", receiver.kwargs.get("gpus"))
    if isinstance(devices_value, Series):
        return len(devices_value.items) > 1
    count = number_of(devices_value)
    return count is not None and (count > 1 or count == -1)


def launcher_called(walker: Walker, node: ast.AST, name: str) -> bool:
    """Note a launcher that runs in a thread of this process; tells whether it does."""
    if walker.thread is None:
        return False
    walker.thread.launches.append((walker.spot(node), name))
    return True


def _background(walker: Walker, name: str, args: list[Val], kwargs: dict[str, Val], node: ast.AST) -> Val | None:
    function = kwargs.get("fn") or kwargs.get("func") or (args[0] if args else None)
    if not isinstance(function, (Function, Partial)):
        return None
    run = ThreadRun(walker.spot(node), name, _name(function), walker.unsure == 0, walker.spot(node), handler=True)
    walker.as_thread(run, lambda: walker.call(function, args[1:] if name == "add_task" else [], {}, node))
    return Unknown()


# --- threads


def thread(
    walker: Walker,
    node: ast.AST,
    how: str,
    target: Val | None,
    args: list[Val],
    kwargs: dict[str, Val],
    made: tuple[object, ast.AST],
) -> Val:
    """A thread starts and runs a function."""
    if target is None:
        return Unknown()
    spot = walker.spot(node)
    module = made[0]
    run = ThreadRun(spot, how, _name(target), walker.unsure == 0, (module, made[1]))  # type: ignore[arg-type]
    walker.as_thread(run, lambda: walker.call(target, args, kwargs, node))
    return Unknown()


def _pool(
    walker: Walker,
    pool: Made,
    name: str,
    args: list[Val],
    kwargs: dict[str, Val],
    node: ast.AST,
    *,
    processes: bool,
) -> Val | None:
    path = _plain(pool.path)
    spot = walker.spot(node)
    if not args:
        return None
    if name in MANY_MAPS:
        for given in _rows(args[1:], starred="starmap" in name):
            if processes:
                _child_call(walker, node, pool, args[0], given, {})
            else:
                thread(walker, node, f"{path}.{name}", args[0], given, {}, spot)
        return Unknown()
    if name == "submit":
        if processes:
            return _child_call(walker, node, pool, args[0], args[1:], kwargs)
        return thread(walker, node, f"{path}.submit", args[0], args[1:], kwargs, spot)
    if name in ("apply_async", "apply"):
        given = _items(args[1] if len(args) > 1 else kwargs.get("args"))
        named = _entries(args[2] if len(args) > 2 else kwargs.get("kwds"))
        if processes:
            return _child_call(walker, node, pool, args[0], given, named)
        return thread(walker, node, f"{path}.{name}", args[0], given, named, spot)
    return None


def _rows(columns: list[Val], *, starred: bool) -> list[list[Val]]:
    """The argument lists of a pool's map, at most sixteen."""
    if starred:
        rows = _items(columns[0] if columns else None)
        return [_items(row) for row in rows][:16]
    series = [column for column in columns if isinstance(column, Series) and column.whole]
    if series and len(series) == len(columns):
        return [list(row) for row in zip(*(column.items for column in series), strict=False)][:16]
    return [[Unknown("", frozenset({"each"})) for _ in columns]]


# --- processes


def os_fork(walker: Walker, node: ast.AST) -> Val:
    """`os.fork`: this reader follows the child."""
    process = walker.process
    launch = _launch(walker, node, "os.fork", "fork", None)
    launch.inherited = process.first_cuda
    process.own_cuda = None
    launch.children.append(process)
    return Known(0)


def _start_process(walker: Walker, made: Made, node: ast.AST) -> Val:
    target = made.kwargs.get("target") or (made.args[1] if len(made.args) > 1 else None)
    given = made.kwargs.get("args") or (made.args[3] if len(made.args) > 3 else None)
    if target is None:
        return Known(None)
    return _child_call(walker, node, made, target, _items(given), _entries(made.kwargs.get("kwargs")))


def _start_instance(walker: Walker, instance: Instance, node: ast.AST) -> Val | None:
    """`.start()` of an object whose class derives from Thread or Process."""
    for path in instance.kind.externals():
        plain = _plain(path)
        run = instance.kind.lookup("run")
        if not isinstance(run, Function):
            continue
        bound = run.bind(instance, instance.kind)
        bound_name = instance.kind.node.name
        if plain in words.THREADS or words.QT_THREAD.search(plain):
            made = (walker.module, instance.node or node)
            thread_run = ThreadRun(walker.spot(node), plain, bound_name, walker.unsure == 0, made)
            walker.as_thread(thread_run, lambda bound=bound: walker.call(bound, [], {}, node))  # type: ignore[misc]
            return Known(None)
        if plain in PROCESS_PATHS:
            holder = Made(plain, [], {}, node, walker.module)
            return _child_call(walker, node, holder, bound, [], {})
    return None


def _child_call(
    walker: Walker, node: ast.AST, holder: Made, target: Val, args: list[Val], kwargs: dict[str, Val]
) -> Val:
    given = holder.attrs.get(" method")
    context = holder.kwargs.get("mp_context")
    if given is None and isinstance(context, Made):
        given = context.attrs.get(" method")
    method = METHODS.get(text_of(given) or walker.process.start_method, "default")
    launch = _launch(walker, node, _plain(holder.path), method, None)
    if not walker.walks_children:
        return Unknown()
    child = _child(walker, launch, len(launch.children), DEVICES, method)
    named = {key: settled(value) for key, value in kwargs.items()}
    walker.as_process(child, lambda: walker.call(target, [settled(value) for value in args], named, node))
    return Unknown()


def _launch(walker: Walker, node: ast.AST, api: str, method: Method, processes: int | None) -> Launch:
    process = walker.process
    spot = walker.spot(node)
    for launch in process.launches:
        if launch.spot == spot:
            return launch
    inherited: CudaUse | None = process.first_cuda if method in ("fork", "default") else None
    guarded = walker.guarded or not walker.in_script
    launch = Launch(spot, api, method, guarded, processes, walker.unsure == 0, walker.top, inherited)
    process.launches.append(launch)
    return launch


def _child(walker: Walker, launch: Launch, index: int, size: int, method: Method) -> Process:
    parent = walker.process
    started: StartedBy = "fork" if method == "default" else method
    child = Process(
        key=("child", id(launch.spot[1]), parent.key),
        started_by=started,
        rank=index,
        local=index,
        node=0,
        world=size,
        env={name: settled(value) for name, value in parent.env.items()},
        env_spots=dict(parent.env_spots),
        kept_device=parent.kept_device,
        named=parent.named,
    )
    child.masks = [mask for mask in parent.masks if mask.after is None]
    if method in ("fork", "default"):
        child.cuda, child.asked = parent.cuda, parent.asked
    launch.children.append(child)
    return child


def _items(value: Val | None) -> list[Val]:
    return list(value.items) if isinstance(value, Series) else []


def _entries(value: Val | None) -> dict[str, Val]:
    if isinstance(value, Table):
        return {key: item for key, item in value.entries.items() if isinstance(key, str)}
    return {}


def _name(target: Val) -> str:
    if isinstance(target, Function):
        return target.name
    if isinstance(target, Partial):
        return _name(target.function)
    if isinstance(target, External):
        return target.path
    return type(target).__name__.lower()
