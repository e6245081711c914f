"""Asks the system's resolver for names and for the names of addresses, all at once: one answer may never come."""

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

    def name_of(address):
        try:
            found = socket.getnameinfo((address, 0), 0)[0]
        except socket.gaierror as error:
            say({"address": address, "error": error.strerror or str(error)})
        else:
            say({"address": address, "name": found})

    threads = [threading.Thread(target=resolve, args=(name,), daemon=True) for name in request["names"]]
    threads += [threading.Thread(target=name_of, args=(each,), daemon=True) for each in request.get("addresses", ())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)
