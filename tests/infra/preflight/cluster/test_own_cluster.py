"""The API server of the stack's own cluster is asked before an update, from the day on which there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

import settings
from infra.preflight.cluster import Objects
from infra.preflight.cluster.objects import NoAnswer
from tests import graph
from tests.infra.preflight.cluster import existing_cluster

CONFIG = {
    **graph.defaults(),
    "publicAccessCidrs": [graph.ADDRESS],
    "fileAccess": "iam",
    "teams": [{"name": name, "maxWorkers": 2} for name in ("vision", "speech")],
}
NAME = "tidewater-local"


def own_cluster(status: str = "ACTIVE") -> graph.Ask:
    """Answer for an account with the stack's own cluster."""
    role = f"arn:aws:iam::{graph.ACCOUNT}:role/{NAME}-eksRole-role-1"
    there = {**existing_cluster.CLUSTER, "name": NAME, "status": status, "roleArn": role}

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token.endswith(":getCluster"):
            assert arguments["name"] == NAME
            return there
        return graph.answer(token, arguments)

    return ask


def test_a_namespace_that_people_have_made_is_not_taken_over_by_a_team() -> None:
    asked: list[dict[str, Any]] = []

    def look(kubeconfig: str) -> Objects:
        asked.append(json.loads(kubeconfig))
        return Objects({("Namespace", "vision"): False, ("Namespace", "speech"): True, ("Namespace", "training"): True})

    made = graph.Graph()
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(lambda: graph.program(look=look), CONFIG, ask=own_cluster(), graph=made)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"teams = vision: the cluster {NAME} has a namespace of this name already, and it would")
    assert [each.type for each in made.resources if each.type.startswith("aws:")] == []
    (kubeconfig,) = asked
    assert kubeconfig["clusters"][0]["cluster"]["server"] == existing_cluster.ENDPOINT
    assert NAME in kubeconfig["users"][0]["user"]["exec"]["args"]


def test_a_stack_with_all_its_own_namespaces_goes_on() -> None:
    def look(_: str) -> Objects:
        spaces = ("training", "vision", "speech", "tidewater-system", "tidewater-devices")
        return Objects({("Namespace", each): True for each in spaces} | {("Namespace", "default"): False})

    assert graph.run(lambda: graph.program(look=look), CONFIG, ask=own_cluster()).all("aws:eks/nodeGroup:NodeGroup")


def test_who_has_lost_the_way_to_the_api_can_still_open_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(_: str) -> Objects:
        raise NoAnswer("no connection within 10 s")

    warned: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", warned.append)
    config = {**CONFIG, "teams": []}
    assert graph.run(lambda: graph.program(look=look), config, ask=own_cluster()).all("eks:index:Cluster")
    assert [each for each in warned if "could not be checked: no connection within 10 s" in each]


def test_no_team_is_made_where_nobody_can_say_whether_people_have_its_namespace() -> None:
    def look(_: str) -> Objects:
        raise NoAnswer("no connection within 10 s.")

    with pytest.raises(settings.ConfigurationError) as refused:
        graph.run(lambda: graph.program(look=look), CONFIG, ask=own_cluster())
    (mistake,) = refused.value.mistakes
    assert "could not be checked: no connection within 10 s. Run this where the API is reached" in mistake
    assert "python -m scripts.address" in mistake


def test_a_cluster_that_is_not_there_yet_is_not_asked() -> None:
    def look(_: str) -> Objects:
        raise AssertionError("its API server was asked")

    for ask in (graph.answer, own_cluster("CREATING")):
        assert graph.run(lambda: graph.program(look=look), CONFIG, ask=ask).all("eks:index:Cluster")
