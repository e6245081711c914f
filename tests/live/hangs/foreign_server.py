"""A program that is no TCPStore: it is mute, closes, echoes, speaks HTTP, or never accepts."""

import os
import socket
import sys
import threading
import time

from common import ready

kind = sys.argv[1]
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((os.environ.get("BIND", "127.0.0.1"), int(os.environ["MASTER_PORT"])))
listener.listen(0 if kind == "noaccept" else 16)
ready()
kept = []


def serve(connection):
    try:
        if kind == "http":
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            connection.close()
        elif kind == "close":
            connection.recv(4096)
            connection.close()
        while data := connection.recv(4096):
            connection.sendall(data)
    except OSError:
        pass


while kind == "noaccept":
    time.sleep(1000)
while True:
    connection, _ = listener.accept()
    kept.append(connection)
    if kind != "mute":
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
