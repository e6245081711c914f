"""Recipes as text: complete, and for Kubernetes valid.

Pods and Jobs are held against Kubernetes' own schemas (package kubernetes-validate, strict). What PyTorchJob and JobSet add
around them is held against the schemas below, which name the fields of those kinds that a recipe may use, as their custom
resource definitions have them.
"""

from __future__ import annotations

import ast
import re
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from ddp_doctor.cli.recipe import FILES, recipe_text

KUBERNETES = "1.30"
WHOLE = {"type": "integer", "minimum": 0}


def table(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """A schema of an object with these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(required), "additionalProperties": False}


def resource(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A schema of a custom resource."""
    name = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
    parts = {
        "apiVersion": {"const": version},
        "kind": {"const": kind},
        "metadata": table(("name",), name=name),
        "spec": spec,
    }
    return table(tuple(parts), **parts)


REPLICAS = table(
    ("template",),
    replicas=WHOLE,
    restartPolicy={"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
    template={"type": "object"},
)
PYTORCHJOB = resource(
    "kubeflow.org/v1",
    "PyTorchJob",
    table(
        ("pytorchReplicaSpecs",),
        runPolicy=table(
            backoffLimit=WHOLE, activeDeadlineSeconds=WHOLE, cleanPodPolicy={"enum": ["All", "Running", "None"]}
        ),
        pytorchReplicaSpecs=table(("Master",), Master=REPLICAS, Worker=REPLICAS),
    ),
)
JOBSET = resource(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    table(
        ("replicatedJobs",),
        failurePolicy=table(maxRestarts=WHOLE),
        network=table(enableDNSHostnames={"type": "boolean"}),
        replicatedJobs={
            "type": "array",
            "items": table(("name", "template"), name={"type": "string"}, replicas=WHOLE, template={"type": "object"}),
        },
    ),
)


def manifest(launcher: str, nodes: int, schema: dict[str, Any]) -> dict[str, Any]:
    """The spec of a manifest that the schema accepts."""
    document = yaml.safe_load(recipe_text(launcher, nodes=nodes, nproc=4, image="registry.example/train:1"))
    jsonschema.Draft202012Validator(schema).validate(document)
    return dict(document["spec"])


def validate_pod(spec: dict[str, Any]) -> str:
    """The command of the one container, after holding the pod against Kubernetes' schema."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    (container,) = spec["containers"]
    assert container["image"] == "registry.example/train:1"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    shell, dash_c, command = container["command"]
    assert (shell, dash_c) == ("sh", "-c")
    subprocess.run(["sh", "-n", "-c", command], check=True)
    return str(command)


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_pytorchjob(nodes: int) -> None:
    spec = manifest("pytorchjob", nodes, PYTORCHJOB)
    replicas = spec["pytorchReplicaSpecs"]
    assert sum(each["replicas"] for each in replicas.values()) == nodes
    for each in replicas.values():
        command = validate_pod(each["template"]["spec"])
        assert f"--nnodes={nodes} --nproc-per-node=4" in command and '--node-rank="$RANK"' in command
        assert each["template"]["spec"]["containers"][0]["name"] == "pytorch", "the operator looks for this name"


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_jobset(nodes: int) -> None:
    spec = manifest("jobset", nodes, JOBSET)
    (replicated,) = spec["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": replicated["template"]["spec"]}
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == nodes
    command = validate_pod(job["spec"]["template"]["spec"])
    assert f"--nnodes={nodes} --nproc-per-node=4" in command
    # <jobset>-<replicated job>-<job index>-<pod index>.<subdomain, by default the jobset's name>
    assert f"--master-addr=ddp-doctor-{replicated['name']}-0-0.ddp-doctor " in command


@pytest.mark.parametrize("launcher", FILES)
@pytest.mark.parametrize("nodes", [1, 3])
def test_every_recipe_is_whole_and_ends_nobody(launcher: str, nodes: int) -> None:
    text = recipe_text(launcher, nodes=nodes, nproc=2, image="registry.example/train:1")
    assert not re.search(r"@[A-Z]+@", text)
    assert "run --fail-on never" in text or '"run", "--fail-on", "never"' in text
    if launcher == "ray":
        ast.parse(text)
    elif FILES[launcher].endswith(".sh"):
        subprocess.run(["bash" if "bash" in text.splitlines()[0] else "sh", "-n"], input=text, text=True, check=True)
