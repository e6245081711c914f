"""`python -m ddp_doctor`, so that `torchrun -m ddp_doctor run` works."""

import _signal  # type: ignore[import-not-found]  # signal would import ten times as much, while an interrupt is still a traceback
import os
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, lambda number, frame: os._exit(130))

# python -m puts the current folder first: a file msgspec.py or typing.py of the user's there is not ours to import
if not os.path.isdir(os.path.join(sys.path[0], "ddp_doctor")):  # noqa: PTH112 - pathlib could be shadowed too
    del sys.path[0]

from importlib.util import find_spec

from ddp_doctor.cli import main

for name in ("msgspec", "typer"):
    if find_spec(name) is None:
        sys.exit(f"ddp-doctor: {name} is missing in {sys.executable}; install the package first: pip install -e .")

main()
