"""A CUDA build of torch for a described node: the installed CPU build, whose torch.cuda asks the node's libcuda.

The folder that `build` makes stands first on PYTHONPATH. It consists of links to the installed torch, but for what says
which build it is: version.py, a libtorch_cuda.so that needs a libnccl, NCCL's wheel metadata, and `described_node.py`.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
OWN = ("__init__.py", "version.py", "lib", "__pycache__")


def installed() -> Path | None:
    """The folder of the torch that runs here, None without one."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def why_not() -> str:
    """Why no torch for a described node can be made of the one that runs here; empty if it can."""
    real = installed()
    if real is None:
        return "needs an installed torch"
    own = re.search(r"(?m)^cuda\b[^=\n]*=\s*'([^']+)'", (real / "version.py").read_text())
    return f"needs a CPU build of torch: this one loads the libraries of CUDA {own[1]}" if own else ""


def build(site: Path, cuda: str, libnccl: Path | None) -> Path:
    """Make the folder in `site` (absent so far) for that CUDA version and libnccl."""
    real = installed()
    assert real is not None
    torch = site / "torch"
    (torch / "lib").mkdir(parents=True)
    for place in (real, real / "lib"):
        for entry in place.iterdir():
            if place != real or entry.name not in OWN:
                (torch / entry.relative_to(real)).symlink_to(entry)
    version = (real / "version.py").read_text()
    (torch / "version.py").write_text(f'{version}\ncuda: str | None = "{cuda}"\n')
    (torch / "__init__.py").write_text((real / "__init__.py").read_text() + "\nfrom torch import _described_node\n")
    shutil.copy(HERE / "described_node.py", torch / "_described_node.py")
    if libnccl is not None:
        _needs(torch / "lib", libnccl)
        _wheel(site, torch / "lib" / "libnccl.so.2", libnccl.parent.name)
    return site


def _needs(lib: Path, libnccl: Path) -> None:
    """A libtorch_cuda.so that the dynamic linker resolves libnccl.so.2 for."""
    (lib / "libnccl.so.2").symlink_to(libnccl)
    link = [
        "gcc",
        "-shared",
        "-Wl,--no-as-needed,--enable-new-dtags,-rpath,$ORIGIN",
        "-x",
        "c",
        "/dev/null",
        "-x",
        "none",
    ]
    subprocess.run([*link, str(libnccl), "-o", str(lib / "libtorch_cuda.so")], check=True)


def _wheel(site: Path, libnccl: Path, version: str) -> None:
    metadata = site / f"nvidia_nccl_cu12-{version}.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text(f"{libnccl.relative_to(site)},,{libnccl.stat().st_size}\n")
