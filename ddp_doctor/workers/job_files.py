"""Reads what a job's processes print to, and flight recorder dumps that are newer than the job; in pieces, base64.

Of a long log the beginning and the end are read. `appended` says that the log was opened to append, so that it may hold an
earlier run.
"""

import base64
import os
import stat
import time

PIECE = 1 << 17
O_APPEND = os.O_APPEND


def main(request, say, hear):
    seen = set()
    for each in request["outputs"]:
        path = "/proc/%d/fd/%s" % (each["pid"], each["descriptor"])
        try:
            facts = os.stat(path)
            key = facts.st_dev, facts.st_ino
            if not stat.S_ISREG(facts.st_mode) or not facts.st_size:
                continue
            say({"output": each["path"], "pid": each["pid"], "key": list(key), "appended": appends(each)})
            if key not in seen:
                seen.add(key)
                send(path, facts.st_size, request["head"], request["tail"], say)
        except OSError as error:
            say({"output": each["path"], "pid": each["pid"], "error": error.strerror or str(error)})
    for path in request["dumps"]:
        try:
            facts = os.stat(path)
            if (
                stat.S_ISREG(facts.st_mode)
                and 0 < facts.st_size <= request["largest"]
                and facts.st_mtime > request["since"]
            ):
                say({"dump": path, "age_s": round(time.time() - facts.st_mtime, 1)})
                send(path, facts.st_size, request["largest"], 0, say)
        except OSError:
            continue


def appends(each):
    with open("/proc/%d/fdinfo/%s" % (each["pid"], each["descriptor"])) as file:
        for line in file:
            if line.startswith("flags:"):
                return bool(int(line.split()[1], 8) & O_APPEND)
    return True


def send(path, size, head, tail, say):
    with open(path, "rb") as file:
        for start, length in ((0, head), (max(head, size - tail), tail)):
            file.seek(start)
            end = start + length
            while start < min(end, size):
                data = file.read(min(PIECE, end - start))
                if not data:
                    break
                say({"at": start, "data": base64.b64encode(data).decode()})
                start += len(data)
