"""Takes the stacks of many processes with py-spy, several at a time, and says them one thread per message.

First without locals; a second look, with the arguments of torch.distributed frames alone, is taken of those that wait
there. The CPU time and the innermost frames of both looks tell who moved meanwhile.
"""

import json
import os
import re
import subprocess
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")
SECOND_LOOK = 0.25
MOST_FRAMES = 60


def cpu_seconds(pid):
    """CPU time of all threads, and of those that move Gloo's data; to the nanosecond where there are few threads."""
    base = "/proc/%d/task/" % pid
    try:
        tasks = os.listdir(base)
        if len(tasks) <= 300:
            whole = gloo = 0
            for task in tasks:
                with open(base + task + "/schedstat") as file:
                    used = int(file.read().split()[0])
                with open(base + task + "/comm") as file:
                    gloo += used if "gloo" in file.read() else 0
                whole += used
            return whole / 1e9, gloo / 1e9
    except (OSError, ValueError, IndexError):
        pass
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS, 0.0
    except (OSError, IndexError, ValueError):
        return None


def start_time(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def must_not_wait(pid):
    """Whether a thread is stopped or uninterruptible: py-spy would wait for it, with all others frozen."""
    base = "/proc/%d/task/" % pid
    try:
        for task in os.listdir(base):
            with open(base + task + "/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] in b"DTt":
                    return True
    except OSError:
        pass
    return False


def dump(py_spy, pid, seconds, *flags):
    argv = [py_spy, "dump", "--json", "--pid", str(pid), *flags]
    if "--native" not in flags and "--nonblocking" not in flags and must_not_wait(pid):
        argv.append("--nonblocking")
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return None, "no answer from py-spy in %.1f s" % seconds, True
    if process.returncode != 0 or not out.strip():
        return None, error.decode("utf-8", "replace").strip() or "exit code %s" % process.returncode, False
    try:
        return json.loads(out), "", False
    except ValueError:
        return None, "py-spy printed no JSON", False


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


class Looks:
    """Two rounds over all processes, several dumps at a time."""

    def __init__(self, request, say):
        self._request, self._say = request, say
        self._lock = threading.Lock()
        self._deadline = time.monotonic() + request["seconds"]
        self._first, self._begun, self._answered = {}, {}, set()

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

    def _look_first(self, pid):
        self._begun[pid] = start_time(pid), cpu_seconds(pid), time.monotonic()
        native = ("--native",) if self._request.get("native") else ()
        threads, error, late = self._dump(pid, *native)
        if threads is None and not late:
            # a process that starts, stops or is dumped by somebody else refuses for a moment
            threads, error, late = self._dump(pid, "--nonblocking")
        if threads is None:
            self._tell({"pid": pid, "start_time": self._begun[pid][0], "error": error[-600:], "late": late})
        else:
            self._first[pid] = threads

    def _look_again(self, pid):
        threads = self._first[pid]
        started, before, at = self._begun[pid]
        pause = SECOND_LOOK - (time.monotonic() - at)
        if pause > 0:
            time.sleep(pause)
        after, until = cpu_seconds(pid), time.monotonic()
        waiting = re.compile(self._request["waiting"])
        in_torch = any(
            waiting.search(frame.get("filename") or "") for thread in threads for frame in thread.get("frames", ())
        )
        # the second look pauses nobody: a thread that waits has the same frames, and one that runs has moved
        again, _, _ = self._dump(pid, "--nonblocking", *(("--locals",) if in_torch else ()))
        moved = None
        if again is not None:
            first, now = places(threads), {identity(thread): thread for thread in again}
            moved = [key for key, frames in places(again).items() if first.get(key) not in (None, frames)]
            if not self._request.get("native"):
                threads = [
                    thread if identity(thread) in moved else now.get(identity(thread), thread) for thread in threads
                ]
        used = [None, None]
        if before is not None and after is not None:
            used = [round(max(0.0, late - early) / (until - at), 4) for early, late in zip(before, after)]
        head = {"pid": pid, "start_time": started, "moved": moved, "same": start_time(pid) == started}
        head["cpu"], head["gloo_cpu"] = used
        kept, wanted = set(self._request["arguments"]), re.compile(self._request["argument_frames"])
        self._tell(head, *({"thread": keep(thread, kept, wanted), "of": pid} for thread in threads))

    def _tell(self, head, *threads):
        with self._lock:
            self._answered.add(head["pid"])
            self._say(head)
            for thread in threads:
                self._say(thread)


def main(request, say, hear):
    Looks(request, say).all()
