"""Becomes another program: its output lands in the memory file, its exit code is the worker's."""

import os


def main(request, say, hear):
    try:
        os.execvp(request["argv"][0], request["argv"])
    except OSError as error:
        say({"error": error.strerror or str(error)})
        os._exit(127)
