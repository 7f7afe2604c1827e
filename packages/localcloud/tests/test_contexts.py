"""kubectl finds the clusters that there are, without a command in between, and a user's own entries stay."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from localcloud import contexts
from localcloud.contexts import Cluster
from localcloud.instance import Instance

ARN = "arn:aws:eks:us-west-2:123456789012:cluster/"
DEMO = Cluster("https://198.18.0.2:6443", "certificate")


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance.create(tmp_path)


def read(instance: Instance) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(instance.kubeconfig.read_text())
    return document


def named(document: dict[str, Any], kind: str) -> dict[str, Any]:
    return {entry["name"]: entry[kind] for entry in document[f"{kind}s"]}


def test_a_new_cluster_becomes_the_current_context_with_the_login_of_eks(instance: Instance) -> None:
    contexts.publish(instance, {"demo": DEMO})
    document = read(instance)
    assert document["current-context"] == f"{ARN}demo"
    authority = base64.b64encode(b"certificate").decode()
    reached = {"server": DEMO.endpoint, "certificate-authority-data": authority}
    assert named(document, "cluster") == {f"{ARN}demo": reached}
    login = named(document, "user")[f"{ARN}demo"]["exec"]
    assert [login["command"], *login["args"]][:6] == [
        "aws",
        "--region",
        "us-west-2",
        "eks",
        "get-token",
        "--cluster-name",
    ]
    assert instance.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_a_cluster_that_is_created_again_replaces_the_one_before(instance: Instance) -> None:
    contexts.publish(instance, {"demo": DEMO})
    contexts.publish(instance, {})
    assert read(instance)["contexts"] == []
    assert read(instance)["current-context"] == ""
    contexts.publish(instance, {"demo": Cluster(DEMO.endpoint, "another")})
    document = read(instance)
    assert document["current-context"] == f"{ARN}demo"
    (cluster,) = named(document, "cluster").values()
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"another"


def test_a_second_cluster_does_not_change_the_current_context(instance: Instance) -> None:
    contexts.publish(instance, {"demo": DEMO})
    contexts.publish(instance, {"another": DEMO, "demo": DEMO})
    assert read(instance)["current-context"] == f"{ARN}demo"
    contexts.publish(instance, {"another": DEMO})
    assert read(instance)["current-context"] == f"{ARN}another"


def test_a_users_own_entries_and_choices_stay(instance: Instance) -> None:
    contexts.publish(instance, {"demo": DEMO})
    document = read(instance)
    document["preferences"] = {"colors": True}
    document["contexts"][0]["context"]["namespace"] = "training"
    document["contexts"].append({"name": "own", "context": {"cluster": "own", "user": "own"}})
    document["clusters"].append({"name": "own", "cluster": {"server": "https://elsewhere"}})
    document["users"].append({"name": "own", "user": {"token": "secret"}})
    document["current-context"] = "own"
    instance.kubeconfig.write_text(yaml.safe_dump(document))
    contexts.publish(instance, {"demo": DEMO})
    kept = read(instance)
    assert kept["current-context"] == "own"
    assert kept["preferences"] == {"colors": True}
    assert named(kept, "context")[f"{ARN}demo"]["namespace"] == "training"
    contexts.publish(instance, {})
    assert {kind: [*named(read(instance), kind)] for kind in ("cluster", "context", "user")} == {
        kind: ["own"] for kind in ("cluster", "context", "user")
    }


@pytest.mark.parametrize("text", ["{", "[1]", "contexts: 5", "contexts: [{}]"])
def test_a_file_that_cannot_be_understood_is_left_alone(
    instance: Instance, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    instance.kubeconfig.write_text(text)
    contexts.publish(instance, {"demo": DEMO})
    assert instance.kubeconfig.read_text() == text
    assert "can't be updated" in caplog.text


def test_without_clusters_no_file_is_made(instance: Instance) -> None:
    contexts.publish(instance, {})
    assert not instance.kubeconfig.exists()
