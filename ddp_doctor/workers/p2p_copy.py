"""Lets each GPU of a node read and write the memory of each other one, the way NCCL does, and checks what arrived.

One process per GPU shares its memory by a handle (`ipc`: cuIpcGetMemHandle; `cumem`: a descriptor of a cuMemCreate
allocation), and a kernel on another GPU loads from and stores to it: copies inside one process can be staged through the
host by the driver and succeed where that fails. One direction of one pair at a time.

The request: `devices` (CUDA's ordinals), `pairs` of them, `needed_mib`, `start_seconds` and `answer_seconds`. Says
{"at": what} before each step and {"copy": {...}} for each direction and mechanism; after one whose kernel failed or that
gave no answer, nothing more, since its context is lost or its process stands in the driver.
"""

import array
import ctypes
import functools
import json
import os
import select
import socket
import time

WORDS = 16384
BYTES = 4 * WORDS
BLOCK = 2 << 20  # smaller allocations can lie in one block with others, and CUDA IPC shares whole blocks
THREADS = 256
NOT_READY = 600
PINNED, POSIX_DESCRIPTOR, ON_DEVICE, READ_AND_WRITE, LAZY_PEER_ACCESS = 1, 1, 1, 3, 1
VIRTUAL_MEMORY, POSIX_HANDLES = 102, 103  # numbers of CUdevice_attribute
MECHANISMS = ("ipc", "cumem")
KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry exchange(.param .u64 own, .param .u64 peer, .param .u32 words)
{
    .reg .pred %p1;
    .reg .b32 %r<7>;
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [own];
    ld.param.u64 %d2, [peer];
    ld.param.u32 %r1, [words];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r4, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r4, %r1;
    @%p1 ret;
    mul.wide.u32 %d3, %r4, 4;
    mul.wide.u32 %d4, %r1, 4;
    add.u64 %d5, %d1, %d3;
    add.u64 %d6, %d2, %d3;
    add.u64 %d7, %d5, %d4;
    add.u64 %d8, %d6, %d4;
    ld.volatile.u32 %r5, [%d6];
    st.volatile.u32 [%d7], %r5;
    ld.volatile.u32 %r6, [%d5];
    st.volatile.u32 [%d8], %r6;
    membar.sys;
    ret;
}
"""
"""Thread i: own[words + i] = peer[i], and peer[words + i] = own[i]. The first half of a buffer is its GPU's pattern."""


class Failed(Exception):
    def __init__(self, step, call, code, error):
        Exception.__init__(self, error)
        self.words = {"outcome": "failed", "step": step, "call": call, "code": code, "error": error}


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location_type", ctypes.c_int), ("location", ctypes.c_int), ("flags", ctypes.c_int)]


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def main(request, say, hear):
    sides = {}
    for device in request["devices"]:
        sides[device] = Side(device, request, [side.link for side in sides.values()])
    for device, side in sides.items():
        say({"at": "the start of GPU processes"})
        told = side.answer(request["start_seconds"])
        if told.get("outcome") != "ready":
            say({"start": dict(told, device=device)})
            return
    for mechanism in MECHANISMS:
        for pair in request["pairs"]:
            for first, second in (pair, reversed(pair)):
                say({"at": "%s %d %d" % (mechanism, first, second)})
                found = copy(sides[first], sides[second], mechanism, request["answer_seconds"])
                say({"copy": dict(found, first=first, second=second, mechanism=mechanism)})
                if found["outcome"] == "no-answer" or found.get("step") == "run":
                    return


def copy(first, second, mechanism, seconds):
    """The kernel runs on `first` and works on memory of `second`."""
    told, descriptor = second.ask({"do": "offer", "mechanism": mechanism}, seconds)
    if told["outcome"] != "offered":
        return told
    order = {"do": "take", "mechanism": mechanism, "handle": told["handle"], "peer": second.device}
    told, _ = first.ask(order, seconds, descriptor)
    if descriptor is not None:
        os.close(descriptor)
    if told["outcome"] != "passed":
        return told
    return second.ask({"do": "verify", "by": first.device}, seconds)[0]


class Side:
    """The process of one GPU, seen from the one that gives orders."""

    def __init__(self, device, request, others):
        self.device = device
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if os.fork():
            theirs.close()
            return
        try:
            die_with_parent(parent)  # noqa: F821 - given by guard.py
            channel.close()  # noqa: F821 - given by guard.py
            for link in (*others, self.link):
                link.close()
            serve(device, request, theirs)
        finally:
            os._exit(0)

    def ask(self, order, seconds, descriptor=None):
        send(self.link, order, descriptor)
        told = self.answer(seconds)
        return told, told.pop("descriptor", None)

    def answer(self, seconds):
        """Its answer, or which call it stands in when the time is up."""
        deadline = time.monotonic() + seconds
        last = {"step": "start", "call": "its start"}
        while True:
            ready, _, _ = select.select([self.link], [], [], max(0.0, deadline - time.monotonic()))
            told = receive(self.link) if ready else {"outcome": "no-answer"}
            if told is None:
                return dict(last, outcome="failed", code=None, error="the process of this GPU ended")
            if "outcome" in told:
                return told if told["outcome"] in ("ready", "offered", "passed") else dict(last, **told)
            last = told


def send(link, message, descriptor=None):
    """A datagram; a descriptor travels as the kernel allows it, so that the other process gets one of its own."""
    rights = []
    if descriptor is not None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]).tobytes())]
    link.sendmsg([json.dumps(message).encode()], rights)


def receive(link):
    """The next message, with its descriptor; None where the other end is gone."""
    try:
        data, rights, _, _ = link.recvmsg(1 << 16, socket.CMSG_SPACE(4))
    except ConnectionResetError:
        return None
    if not data:
        return None
    message = json.loads(data.decode())
    for level, kind, words in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            message["descriptor"] = array.array("i", words[:4])[0]
    return message


def serve(device, request, link):
    """The process of one GPU: it obeys until the other end is closed."""
    gpu = None
    order = {"do": "start"}
    while order is not None:
        try:
            if order["do"] == "start":
                gpu = Gpu(device, request, link)
                found, descriptor = {"outcome": "ready"}, None
            elif order["do"] == "offer":
                found, descriptor = gpu.offer(order["mechanism"])
            elif order["do"] == "take":
                found, descriptor = gpu.take(order), None
            else:
                found, descriptor = gpu.check("write", order["by"]), None
        except Failed as failure:
            found, descriptor = failure.words, None
        except (OSError, AttributeError) as error:
            found, descriptor = {"outcome": "failed", "call": "libcuda.so.1", "code": None, "error": str(error)}, None
        send(link, found, descriptor)
        if descriptor is not None:
            os.close(descriptor)
        order = receive(link)


class Gpu:
    """One GPU in its primary context."""

    def __init__(self, ordinal, request, link):
        self.ordinal, self._link, self._step = ordinal, link, "start"
        self._seconds = request["answer_seconds"]
        self._buffers = {}
        self._call("dlopen", lambda: 0)
        self._cuda = ctypes.CDLL("libcuda.so.1")
        device, context, free, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        self._ask("cuInit", 0)
        self._ask("cuDeviceGet", ctypes.byref(device), ordinal)
        self._ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._ask("cuCtxSetCurrent", context)
        self._ask("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        self._device = device
        if free.value >> 20 < request["needed_mib"]:
            raise Failed("start", "cuMemGetInfo", None, "%d MiB free" % (free.value >> 20))
        module, self._function, self._stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._ask("cuModuleLoadData", ctypes.byref(module), KERNEL)
        self._ask("cuModuleGetFunction", ctypes.byref(self._function), module, b"exchange")
        self._ask("cuStreamCreate", ctypes.byref(self._stream), 1)
        self._own = self._allocate("ipc")

    def offer(self, mechanism):
        """Memory of this GPU with its pattern in it, and the handle by which another process can map it."""
        self._step = "offer"
        if mechanism == "cumem" and not self._has_cumem():
            return {"outcome": "unsupported", "step": "offer", "error": "this GPU's memory has no descriptors"}, None
        if mechanism not in self._buffers:
            self._buffers[mechanism] = self._own if mechanism == "ipc" else self._allocate("cumem")
        address, allocation = self._own = self._buffers[mechanism]
        self._fill(address)
        if mechanism == "ipc":
            handle = IpcHandle()
            code = self._call("cuIpcGetMemHandle", self._cuda.cuIpcGetMemHandle, ctypes.byref(handle), address)
            if code:
                # NCCL finds out in the same way, and then takes another way
                return {"outcome": "unsupported", "step": "offer", "error": self._words(code)}, None
            return {"outcome": "offered", "handle": bytes(handle.bytes).hex()}, None
        descriptor = ctypes.c_int()
        self._ask("cuMemExportToShareableHandle", ctypes.byref(descriptor), allocation, POSIX_DESCRIPTOR, u64(0))
        return {"outcome": "offered", "handle": ""}, descriptor.value

    def take(self, order):
        """Map a peer's memory, let the kernel read from and write to it, and check what was read."""
        self._step = "open"
        self._own = self._buffers.setdefault("ipc", self._own)
        self._fill(self._own[0])
        peer = self._open(order)
        self._step = "launch"
        own, words = self._own[0], ctypes.c_uint(WORDS)
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(each) for each in (own, peer, words)))
        grid, block = (WORDS // THREADS, 1, 1), (THREADS, 1, 1)
        self._ask("cuLaunchKernel", self._function, *grid, *block, 0, self._stream, arguments, None)
        self._step = "run"
        started = time.monotonic()
        while self._call("cuStreamQuery", self._cuda.cuStreamQuery, self._stream) == NOT_READY:
            if time.monotonic() - started > self._seconds / 2:
                return {"outcome": "no-answer"}
            time.sleep(0.002)
        self._ask("cuStreamSynchronize", self._stream)
        found = self.check("read", order["peer"])
        self._step = "close"
        self._close(order["mechanism"], peer)
        return found

    def check(self, step, other):
        """Whether the second half of this GPU's buffer holds the pattern of another GPU."""
        self._step = step
        halves = (ctypes.c_uint32 * (2 * WORDS))()
        self._ask("cuMemcpyDtoH_v2", halves, self._own[0], ctypes.c_size_t(2 * BYTES))
        got, expected = halves[WORDS:], pattern(other)
        if got == expected:
            return {"outcome": "passed"}
        wrong = [place for place in range(WORDS) if got[place] != expected[place]]
        place = wrong[0]
        told = "%d of %d words, the first 0x%08x instead of 0x%08x" % (len(wrong), WORDS, got[place], expected[place])
        return {"outcome": "wrong-data", "step": step, "call": "", "code": None, "error": told}

    def _allocate(self, mechanism):
        """Room for two halves, and what stands for it when it is shared."""
        address = ctypes.c_uint64()
        if mechanism == "ipc":
            self._ask("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BLOCK))
            self._buffers["ipc"] = (address, None)
            return self._buffers["ipc"]
        allocation, properties = ctypes.c_uint64(), self._properties()
        self._ask("cuMemCreate", ctypes.byref(allocation), self._room(), ctypes.byref(properties), u64(0))
        return self._map(allocation), allocation

    def _fill(self, address):
        halves = (ctypes.c_uint32 * (2 * WORDS))(*pattern(self.ordinal))
        self._ask("cuMemcpyHtoD_v2", address, halves, ctypes.c_size_t(2 * BYTES))

    def _open(self, order):
        if order["mechanism"] == "ipc":
            address, handle = ctypes.c_uint64(), IpcHandle.from_buffer_copy(bytes.fromhex(order["handle"]))
            self._cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, IpcHandle, ctypes.c_uint]
            self._ask("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle, LAZY_PEER_ACCESS)
            return address
        allocation, descriptor = ctypes.c_uint64(), order["descriptor"]
        self._ask(
            "cuMemImportFromShareableHandle", ctypes.byref(allocation), ctypes.c_void_p(descriptor), POSIX_DESCRIPTOR
        )
        os.close(descriptor)
        self._step = "map"
        address = self._map(allocation)
        # the mapping keeps the memory
        self._ask("cuMemRelease", allocation)
        return address

    def _close(self, mechanism, address):
        if mechanism == "ipc":
            self._ask("cuIpcCloseMemHandle", address)
        else:
            self._ask("cuMemUnmap", address, self._room())
            self._ask("cuMemAddressFree", address, self._room())

    def _map(self, allocation):
        address, access = ctypes.c_uint64(), Access(ON_DEVICE, self._device.value, READ_AND_WRITE)
        self._ask("cuMemAddressReserve", ctypes.byref(address), self._room(), ctypes.c_size_t(0), u64(0), u64(0))
        self._ask("cuMemMap", address, self._room(), ctypes.c_size_t(0), allocation, u64(0))
        self._ask("cuMemSetAccess", address, self._room(), ctypes.byref(access), ctypes.c_size_t(1))
        return address

    def _room(self):
        step, properties = ctypes.c_size_t(), self._properties()
        self._ask("cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(properties), 0)
        return ctypes.c_size_t(-(-2 * BYTES // step.value) * step.value)

    def _properties(self):
        return Properties(PINNED, POSIX_DESCRIPTOR, ON_DEVICE, self._device.value, None)

    def _has_cumem(self):
        if not hasattr(self._cuda, "cuMemExportToShareableHandle"):
            return False
        found = []
        for attribute in (VIRTUAL_MEMORY, POSIX_HANDLES):
            value = ctypes.c_int()
            self._ask("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device)
            found.append(value.value)
        return all(found)

    def _ask(self, name, *arguments):
        code = self._call(name, getattr(self._cuda, name), *arguments)
        if code:
            raise Failed(self._step, name, code, self._words(code))

    def _call(self, name, function, *arguments):
        """Named before it is made, so that one that never returns is known."""
        send(self._link, {"step": self._step, "call": name})
        return function(*arguments)

    def _words(self, code):
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorString(code, ctypes.byref(text))
        return (text.value or b"").decode("utf-8", "replace") or "error %d" % code


def u64(value):
    return ctypes.c_uint64(value)


@functools.lru_cache(None)
def pattern(device):
    """Words that differ from place to place and from GPU to GPU, none of them 0."""
    return [((place * 2654435761 + (device + 1) * 40503) & 0xFFFFFFFF) | 1 for place in range(WORDS)]
