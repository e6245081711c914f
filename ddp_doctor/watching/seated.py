"""Stands for py-spy where only an ancestor of the ranks may look into them: asks a seat above them to become it.

`python -I -S seated.py NAME dump ...`, with NAME as in seats.py. The seat inherits this process's stdout and stderr; the
socket closes when it has ended.
"""

import json
import os
import socket
import sys


def main() -> None:
    """Ask, and wait for the end."""
    seat = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        seat.connect("\0" + sys.argv[1])
    except OSError:
        sys.exit("Operation not permitted: kernel.yama.ptrace_scope is 1, and no ancestor of the ranks is left to look")
    socket.send_fds(seat, [json.dumps(sys.argv[2:]).encode()], [1, 2])
    seat.recv(1)
    os._exit(0)


main()
