"""One rank of a communicator on a given libnccl, by ctypes: initialise it, then one all-reduce with checked values.

The request: `libnccl`, `rank`, `world_size`, `device` (CUDA's ordinal), `root` (whether this rank makes the unique id) and
`needed_mib` (free GPU memory below which nothing is started). Says {"at": step} before each step, {"id": ...} from the
root, {"done": step, ...} after one and {"failed": {...}} for the first that fails; then it waits to be told to leave, so
that no peer sees its connections close before its own last words. The driver library is enough for the buffers: NCCL's own
runtime works in the same primary context.
"""

import ctypes
import os
import threading
import time

IN_PROGRESS = 7
NOT_READY = 600
FLOAT = 7
SUM = 0
COUNT = 1024
FIRST_NON_BLOCKING = 21400
LINE_BUFFERED = 1
BUSY_TICKS = 5
X86_64 = {"read": [0], "ioctl": [16], "lock": [202], "sleep": [35, 230], "socket": [7, 42, 43, 45, 47, 271, 288]}
AARCH64 = {"read": [63], "ioctl": [29], "lock": [98], "sleep": [101, 115], "socket": [73, 202, 203, 207, 212, 242]}
SYSTEM_CALLS = {
    machine: {number: name for name, numbers in table.items() for number in numbers}
    for machine, table in (("x86_64", X86_64), ("aarch64", AARCH64))
}
PAUSE = 0.005


class Failed(Exception):
    def __init__(self, call, code, text, last_error=""):
        Exception.__init__(self, text)
        self.words = {"call": call, "code": code, "error": text, "last_error": last_error}


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t as of 2.14, its first version: newer libraries take it by its size and version."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    ]


def main(request, say, hear):
    started = time.monotonic()
    write_lines_at_once()
    watch = Watch(say)
    watch.start()

    def at(step):
        say({"at": step})

    def calling(call):
        """Named before it is made, so that one that never returns is known."""
        say({"calling": call})

    def done(step, **found):
        say(dict(found, done=step, seconds=time.monotonic() - started))

    try:
        say({"here": whereabouts()})
        at("device")
        driver = Driver(request["device"], request["needed_mib"], calling)
        done("device", uuid=driver.uuid, pci=driver.pci, free_mib=driver.free_mib)
        at("library")
        nccl = Nccl(request["libnccl"], calling)
        done("library", version=nccl.version)
        if request["root"]:
            at("unique id")
            unique_id = nccl.unique_id()
            say({"id": bytes(unique_id).hex()})
        else:
            at("wait for the unique id")
            told = hear()
            if told is None:
                return
            unique_id = UniqueId.from_buffer_copy(bytes.fromhex(told["id"]))
        at("communicator")
        nccl.initialise(request["world_size"], unique_id, request["rank"])
        done("communicator")
        at("buffer")
        address, stream = driver.buffer([request["rank"] + 1 + place % 7 for place in range(COUNT)])
        at("all-reduce")
        nccl.all_reduce(address, stream)
        at("all-reduce on the GPU")
        calling("cuStreamQuery")
        nccl.wait("ncclAllReduce", lambda: driver.finished(stream))
        size = request["world_size"]
        expected = [size * (size + 1) // 2 + size * (place % 7) for place in range(COUNT)]
        done("all-reduce", value_ok=driver.values(address) == expected)
    except Failed as failure:
        say({"failed": failure.words})
    except OSError as error:
        say({"failed": {"call": "dlopen", "code": None, "error": str(error), "last_error": ""}})
    watch.look("segments", segments())
    hear()


class Watch(threading.Thread):
    """Says four times a second at most, where it changes, what only this process can see cheaply of itself.

    `segments` are the files in /dev/shm that NCCL holds: a killed rank leaves them behind. `threads` says of each thread
    what it did in the last second: `polls` (system calls that never wait, as NCCL polls its sockets), `computes`, or the
    system call it stands in: `socket`, `ioctl`, `sleep`, `lock`, or its number.
    """

    def __init__(self, say):
        threading.Thread.__init__(self, daemon=True)
        self._say = say
        self._said = {}
        self._ticks = {}

    def run(self):
        rounds = 0
        while True:
            time.sleep(0.25)
            rounds += 1
            self.look("segments", segments())
            if rounds % 4 == 0:
                self.look("threads", self._threads())

    def look(self, name, found):
        if found != self._said.get(name):
            self._said[name] = found
            self._say({name: found})

    def _threads(self):
        found = {}
        for thread in os.listdir("/proc/self/task"):
            if int(thread) == threading.get_native_id():
                continue
            try:
                with open("/proc/self/task/%s/stat" % thread) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                user, system = int(fields[11]), int(fields[12])
                user_before, system_before = self._ticks.get(thread, (user, system))
                self._ticks[thread] = (user, system)
                found[thread] = doing(thread, user - user_before, system - system_before)
            except (OSError, ValueError):
                continue  # it has ended, or this kernel does not tell
        return found


def segments():
    with open("/proc/self/maps") as file:
        lines = [line for line in file if "/dev/shm/nccl-" in line and "(deleted)" not in line]
    return sorted({line.split()[-1] for line in lines})


def doing(thread, user, system):
    if user + system >= BUSY_TICKS:
        return "polls" if 5 * system > user else "computes"
    with open("/proc/self/task/%s/syscall" % thread) as file:
        words = file.read().split()
    if words[0] == "running":
        return "polls"
    name = SYSTEM_CALLS.get(os.uname().machine, {}).get(int(words[0]), words[0])
    if name == "read":
        target = os.readlink("/proc/self/fd/%d" % int(words[1], 16))
        name = "socket" if target.startswith("socket:") else "read"
    return name


def write_lines_at_once():
    """NCCL prints through C's stdout, which a file makes fully buffered: the last lines of a hang would be lost."""
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, LINE_BUFFERED, ctypes.c_size_t(0))


def whereabouts():
    """What decides whether NCCL takes two ranks for ranks of one host, and how."""

    def link(path):
        try:
            return os.readlink(path)
        except OSError:
            return ""

    try:
        shm = os.stat("/dev/shm").st_dev
    except OSError:
        shm = None
    return {"shm_device": shm, "network": link("/proc/self/ns/net"), "hostname": os.uname().nodename}


class Driver:
    """The device of this rank, in its primary context."""

    def __init__(self, ordinal, needed_mib, calling):
        self._calling = calling
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        uuid, pci = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDeviceGetUuid", uuid, device)
        self._call("cuDeviceGetPCIBusId", pci, 32, device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self.uuid, self.pci, self.free_mib = bytes(uuid).hex(), pci.value.decode(), free.value >> 20
        if self.free_mib < needed_mib:
            raise Failed("cuMemGetInfo", None, "%d MiB free, %d needed" % (self.free_mib, needed_mib))

    def _call(self, name, *arguments):
        self._calling(name)
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            raise Failed(name, code, (text.value or b"").decode("utf-8", "replace") or "error %d" % code)

    def buffer(self, values):
        """A buffer of floats on the device, and a stream."""
        address, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4 * COUNT))
        self._call("cuStreamCreate", ctypes.byref(stream), 0)
        self._call("cuMemcpyHtoD_v2", address, (ctypes.c_float * COUNT)(*values), ctypes.c_size_t(4 * COUNT))
        return address, stream

    def finished(self, stream):
        code = self._cuda.cuStreamQuery(stream)
        if code not in (0, NOT_READY):
            self._call("cuStreamQuery", stream)
        return code == 0

    def values(self, address):
        values = (ctypes.c_float * COUNT)()
        self._call("cuMemcpyDtoH_v2", values, address, ctypes.c_size_t(4 * COUNT))
        return list(values)


class Nccl:
    """The library, and this rank's communicator on it."""

    def __init__(self, path, calling):
        self._calling = calling
        calling("dlopen")
        self._nccl = ctypes.CDLL(path)
        self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
        if hasattr(self._nccl, "ncclGetLastError"):
            self._nccl.ncclGetLastError.restype = ctypes.c_char_p
        self._communicator = ctypes.c_void_p()
        version = ctypes.c_int()
        self._check("ncclGetVersion", self._nccl.ncclGetVersion(ctypes.byref(version)))
        self.version = version.value

    def _check(self, call, code):
        if code:
            last = self._nccl.ncclGetLastError(None) if hasattr(self._nccl, "ncclGetLastError") else b""
            text = self._nccl.ncclGetErrorString(code).decode("utf-8", "replace")
            raise Failed(call, code, text, (last or b"").decode("utf-8", "replace"))

    def unique_id(self):
        unique_id = UniqueId()
        self._calling("ncclGetUniqueId")
        self._check("ncclGetUniqueId", self._nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
        return unique_id

    def initialise(self, world_size, unique_id, rank):
        self._calling("ncclCommInitRank")
        communicator = ctypes.byref(self._communicator)
        if self.version < FIRST_NON_BLOCKING:
            self._nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
            code = self._nccl.ncclCommInitRank(communicator, world_size, unique_id, rank)
        else:
            call = self._nccl.ncclCommInitRankConfig
            call.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int, ctypes.c_void_p]
            config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, FIRST_NON_BLOCKING, 0)
            code = call(communicator, world_size, unique_id, rank, ctypes.byref(config))
        self._settle("ncclCommInitRank", code)

    def all_reduce(self, address, stream):
        self._calling("ncclAllReduce")
        code = self._nccl.ncclAllReduce(
            address, address, ctypes.c_size_t(COUNT), FLOAT, SUM, self._communicator, stream
        )
        self._settle("ncclAllReduce", code)

    def _settle(self, call, code):
        if code == IN_PROGRESS:
            self.wait(call, lambda: not self._in_progress(call))
        else:
            self._check(call, code)

    def _in_progress(self, call):
        state = ctypes.c_int()
        self._check(call, self._nccl.ncclCommGetAsyncError(self._communicator, ctypes.byref(state)))
        if state.value != IN_PROGRESS:
            self._check(call, state.value)
        return state.value == IN_PROGRESS

    def wait(self, call, finished):
        """Until it is finished; raises as soon as the communicator has an error. A library that blocks has had its time."""
        while not finished():
            if self.version >= FIRST_NON_BLOCKING:
                self._in_progress(call)
            time.sleep(PAUSE)
