"""Sleeps as a rank with many threads, or with one that is uninterruptible: HOW is `threads` or `uninterruptible`."""

import ctypes
import os
import threading
import time

from common import ready


def spawn_that_never_returns():
    """The parent of a vfork is in state D until its child execs, and this child opens a pipe that nobody writes to."""
    fifo = os.path.join(os.environ["READY"], "..", f"fifo-{os.getpid()}")
    os.mkfifo(fifo)
    libc = ctypes.CDLL(None)
    actions, pid = ctypes.create_string_buffer(256), ctypes.c_int()
    arguments, environ = (ctypes.c_char_p * 2)(b"/bin/true", None), (ctypes.c_char_p * 1)(None)
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addopen(actions, 0, fifo.encode(), os.O_RDONLY, 0)
    libc.posix_spawn(ctypes.byref(pid), b"/bin/true", actions, None, arguments, environ)


if __name__ == "__main__":
    if os.environ["HOW"] == "threads":
        for _ in range(250):
            threading.Thread(target=time.sleep, args=(10000,), daemon=True).start()
    else:
        threading.Thread(target=spawn_that_never_returns, daemon=True).start()
    time.sleep(0.5)
    ready()
    time.sleep(10000)
