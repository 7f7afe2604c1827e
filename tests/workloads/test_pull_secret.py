"""The credentials with which nodes pull images: where they are, and which pods have them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests import graph
from tests.security.stack import SIGNATURE

CREDENTIALS = json.dumps({"auths": {"registry.example.com": {"auth": "dTpw"}}})
NAMED = [{"name": "tidewater-registry"}]
CONFIG = {
    "monitoring": "prometheus",
    "jobLogDays": 7,
    "fileAccess": "iam",
    "teams": [{"name": "vision", "userArns": ["arn:aws:iam::123456789012:user/ada"], "maxWorkers": 2}],
    "efa": True,
    "instanceTypes": ["p5.48xlarge"],
    "workerZones": "1",
}


def deployed(**changes: Any) -> graph.Graph:
    config = {**graph.stack_config("Pulumi.aws.yaml.example"), **CONFIG, **changes}
    return graph.run(graph.program, config, "dev", secrets=("imagePullSecret",))


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    return deployed(imagePullSecret=CREDENTIALS)


def place(each: graph.Registered) -> str:
    return str(each.inputs["metadata"]["namespace"])


def pods(made: graph.Graph) -> list[tuple[graph.Registered, dict[str, Any]]]:
    """Return what makes pods, with their templates."""
    specs = [(each, each.inputs.get("spec") or {}) for each in made.resources if each.type.startswith("kubernetes:")]
    found = [
        (each, spec.get("template") or spec.get("replicaSpecs", {}).get("Worker", {}).get("template"))
        for each, spec in specs
    ]
    return [(each, template["spec"]) for each, template in found if template and "containers" in template["spec"]]


def test_every_namespace_of_the_stack_has_the_credentials_and_kube_system_for_karpenter(made: graph.Graph) -> None:
    secrets = made.all("kubernetes:core/v1:Secret")
    namespaces = {each.inputs["metadata"]["name"] for each in made.all("kubernetes:core/v1:Namespace")}
    assert sorted(map(place, secrets)) == sorted({*namespaces, "kube-system"})
    for each in secrets:
        assert each.inputs["type"] == "kubernetes.io/dockerconfigjson"
        data = each.inputs["data"]
        assert data[SIGNATURE], "it is encrypted in the state"
        assert base64.b64decode(data["value"][".dockerconfigjson"]).decode() == CREDENTIALS


def test_every_pod_has_them_itself_or_by_its_account(made: graph.Graph) -> None:
    accounts = {
        (place(each), each.inputs["metadata"]["name"]): each.inputs.get("imagePullSecrets")
        for each in made.all("kubernetes:core/v1:ServiceAccount")
    }
    found = pods(made)
    assert {place(each) for each, _ in found} >= {
        "training",
        "vision",
        "tidewater-system",
        "tidewater-devices",
        "kube-system",
    }
    for each, pod in found:
        named = pod.get("imagePullSecrets") or accounts.get((place(each), pod.get("serviceAccountName", "")))
        assert named == NAMED, each.name
    charts = json.dumps([dict(each.inputs) for each in made.resources if "helm" in each.type], default=str)
    assert f'"imagePullSecrets": {json.dumps(NAMED)}' in charts


def test_without_credentials_there_is_no_secret_and_nothing_names_one() -> None:
    plain = deployed()
    assert not plain.all("kubernetes:core/v1:Secret")
    assert NAMED[0]["name"] not in json.dumps([dict(each.inputs) for each in plain.resources], default=str)
