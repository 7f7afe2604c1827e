"""What `tidewater install` prints."""

from __future__ import annotations

import yaml

from tests.cli.conftest import Run
from tidewater.elasticjob import names


def test_install_prints_the_crd_first_and_needs_no_cluster(run: Run) -> None:
    result = run("install")
    assert result.exit_code == 0, result.output
    documents = list(yaml.safe_load_all(result.stdout))
    assert documents[0]["metadata"]["name"] == names.CRD_NAME
    kinds = [each["kind"] for each in documents]
    assert kinds.index("Namespace") < kinds.index("Deployment")


def test_flags_reach_the_deployment(run: Run) -> None:
    result = run("install", "-n", "own", "--replicas", "1", "--image", "registry/controller:1", "--fixed-nodes")
    documents = list(yaml.safe_load_all(result.stdout))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    assert deployment["metadata"]["namespace"] == "own"
    assert deployment["spec"]["replicas"] == 1
    containers = deployment["spec"]["template"]["spec"]["containers"]
    assert [(each["image"], each["args"]) for each in containers] == [("registry/controller:1", ["--fixed-nodes"])]


def test_the_crd_can_be_printed_alone(run: Run) -> None:
    (only,) = yaml.safe_load_all(run("install", "--crd-only").stdout)
    assert only["kind"] == "CustomResourceDefinition"


def test_namespaces_reach_the_controller_and_a_wrong_one_is_refused(run: Run) -> None:
    documents = list(yaml.safe_load_all(run("install", "--namespaces", "vision,speech,vision").stdout))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"] == ["--namespaces=vision,speech"]
    roles = [each["metadata"]["namespace"] for each in documents if each["kind"] == "Role"]
    assert roles == ["tidewater-system", "vision", "speech"]
    refused = run("install", "--namespaces", "vision,Speech")
    assert refused.exit_code == 2
    assert "--namespaces vision,Speech: 'Speech' is no name of a namespace" in refused.stderr
