"""`python -m ddp_doctor`, so that `torchrun -m ddp_doctor run` works."""

import os
import sys

# python -m puts the current folder first: a file msgspec.py or typing.py of the user's there is not ours to import
if not os.path.isdir(os.path.join(sys.path[0], "ddp_doctor")):  # noqa: PTH112 - pathlib could be shadowed too
    del sys.path[0]

try:
    import msgspec  # noqa: F401
    import typer  # noqa: F401
except ImportError as error:
    sys.exit(f"ddp-doctor: {error.name} is missing in {sys.executable}; install the package first: pip install -e .")

from ddp_doctor.cli import main

main()
