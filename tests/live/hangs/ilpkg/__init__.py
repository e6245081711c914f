"""Starts a thread while it is being imported; the thread imports from it, and the import waits for the thread."""

import threading


def boot():
    from ilpkg import helper

    helper.go()


thread = threading.Thread(target=boot, name="boot")
thread.start()
thread.join()
