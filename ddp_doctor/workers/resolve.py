"""Asks the system's resolver for each name, all at once, since one answer may never come; says each as it arrives."""

import os
import socket
import threading


def main(request, say, hear):
    def resolve(name):
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            say({"name": name, "code": error.errno, "error": error.strerror or str(error)})
        except (UnicodeError, ValueError) as error:
            say({"name": name, "error": "not a host name: %s" % error})
        else:
            addresses = list(dict.fromkeys(entry[4][0] for entry in found))
            say({"name": name, "addresses": addresses})

    threads = [threading.Thread(target=resolve, args=(name,), daemon=True) for name in request["names"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)
