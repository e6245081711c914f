"""Starts what a killed rank 0 leaves behind: a data worker whose parent is gone, holding the store's port. Says its PID."""

import ctypes
import os
import socket
import sys
import time

listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("0.0.0.0", int(sys.argv[1])))
listener.listen(8)
if os.fork() == 0:
    os.setsid()
    ctypes.CDLL(None).prctl(15, b"pt_data_worker", 0, 0, 0)
    print(os.getpid(), flush=True)
    os.closerange(0, 3)
    time.sleep(60)
