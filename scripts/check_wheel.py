"""Asserts what a build holds: `python scripts/check_wheel.py dist/`.

Layouts with two source roots fail silently, as a wheel without the checks or without their pages, so each file of both
roots is looked for by name, in the wheel and in the sdist, and nothing else may be in the wheel.
"""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOTS = {"ddp_doctor": Path("ddp_doctor"), "ddp_doctor_checks": Path("checks", "ddp_doctor_checks")}
BESIDE = ("pyproject.toml", "README.md", "LICENSE")


def main() -> int:
    """Print what is amiss, one line each, and return 1; or print the counts and return 0."""
    dist = Path(sys.argv[1])
    wheels, sdists = list(dist.glob("*.whl")), list(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"check_wheel: expected one wheel and one sdist in {dist}, found {len(wheels)} and {len(sdists)}")
        return 1
    with zipfile.ZipFile(wheels[0]) as wheel:
        in_wheel = {name for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(sdists[0]) as sdist:
        in_sdist = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    faults = [*faults_of_wheel(in_wheel), *faults_of_sdist(in_sdist)]
    for fault in faults:
        print(f"check_wheel: {fault}")
    if not faults:
        print(f"check_wheel: {len(in_wheel)} files in {wheels[0].name}, {len(in_sdist)} in {sdists[0].name}")
    return 1 if faults else 0


def sources() -> dict[str, Path]:
    """Name in the wheel -> path in the tree, for every file of both source roots."""
    return {
        (Path(package) / path.relative_to(ROOT / folder)).as_posix(): path.relative_to(ROOT)
        for package, folder in ROOTS.items()
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


def faults_of_wheel(names: set[str]) -> list[str]:
    """What is missing from the wheel, and what does not belong there."""
    expected = sources()
    missing = [f"not in the wheel: {name}" for name in expected if name not in names]
    foreign = [
        f"in the wheel, but of neither source root: {name}"
        for name in sorted(names)
        if name not in expected and not re.match(r"ddp_doctor-[^/]+\.dist-info/", name)
    ]
    pages = [
        f"a check without its page in the wheel: {name}"
        for name in sorted(names)
        if re.fullmatch(r"ddp_doctor_checks/\w+/[a-z]\w*\.py", name)
        and re.search(r"^class \w+\(Check\)", (ROOT / "checks" / name).read_text(encoding="utf-8"), re.MULTILINE)
        and name[: -len("py")] + "md" not in names
    ]
    return missing + foreign + pages


def faults_of_sdist(names: set[str]) -> list[str]:
    """What the sdist would need to build the same wheel again and lacks."""
    wanted = [*BESIDE, *(path.as_posix() for path in sources().values())]
    return [f"not in the sdist: {name}" for name in wanted if name not in names]


if __name__ == "__main__":
    sys.exit(main())
