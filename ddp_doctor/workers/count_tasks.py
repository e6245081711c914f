"""Counts the threads of one user, as RLIMIT_NPROC does."""

import os


def main(request, say, hear):
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat("/proc/" + pid).st_uid == request["uid"]:
                with open("/proc/%s/stat" % pid, "rb") as file:
                    total += int(file.read().rpartition(b")")[2].split()[17])
        except (OSError, ValueError, IndexError):
            continue
    say({"tasks": total})
