"""Takes the stacks of many processes with py-spy, several at a time, and says them one thread per message.

No process is paused: py-spy reads memory while the threads run. What ran meanwhile tells the kernel's own clock of each
thread: where no thread ran between the beginning and the end, one dump is the truth; elsewhere a second one tells who
moved. Arguments of torch.distributed frames are kept, of threads that wait there; no other local leaves this process.
"""

import json
import os
import re
import signal
import struct
import subprocess
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
FIRST_PAUSE, WHOLE_PAUSE = 0.04, 0.25
MOST_FRAMES = 60
MOST_TASKS = 1500
THREAD_RECORD = 1024  # bytes of libc's record of a thread in which its id stands, with every libc


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Clock:
    """Nanoseconds each thread of a process has run, and when they were read; `of` is None where the kernel counts none."""

    def __init__(self, pid):
        base = self._base = "/proc/%d/task/" % pid
        self.at, self.of = time.monotonic(), None
        try:
            tasks = os.listdir(base)
            if len(tasks) <= MOST_TASKS:
                self.of = {int(task): int(read(base + task + "/schedstat").split()[0]) for task in tasks}
        except (OSError, ValueError, IndexError):
            self.of = None
        self.whole = sum(self.of.values()) / 1e9 if self.of is not None else ticks_used(pid)

    def ran_since(self, before):
        """Threads that ran since then or came since then."""
        return {task for task, used in (self.of or {}).items() if (before.of or {}).get(task) != used}

    def still_since(self, before, tasks):
        """Whether it is certain that none of these threads ran since then, or runs now, on a CPU whose clock may rest."""
        if self.of is None or before.of is None or not tasks:
            return False
        for task in tasks:
            fields = stat_fields("%s%s/stat" % (self._base, task))
            if fields is None or fields[0] == b"R" or before.of.get(task, -1) != self.of.get(task):
                return False
        return True


def ticks_used(pid):
    fields = stat_fields("/proc/%d/stat" % pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else None


def stat_fields(path):
    """The fields after the name; None where the process went while it was read."""
    try:
        fields = read(path).rpartition(b")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 25 else None


def identity_of(pid):
    """When a process started and where its stack begins (another place after exec); None, None once it ended."""
    fields = stat_fields("/proc/%d/stat" % pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None, None
    return int(fields[19]), int(fields[25])


def share(pid, before, after, wanted=""):
    """The share of one CPU that was used between two clocks by all threads, or by those with that word in their names."""
    seconds = after.at - before.at
    if not wanted:
        if before.whole is None or after.whole is None:
            return None
        return round(max(0.0, after.whole - before.whole) / seconds, 4)
    used = 0
    for task in after.ran_since(before):
        try:
            if wanted.encode() in read("/proc/%d/task/%d/comm" % (pid, task)):
                used += after.of[task] - before.of.get(task, 0)
        except OSError:
            continue
    return round(max(0, used) / 1e9 / seconds, 4)


def must_not_wait(pid):
    """Whether a thread is stopped or uninterruptible: what pauses a process would wait for it, with all others frozen."""
    base = "/proc/%d/task/" % pid
    try:
        return any((stat_fields(base + task + "/stat") or b"R")[0] in (b"D", b"T", b"t") for task in os.listdir(base))
    except OSError:
        return False


def kernel_ids(pid, threads):
    """Give each thread its id as it is seen from here: py-spy tells the one inside its container, or none (Python 3.10)."""
    base = "/proc/%d/task/" % pid
    seen = {}
    try:
        contained = len(inner_ids("/proc/%d/status" % pid)) > 1
        for task in os.listdir(base):
            inner = inner_ids(base + task + "/status")[-1] if contained else int(task)
            seen[inner] = int(task)
    except (OSError, IndexError):
        return
    for thread in threads:
        inner = thread.get("os_thread_id")
        if inner is None:
            inner = id_in_memory(pid, thread.get("thread_id"), seen)
        thread["os_thread_id"] = seen.get(inner, inner)


def inner_ids(path):
    line = next((line for line in read(path).splitlines() if line.startswith(b"NSpid:")), b"NSpid:")
    return [int(word) for word in line.split()[1:]]


def id_in_memory(pid, record, known):
    """The id in libc's record of the thread, to which its pthread_t points."""
    try:
        with open("/proc/%d/mem" % pid, "rb", 0) as memory:
            memory.seek(record)
            data = memory.read(THREAD_RECORD)
    except (OSError, TypeError, ValueError, OverflowError):
        return None
    words = struct.unpack("<%dI" % (len(data) // 4), data[: len(data) // 4 * 4])
    return next((word for word in words if word in known), None)


def take_back_stop(pid):
    """Undo the requests to stop of a py-spy that was killed: one that still waits for a thread would stop the process."""
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError:
        pass


def dump(py_spy, pid, seconds, *flags):
    argv = [*py_spy, "dump", "--json", "--pid", str(pid), *flags]
    pauses = "--nonblocking" not in flags
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        if pauses:
            take_back_stop(pid)
        return None, "no answer from py-spy in %.1f s" % seconds, True
    if process.returncode != 0 or not out.strip():
        return None, error.decode("utf-8", "replace").strip() or "exit code %s" % process.returncode, False
    try:
        threads = json.loads(out)
    except ValueError:
        return None, "py-spy printed no JSON", False
    kernel_ids(pid, threads)
    return threads, "", False


def keep(thread, kept, patterns):
    """A thread without what may not leave this process: all locals but the wanted arguments of the wanted frames."""
    frames = []
    for frame in thread.get("frames", ())[:MOST_FRAMES]:
        place = frame.get("filename") or frame.get("short_filename") or ""
        allowed = kept if patterns.search(place) else ()
        frames.append(
            {
                "name": frame.get("name", ""),
                "filename": place,
                "line": frame.get("line") or 0,
                "locals": [
                    {"name": local["name"], "arg": True, "repr": str(local.get("repr", ""))[:200]}
                    for local in frame.get("locals") or ()
                    if local.get("arg") and local.get("name") in allowed
                ],
            }
        )
    return {
        "pid": thread.get("pid"),
        "thread_id": thread.get("thread_id"),
        "os_thread_id": thread.get("os_thread_id"),
        "thread_name": thread.get("thread_name"),
        "active": thread.get("active"),
        "owns_gil": thread.get("owns_gil"),
        "frames": frames,
    }


def identity(thread):
    return thread.get("os_thread_id") or thread.get("thread_id")


def places(threads):
    return {
        identity(thread): [(frame.get("name"), frame.get("line")) for frame in thread.get("frames", ())]
        for thread in threads
    }


def wholeness(thread):
    """Whether its outermost frame is where threads begin, and how many frames there are."""
    names = [frame.get("name", "") for frame in thread.get("frames", ())]
    begins = bool(names) and (names[-1] in ("<module>", "_run_module_as_main") or names[-1].endswith("_bootstrap"))
    return begins, len(names)


class Looks:
    """Two rounds over all processes, several dumps at a time."""

    def __init__(self, request, say):
        self._request, self._say = request, say
        self._lock = threading.Lock()
        self._deadline = time.monotonic() + request["seconds"]
        self._waiting = re.compile(request["waiting"])
        self._begun = {pid: Clock(pid) for pid in request["pids"]}
        self._first, self._answered = {}, set()

    def all(self):
        self._round(self._look_first, self._request["pids"])
        self._round(self._look_again, list(self._first))
        for pid in self._request["pids"]:
            if pid not in self._answered:
                self._tell({"pid": pid, "error": "not looked at: the time was up", "late": True})

    def _round(self, look, pids):
        queue = list(pids)

        def work():
            while True:
                with self._lock:
                    if not queue or time.monotonic() > self._deadline:
                        return
                    pid = queue.pop(0)
                look(pid)

        threads = [threading.Thread(target=work) for _ in range(min(self._request["at_once"], len(queue)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _dump(self, pid, *flags):
        left = max(0.2, min(self._request["each"], self._deadline - time.monotonic()))
        return dump(self._request["py_spy"], pid, left, *flags)

    def _pause(self, pid, seconds):
        left = self._begun[pid].at + seconds - time.monotonic()
        if left > 0:
            time.sleep(left)

    def _look_first(self, pid):
        before = self._begun[pid]
        native = self._request.get("native") and not must_not_wait(pid)
        self._pause(pid, FIRST_PAUSE)
        # one that waits stands where it stands: its arguments can be had at once
        waits = Clock(pid).still_since(before, [pid])
        flags = ("--native",) if native else ("--nonblocking", "--locals") if waits else ("--nonblocking",)
        threads, error, late = self._dump(pid, *flags)
        if threads is None and not late:
            # a process that starts, or whose threads change what is being read, refuses for a moment
            threads, error, late = self._dump(pid, "--nonblocking")
        if threads is None and identity_of(pid) == (None, None):
            self._tell({"pid": pid, "start_time": None, "image": None})
        elif threads is None:
            self._tell({"pid": pid, "error": error[-600:], "late": late})
        else:
            self._first[pid] = threads, waits and not native

    def _look_again(self, pid):
        threads, with_arguments = self._first[pid]
        before = self._begun[pid]
        self._pause(pid, WHOLE_PAUSE)
        after = Clock(pid)
        moved = []
        if not with_arguments or not after.still_since(before, [identity(thread) for thread in threads]):
            threads, moved = self._compare(pid, threads)
        started, image = identity_of(pid)
        head = {"pid": pid, "start_time": started, "image": image, "moved": moved}
        head["cpu"], head["gloo_cpu"] = share(pid, before, after), share(pid, before, after, "gloo")
        kept, wanted = set(self._request["arguments"]), re.compile(self._request["argument_frames"])
        self._tell(head, *({"thread": keep(thread, kept, wanted), "of": pid} for thread in threads))

    def _compare(self, pid, threads):
        """A second look: the threads, those that did not move with their arguments, and which moved."""
        in_torch = any(
            self._waiting.search(frame.get("filename") or "")
            for thread in threads
            for frame in thread.get("frames", ())
        )
        again, _, _ = self._dump(pid, "--nonblocking", *(("--locals",) if in_torch else ()))
        if again is None:
            return threads, None
        first, now = places(threads), {identity(thread): thread for thread in again}
        moved = [key for key, frames in places(again).items() if first.get(key) not in (None, frames)]
        if self._request.get("native"):
            return threads, moved
        # of a thread that ran while it was read, outer frames can be lost
        return [
            now.get(identity(thread), thread)
            if identity(thread) not in moved
            else max(thread, now[identity(thread)], key=wholeness)
            for thread in threads
        ], moved

    def _tell(self, head, *threads):
        with self._lock:
            self._answered.add(head["pid"])
            self._say(head)
            for thread in threads:
                self._say(thread)


def main(request, say, hear):
    Looks(request, say).all()
