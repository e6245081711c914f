"""Prints a command block of the README: `python scripts/readme_command.py 2`, so that CI runs what readers paste.

The first ```bash block installs and runs the main job, the second installs and passes the tests.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def blocks(text: str) -> list[str]:
    """The fenced bash blocks, in order."""
    return re.findall(r"^```bash\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def main() -> int:
    """Print the block with the given number, counted from 1; exit code 1 where there is none."""
    number = int(sys.argv[1])
    found = blocks(README.read_text(encoding="utf-8"))
    if len(found) < number:
        print(f"readme_command: {README.name} has {len(found)} bash blocks, asked for number {number}", file=sys.stderr)
        return 1
    print(found[number - 1], end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
