"""Reads Python scripts, those of folders, and what lies beside them, from file systems that may hang."""

import base64
import json
import os
import stat

SKIPPED_FOLDERS = {"node_modules", "__pycache__", "site-packages", "build", "dist"}


def main(request, say, hear):
    sent = set()
    left = request["most_files"]
    for path in request["paths"]:
        if os.path.isdir(path):
            scripts = python_files(path, depth=16)
            if not scripts:
                say({"path": path, "error": "no Python file in this folder"})
        else:
            scripts = [path]
        for script in scripts[:left]:
            tell(script, True, request["limit"], say)
            sent.add(os.path.abspath(script))
        left -= len(scripts)
    for folder in sorted({os.path.dirname(script) for script in sent}):
        for script in python_files(folder, depth=2):
            if os.path.abspath(script) not in sent and left > 0:
                tell(script, False, request["limit"], say)
                sent.add(os.path.abspath(script))
                left -= 1


def tell(path, wanted, limit, say):
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            # a pipe, socket or device could keep its reader for ever
            raise OSError(0, "it is no regular file")
        with open(path, "rb") as file:
            data = code_of_notebook(file, limit) if path.endswith(".ipynb") else file.read(limit)
    except OSError as error:
        if wanted:
            say({"path": path, "error": error.strerror or str(error)})
        return
    say({"path": path, "wanted": wanted, "base64": base64.b64encode(data).decode()})


def code_of_notebook(file, limit):
    """A notebook without its outputs, which may be large; what is no notebook as it is."""
    data = file.read(64 * limit)
    try:
        told = json.loads(data)
        told["cells"] = [
            {"cell_type": cell["cell_type"], "source": cell["source"] if cell["cell_type"] == "code" else ""}
            for cell in told["cells"]
        ]
        return json.dumps(told).encode()[: 8 * limit]
    except (ValueError, KeyError, TypeError, RecursionError):
        return data[:limit]


def python_files(folder, depth):
    """Files `*.py` of a folder and of those below it, to a depth, in order; no hidden folders, no links to folders."""
    found = []
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    for entry in entries:
        if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth > 1:
                found += python_files(entry.path, depth - 1)
        elif entry.name.endswith(".py") and entry.is_file():
            found.append(entry.path)
    return found
