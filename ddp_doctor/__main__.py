"""`python -m ddp_doctor`, so that `torchrun -m ddp_doctor run` works."""

import sys

try:
    import msgspec  # noqa: F401
    import typer  # noqa: F401
except ImportError as error:
    sys.exit(f"ddp-doctor: {error.name} is missing in {sys.executable}; install the package first: pip install -e .")

from ddp_doctor.cli import main

main()
