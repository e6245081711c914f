"""Starts one worker so that it cannot outlive the doctor: `python guard.py WORKER.py CHANNEL_FD PARENT_PID`.

The worker file defines `main(request, say, hear)`. Messages are JSON objects, one per datagram on the channel, which is
the only descriptor besides /dev/null (0) and a memory file (1 and 2). A request with `forks` asks for that many processes
from one start of Python: each entry is a request of its own with the `channel` and the `printed` file of its process. This
process then says only {"fork": place, "code": ...} at the end of each. Runs on any CPython >= 3.8, standard library only.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys

PR_SET_PDEATHSIG = 1
LONGEST_DATAGRAM = 100000  # the kernel's default send buffer holds 212992 bytes


def die_with_parent(parent_pid):
    """End this process when the thread that started it ends; fork clears the setting, so each fork calls this again."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def die_first_when_memory_is_short():
    """In a job's memory cgroup the doctor's children are the ones to go, not the job."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def come_last_as_the_doctor_does():
    """In the idle class: also as a session, since a kernel that groups by session weighs this one as the job's else."""
    try:
        if os.sched_getscheduler(0) == os.SCHED_IDLE:
            with open("/proc/self/autogroup", "w") as file:
                file.write("19")
    except (OSError, AttributeError):
        pass


def code_of(worker):
    """The worker compiled; from the bytecode of an installation where it is there for this Python, and never writing any."""
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader("ddp_doctor_worker", worker)
    code = loader.get_code("ddp_doctor_worker")
    sys.dont_write_bytecode = writes
    return code


def main():
    worker, channel_fd, parent_pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    die_with_parent(parent_pid)
    die_first_when_memory_is_short()
    come_last_as_the_doctor_does()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    here = os.path.dirname(os.path.abspath(worker))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    channel = socket.socket(fileno=channel_fd)
    say, hear = talk(channel)
    request = hear()
    if request is None:
        return
    scope = {
        "__name__": "ddp_doctor_worker",
        "__file__": worker,
        "die_with_parent": die_with_parent,
        "channel": channel,
    }
    exec(code_of(worker), scope)
    if "forks" in request:
        start_forks(request["forks"], scope, channel, say)
    else:
        scope["main"](request, say, hear)
    sys.stdout.flush()
    # interpreter shutdown can block in library destructors (CUDA, NCCL threads); nothing is left to say
    os._exit(0)


def talk(channel):
    """The two ways of the conversation on this channel."""

    def say(message):
        """Send one message; a long one in pieces, each marked with this process, since several may send at a time."""
        data = json.dumps(message).encode()
        while len(data) > LONGEST_DATAGRAM:
            channel.sendall(b"+%d " % os.getpid() + data[:LONGEST_DATAGRAM])
            data = data[LONGEST_DATAGRAM:]
        channel.sendall(b"=%d " % os.getpid() + data)

    def hear():
        """The doctor's next message, or None when it has closed the channel."""
        data = channel.recv(1 << 20)
        return json.loads(data) if data else None

    return say, hear


def start_forks(requests, scope, channel, say):
    """Fork before anything of the worker runs, so that no library has threads or a device open yet; tell of each end."""
    parent = os.getpid()
    places = {}
    for place, request in enumerate(requests):
        pid = os.fork()
        if pid == 0:
            channel.close()
            be_fork(requests, place, scope, parent)
        places[pid] = place
    for request in requests:
        os.close(request["channel"])
        os.close(request["printed"])
    while places:
        pid, status = os.wait()
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        say({"fork": places.pop(pid), "code": code})


def be_fork(requests, place, scope, parent):
    try:
        die_with_parent(parent)
        request = requests[place]
        for target in (1, 2):
            os.dup2(request["printed"], target)
        for other in requests:
            os.close(other["printed"])
            if other is not request:
                os.close(other["channel"])
        scope["channel"] = socket.socket(fileno=request["channel"])
        scope["main"](request, *talk(scope["channel"]))
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)


main()
