"""The definition: what `kubectl` shows of a job and how it is scaled; made from the model alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidewater.elasticjob import crd, names

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "import json; from tidewater.elasticjob import crd; print(json.dumps(crd.definition()))"


@pytest.fixture
def definition() -> dict[str, Any]:
    return crd.definition()


def version(definition: dict[str, Any]) -> dict[str, Any]:
    (only,) = definition["spec"]["versions"]
    found: dict[str, Any] = only
    return found


def test_the_definition_is_named_as_kubernetes_requires(definition: dict[str, Any]) -> None:
    spec = definition["spec"]
    assert definition["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert (spec["names"]["kind"], spec["names"]["shortNames"], spec["scope"]) == ("ElasticJob", ["ej"], "Namespaced")


def test_the_desired_number_of_workers_is_what_kubectl_scales(definition: dict[str, Any]) -> None:
    assert version(definition)["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_kubectl_get_shows_state_and_numbers(definition: dict[str, Any]) -> None:
    columns = version(definition)["additionalPrinterColumns"]
    narrow = [column["name"] for column in columns if "priority" not in column]
    assert narrow == ["State", "Desired", "Active", "Min", "Max", "Waiting", "Age"]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_every_process_makes_the_same_definition(definition: dict[str, Any], seed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == json.dumps(definition) + "\n"


def test_no_part_of_the_definition_is_shared_with_another() -> None:
    """Shared parts would become anchors and references in YAML."""

    def parts(value: object) -> list[int]:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        own = [id(value)] if isinstance(value, dict | list) else []
        return [*own, *(identity for one in inner for identity in parts(one))]

    made = crd.definition()
    found = parts(made)
    assert len(set(found)) == len(found)


def test_no_copy_of_the_definition_is_kept() -> None:
    listed = subprocess.run(
        ["git", "grep", "-lI", "-F", "-e", names.CRD_NAME, "--", "*.yaml", "*.yml", "*.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    assert listed == []
