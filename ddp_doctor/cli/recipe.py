"""`recipe`: a script or manifest that runs the doctor where a launcher or a scheduler starts the ranks."""

from __future__ import annotations

import importlib.resources
import re

FILES = {
    "torchrun": "torchrun.sh",
    "slurm": "slurm.sh",
    "mpi": "mpi.sh",
    "ray": "ray.txt",
    "pytorchjob": "pytorchjob.yaml",
    "jobset": "jobset.yaml",
}


def recipe_text(launcher: str, *, nodes: int, nproc: int, image: str) -> str:
    """The recipe for one of FILES, ready for so many nodes and ranks per node."""
    template = (importlib.resources.files("ddp_doctor") / "recipes" / FILES[launcher]).read_text(encoding="utf-8")
    if launcher == "pytorchjob" and nodes == 1:
        template = template[: template.index("    Worker:")].replace(" &pod", "")
    values = {"NODES": nodes, "NPROC": nproc, "RANKS": nodes * nproc, "OTHERS": nodes - 1, "IMAGE": image}
    return re.sub(r"@([A-Z]+)@", lambda found: str(values[found[1]]), template)
