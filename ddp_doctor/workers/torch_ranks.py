"""Imports torch once, then forks: a throw-away process that asks torch.cuda, and ranks that form a group of their own.

Requests after the first: {"do": "cuda"} and {"do": "ranks", "world_size", "backend", "seconds"}. All forks talk on the one
channel, each message whole, so what a rank entered last is known even where it never returns. This process itself asks
torch.cuda nothing: that would spoil CUDA for every rank forked later, even without a driver.
"""

import datetime
import faulthandler
import inspect
import os
import select
import signal
import socket
import time
import traceback
import warnings


def main(request, say, hear):
    # a program that the import starts must not keep the conversation open after this process has died
    channel.set_inheritable(False)  # noqa: F821 - given by guard.py
    faulthandler.enable()
    # says where the import stands if it never ends, even where C code holds the interpreter lock
    faulthandler.dump_traceback_later(request["import_seconds"])
    say({"importing": "torch"})
    started = time.monotonic()
    try:
        import torch
        import torch.distributed as dist

        about = describe_torch(torch, dist)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a broken package too
        say({"failed": describe(error)})
        return
    faulthandler.cancel_dump_traceback_later()
    about["seconds"] = time.monotonic() - started
    say({"torch": about})
    warnings.simplefilter("ignore")
    forks = {}
    while True:
        ready, _, _ = select.select([channel, *forks], [], [])  # noqa: F821 - given by guard.py
        for end in ready:
            if end in forks:
                bury(end, forks, say)
                continue
            order = hear()
            if order is None:
                return
            if order["do"] == "cuda":
                fork(forks, {"fork": "cuda"}, say, lambda: ask_cuda(say))
            else:
                start_ranks(forks, order, say)


def describe_torch(torch, dist):
    version = torch.version
    about = {
        "version": str(torch.__version__),
        "cuda": str(getattr(version, "cuda", None) or ""),
        "hip": str(getattr(version, "hip", None) or ""),
        "path": str(torch.__file__),
        "distributed": dist.is_available(),
    }
    if about["distributed"]:
        about["gloo"] = has_backend(dist, "gloo")
        about["nccl_backend"] = has_backend(dist, "nccl")
    number = getattr(torch._C, "_nccl_version", None)
    if number is not None:
        code = number()
        if isinstance(code, int) and code >> 32:
            about["nccl"] = "%d.%d.%d" % (code >> 32, code >> 16 & 0xFFFF, code & 0xFFFF)
        with open("/proc/self/maps") as maps:
            about["libnccl"] = next((line.split(None, 5)[5].strip() for line in maps if "/libnccl.so" in line), "")
    return about


def has_backend(dist, name):
    test = getattr(dist, "is_%s_available" % name, None)
    return test() if test is not None else hasattr(dist, {"gloo": "ProcessGroupGloo", "nccl": "ProcessGroupNCCL"}[name])


def describe(error):
    """The exception's own words without the C++ stack, and the innermost place in a file."""
    text = str(error).split("\nException raised from")[0].strip()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    frames = [frame for frame in frames if frame.filename != __file__]
    place = ""
    if isinstance(error, SyntaxError):
        place = "%s:%s" % (error.filename, error.lineno)
    elif frames:
        place = "%s:%d" % (frames[-1].filename, frames[-1].lineno)
    return {"error": "%s: %s" % (type(error).__name__, text[:2000]), "where": place}


def fork(forks, who, say, work):
    """Run `work` in a fork that dies with this process; the end of its pipe tells when it is gone."""
    reader, writer = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        say(dict(who, failed={"error": "fork: %s" % error.strerror, "where": ""}))
        return
    if pid:
        os.close(writer)
        forks[reader] = (pid, who)
        return
    try:
        die_with_parent(parent)  # noqa: F821 - given by guard.py
        work()
    except BaseException as error:
        say(dict(who, failed=describe(error)))
    os._exit(0)


def bury(end, forks, say):
    pid, who = forks.pop(end)
    os.close(end)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        say(dict(who, died="killed by %s" % signal.Signals(os.WTERMSIG(status)).name))
    else:
        say(dict(who, died="ended with exit code %d" % os.WEXITSTATUS(status)))


def ask_cuda(say):
    """Each call is named before it is made, so that one that never returns is known."""

    def calling(call):
        say({"fork": "cuda", "calling": call})

    calling("import torch.cuda")
    import torch

    calling("torch.cuda.is_available()")
    available = torch.cuda.is_available()
    calling("torch.cuda.device_count()")
    count = torch.cuda.device_count()
    say({"fork": "cuda", "available": available, "device_count": count})
    calling("torch.cuda.init()")
    try:
        torch.cuda.init()
    except Exception as error:
        say({"fork": "cuda", "init_error": describe(error)["error"]})
        return
    calling("torch.cuda.get_device_properties()")
    devices = [torch.cuda.get_device_properties(index) for index in range(count)]
    say(
        {
            "fork": "cuda",
            "init_error": "",
            "names": [device.name for device in devices],
            "uuids": [str(getattr(device, "uuid", "")) for device in devices],
        }
    )


def start_ranks(forks, order, say):
    """The store listens on a loopback port of its own, chosen here, so that no port of a job is touched."""
    import torch.distributed as dist

    if "master_listen_fd" not in (dist.TCPStore.__init__.__doc__ or ""):
        say({"refused": "this torch is too old for trial ranks: its store cannot be given a port that is already open"})
        return
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(order["world_size"] + 8)
    for number in range(order["world_size"]):
        fork(forks, {"rank": number}, say, lambda number=number: be_rank(number, order, listener, say))
    listener.close()


def be_rank(number, order, listener, say):
    import torch
    import torch.distributed as dist

    started = time.monotonic()
    size, backend = order["world_size"], order["backend"]
    own = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    os.environ.update({name: str(value) for name, value in own.items()})
    port = listener.getsockname()[1]
    wait = datetime.timedelta(seconds=order["seconds"])

    def enter(stage):
        say({"rank": number, "stage": stage})

    enter("store-connect")
    store = open_store(dist, port, size, wait, listener if number == 0 else None)
    enter("store-wait")
    store.set("ddp_doctor/joined/%d" % number, "1")
    store.wait(["ddp_doctor/joined/%d" % other for other in range(size)], wait)
    device, options = "cpu", {}
    if backend == "nccl":
        try:
            torch.cuda.init()
        except Exception as error:
            say({"rank": number, "refused": "torch.cuda cannot be initialised: %s" % describe(error)["error"]})
            return
        device = "cuda:%d" % (number % torch.cuda.device_count())
        torch.cuda.set_device(device)
        if "device_id" in inspect.signature(dist.init_process_group).parameters:
            # then NCCL's communicator is formed inside init_process_group
            enter("comm-bootstrap")
            options["device_id"] = torch.device(device)
    if backend == "gloo":
        enter("gloo-mesh")
    dist.init_process_group(
        backend, store=dist.PrefixStore("ddp_doctor", store), rank=number, world_size=size, timeout=wait, **options
    )
    if not options:
        enter("initialized")
    address = listening_address(port) if backend == "gloo" else ""
    values = torch.full((4,), float(number + 1)).to(device)
    enter("comm-bootstrap" if backend == "nccl" and not options else "first-collective")
    dist.all_reduce(values)
    right = values.tolist() == [size * (size + 1) / 2] * 4
    say(
        {
            "rank": number,
            "stage": "first-collective",
            "value_ok": right,
            "seconds": time.monotonic() - started,
            "address": address,
            "libuv": getattr(store, "libuvBackend", None),
        }
    )
    # an early exit could reset connections that slower ranks still read from; the doctor ends all of them at once
    while True:
        signal.pause()


def open_store(dist, port, size, wait, listener):
    """The store as env:// would open it, on the listener where this is rank 0."""
    options = {"timeout": wait, "wait_for_workers": False}
    if "USE_LIBUV" in os.environ and "use_libuv" in (dist.TCPStore.__init__.__doc__ or ""):
        options["use_libuv"] = os.environ["USE_LIBUV"] == "1"
    if listener is not None:
        options["master_listen_fd"] = listener.detach()
    return dist.TCPStore("127.0.0.1", port, size, listener is not None, **options)


def listening_address(store_port):
    """Where this process listens besides the store: that socket is Gloo's, and its address is what peers are told."""
    for name in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:  # the listing's own descriptor, gone by now
            continue
        try:
            candidate = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            continue
        with candidate:
            if candidate.family in (socket.AF_INET, socket.AF_INET6) and candidate.type == socket.SOCK_STREAM:
                listens = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                host, port = candidate.getsockname()[:2]
                if listens and port != store_port:
                    return host
    return ""
