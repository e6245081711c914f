"""Finds what functions of one library the threads of other processes stand in, by the return addresses on their stacks.

Nobody is stopped: memory is read through /proc/PID/mem as it is. A return address counts where the instruction before it
is a call, and a chain goes on only to a frame of the function that the call before it names, so that what earlier calls
left on a stack is passed over. Names come from the library's own symbol table; without one there is nothing to say.
"""

import bisect
import os
import re
import struct
import time
from array import array

MOST_STACK = 1 << 19
LEAST_GUARDED = 1 << 16
MOST_THREADS = 400
MOST_FRAMES = 40
MOST_HITS = 400
LOOK_SECONDS = 0.1
CONFIRM_SECONDS = 1.0
WAITS = ("polls", "socket", "sleeps", "futex")
TICKS = os.sysconf("SC_CLK_TCK")
FUNCTION, SYMBOLS = 2, 2
SOCKET_CALLS = {
    "x86_64": {7, 23, 42, 43, 45, 47, 232, 270, 271, 281, 288},
    "aarch64": {22, 72, 73, 202, 203, 207, 212, 242},
}
CALLS = {
    "x86_64": {0: "read", 16: "ioctl", 24: "sched_yield", 34: "pause", 35: "nanosleep", 202: "futex", 230: "nanosleep"},
    "aarch64": {29: "ioctl", 63: "read", 98: "futex", 101: "nanosleep", 115: "nanosleep", 124: "sched_yield"},
}
MACHINE = os.uname().machine
POINTED_TO = re.compile(r"Func$|Connect$|Setup$|Init$")
NAME = re.compile(r"^_ZN?L?K?(\d+)(\w+)")


def main(request, say, hear):
    end = time.monotonic() + request["seconds"]
    wanted = re.compile(request["library"])
    entries = re.compile(request["entries"])
    seen = []
    for pid in request["pids"]:
        if time.monotonic() > end:
            break
        try:
            before = {task: ticks(pid, task) for task in tasks(pid)}
            seen.append((look_at(pid, wanted, entries, before), before))
        except (OSError, ValueError, struct.error, IndexError) as error:
            say({"pid": pid, "error": str(error)})
    if any(found["threads"] for found, _ in seen):
        time.sleep(LOOK_SECONDS)
    for found, before in seen:
        for thread in found["threads"]:
            thread["does"] = does(found["pid"], thread["thread"], before.get(thread["thread"]))
    unlike = [found for found, _ in seen if any(thread["does"] not in WAITS for thread in found["threads"])]
    if unlike and time.monotonic() + CONFIRM_SECONDS < end:
        # a call of the driver takes its time on a healthy machine too
        time.sleep(CONFIRM_SECONDS)
        for found in unlike:
            confirm(found, wanted, entries)
    for found, _ in seen:
        say(found)


def confirm(found, wanted, entries):
    """Says of each thread that does not wait for a peer whether it still stands in the same call."""
    threads = [each for each in found["threads"] if each["does"] not in WAITS]
    try:
        again = look_at(found["pid"], wanted, entries, tasks(found["pid"]))["threads"]
    except (OSError, ValueError, struct.error, IndexError):
        again = []
    now = {each["thread"]: each["frames"] for each in again}
    for each in threads:
        if now.get(each["thread"]) != each["frames"] or each["does"] != does(found["pid"], each["thread"], None):
            each["does"] = "moves"


def look_at(pid, wanted, entries, threads):
    maps = Maps(pid)
    code = next((each for each in maps.rows if "x" in each.mode and wanted.search(each.path)), None)
    found = {"pid": pid, "start_time": start_time(pid), "threads": []}
    if code is None:
        return found
    library = library_at("/proc/%d/root%s" % (pid, code.path))
    found.update(library=code.path, version=library.version)
    if not library.starts:
        return dict(found, error="%s has no symbols" % code.path)
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for task, start, stop in maps.stacks(threads):
            chain = frames(memory, start, stop, library, code.start - code.offset, entries)
            if chain:
                found["threads"].append({"thread": task, "frames": chain})
    return found


class Row:
    def __init__(self, line):
        words = line.split(None, 5)
        first, _, last = words[0].partition("-")
        self.start, self.end = int(first, 16), int(last, 16)
        self.mode, self.offset = words[1], int(words[2], 16)
        self.path = words[5].strip() if len(words) > 5 else ""


class Maps:
    """The memory map of a process."""

    def __init__(self, pid):
        self._pid = pid
        with open("/proc/%d/maps" % pid) as file:
            self.rows = [Row(line) for line in file]
        self._starts = [row.start for row in self.rows]

    def row(self, address):
        place = bisect.bisect(self._starts, address) - 1
        return self.rows[place] if place >= 0 and address < self.rows[place].end else None

    def stacks(self, threads):
        """Thread (None where not known), and where its stack is in use; all of it where the thread runs."""
        taken, running = set(), []
        for task in list(threads)[:MOST_THREADS]:
            pointer = stack_pointer(self._pid, task)
            row = self.row(pointer) if pointer else None
            if row is None:
                running.append(task)
                continue
            taken.add(row.start)
            yield task, pointer & ~7, min(row.end, pointer + MOST_STACK)
        for before, row in zip(self.rows, self.rows[1:]):
            if not running or row.start in taken or not row.mode.startswith("rw"):
                continue
            own = row.path == "[stack]"
            guarded = not row.path and before.mode.startswith("---") and before.end == row.start
            if (own and self._pid in running) or (guarded and row.end - row.start >= LEAST_GUARDED):
                task = self._pid if own else running[0] if len(running) == 1 else None
                yield task, max(row.start, row.end - MOST_STACK), row.end


def tasks(pid):
    return sorted(map(int, os.listdir("/proc/%d/task" % pid)), key=lambda task: task != pid)


def start_time(pid):
    with open("/proc/%d/stat" % pid, "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def ticks(pid, task):
    try:
        with open("/proc/%d/task/%d/stat" % (pid, task), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[11]), int(fields[12])
    except (OSError, IndexError):
        return None


def system_call(pid, task):
    """Number and words of the call a thread is in; None while it runs."""
    try:
        with open("/proc/%d/task/%d/syscall" % (pid, task)) as file:
            words = file.read().split()
        return (int(words[0]), words) if len(words) > 2 else None
    except (OSError, ValueError, IndexError):
        return None


def stack_pointer(pid, task):
    call = system_call(pid, task)
    return int(call[1][-2], 16) if call else 0


def does(pid, task, before):
    """`socket`, `polls` and `sleeps` wait for a peer; `computes`, or the name or number of another call."""
    if task is None:
        return "polls"
    call = system_call(pid, task)
    if call is None:
        now = ticks(pid, task)
        if not before or not now:
            return "polls"
        user, system = now[0] - before[0], now[1] - before[1]
        return "computes" if user > 5 * (system + 1) else "polls"
    number, words = call
    name = CALLS.get(MACHINE, {}).get(number, str(number))
    if number in SOCKET_CALLS.get(MACHINE, ()):
        return "socket"
    if name == "read":
        try:
            target = os.readlink("/proc/%d/fd/%d" % (pid, int(words[1], 16)))
        except OSError:
            target = ""
        return "socket" if target.startswith("socket:") else "read"
    return {"nanosleep": "sleeps", "sched_yield": "polls"}.get(name, name)


_libraries = {}


def library_at(path):
    facts = os.stat(path)
    key = facts.st_dev, facts.st_ino
    if key not in _libraries:
        _libraries[key] = Library(path)
    return _libraries[key]


class Library:
    """Functions and code of one file."""

    def __init__(self, path):
        self.starts, self.names, self.version = [], [], None
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                raise ValueError("%s is no library" % path)
            (table,) = struct.unpack_from("<Q", head, 40)
            size, count, names_at = struct.unpack_from("<HHH", head, 58)
            file.seek(table)
            raw = file.read(size * count)
            sections = [struct.unpack_from("<IIQQQQIIQQ", raw, at * size) for at in range(count)]
            symbols = next((each for each in sections if each[1] == SYMBOLS), None)
            file.seek(sections[names_at][4])
            titles = file.read(sections[names_at][5])
            code = next(each for each in sections if titles[each[0] :].startswith(b".text\0"))
            self.low, self.high = code[3], code[3] + code[5]
            file.seek(code[4])
            self._code = file.read(code[5])
            if symbols is not None:
                self._read_symbols(file, symbols, sections[symbols[6]])

    def _read_symbols(self, file, symbols, strings):
        file.seek(symbols[4])
        raw = file.read(symbols[5])
        file.seek(strings[4])
        names = file.read(strings[5])
        found = {}
        for name, kind, _, _, value, size in struct.iter_unpack("<IBBHQQ", raw):
            if kind & 15 == FUNCTION and value and self.low <= value < self.high:
                found.setdefault(value, (names[name : names.index(b"\0", name)].decode("ascii", "replace"), size))
        self.starts = sorted(found)
        self.names = [plain(found[start][0]) for start in self.starts]
        self.version = next((self._number(start, found[start][1]) for start in self.starts
                             if found[start][0] == "ncclGetVersion"), None)  # fmt: skip

    def _number(self, start, size):
        """The constant that ncclGetVersion returns, from its code."""
        code = self._code[start - self.low : start - self.low + min(size, 400)]
        for at in range(len(code) - 3):
            (word,) = struct.unpack_from("<I", code, at)
            if MACHINE == "aarch64" and at % 4 == 0 and word & 0xFFE00000 == 0x52800000:
                word = word >> 5 & 0xFFFF
            if 20000 < word < 40000 and word % 100 < 40:
                return word
        return None

    def function(self, address):
        place = bisect.bisect(self.starts, address) - 1
        return self.names[place] if place >= 0 else ""

    def called(self, address):
        """Whether a call stands before this address, and the function it names; empty for one through a pointer."""
        at = address - self.low
        code = self._code
        if MACHINE == "aarch64":
            (word,) = struct.unpack_from("<I", code, at - 4)
            if word >> 26 == 0x25:
                offset = word & 0x3FFFFFF
                return True, self._named(address - 4 + 4 * (offset - (offset >> 25 << 26)))
            return word & 0xFFFFFC1F == 0xD63F0000, ""
        if at >= 5 and code[at - 5] == 0xE8:
            return True, self._named(address + struct.unpack_from("<i", code, at - 4)[0])
        for length in (2, 3, 4, 6, 7):
            if at >= length and code[at - length] == 0xFF and code[at - length + 1] >> 3 & 7 == 2:
                return True, ""
            if at > length and code[at - length] == 0x41 and code[at - length + 1] == 0xFF:
                return True, ""
        return False, ""

    def _named(self, address):
        """The function that begins there; `@` for one of another library."""
        return self.function(address) if self.low <= address < self.high else "@"


def plain(name):
    """A C++ name without its arguments and the compiler's additions."""
    match = NAME.match(name)
    if match:
        return match[2][: int(match[1])]
    return name.partition(".")[0]


def frames(memory, start, stop, library, base, entries):
    """Functions of the library on a stretch of stack, innermost first; nothing where it was not entered."""
    low, high = library.low + base, library.high + base
    words = array("Q")
    memory.seek(start)
    data = memory.read(stop - start)
    words.frombytes(data[: len(data) // 8 * 8])
    hits = []
    for word in reversed(words):
        if low <= word < high:
            real, callee = library.called(word - base)
            if real:
                hits.append((library.function(word - base), callee))
    begin = next((place for place, (name, _) in enumerate(hits) if entries.search(name)), None)
    return [] if begin is None else list(reversed(chain(hits, begin)))


def chain(hits, begin):
    """The frames from one hit inwards: the callee's own; behind a call through a pointer one that is called so."""
    known = {}
    for place in range(len(hits) - 1, begin - 1, -1):
        name, callee = hits[place]
        below = range(place + 1, min(len(hits), place + MOST_HITS))
        if callee == "@" or (callee == "" and name.startswith("cuda")):
            inner = []
        elif callee:
            inner = next((known[each] for each in below if hits[each][0] == callee), [callee])
        else:
            inner = next((known[each] for each in below if POINTED_TO.search(hits[each][0])), [])
        known[place] = [name, *inner][:MOST_FRAMES]
    return known[begin]
