"""A stack that exists stays in its region, under its name and in its namespace."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from infra.preflight import place
from tests import graph

HERE = {"region": "us-west-2", "stack": "local", "namespace": "training"}


@pytest.mark.parametrize(
    ("recorded", "mistake"),
    [
        pytest.param({**HERE, "region": "eu-west-1"}, "region = us-west-2: the stack is in eu-west-1;", id="region"),
        pytest.param(
            {**HERE, "stack": "dev"}, "the stack's name 'local': its cluster has its name from 'dev';", id="renamed"
        ),
        pytest.param(
            {**HERE, "namespace": "b"}, "namespace = training: the stack's etcd, data and job are in b;", id="namespace"
        ),
    ],
)
def test_a_stack_that_would_move_is_refused_before_anything_else_is_registered(
    recorded: dict[str, str], mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "STASHED", {"place": recorded})
    registered = graph.Graph()
    with pytest.raises(settings.ConfigurationError, match="destroy") as error:
        graph.run(graph.program, graph.defaults(), graph=registered)
    assert [each.startswith(mistake) for each in error.value.mistakes] == [True]
    assert [each.type for each in registered.resources] == ["tidewater:infra:KeptPlace", "pulumi:index:Stash"]


@pytest.mark.parametrize("recorded", [HERE, {}], ids=["nothing moved", "a preview of a new stack"])
def test_a_stack_that_stays_is_deployed(recorded: dict[str, Any]) -> None:
    assert place.mistakes(place.Place(**HERE), recorded) == []


def test_the_place_is_recorded_once_and_forgotten_last() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    record = deployed.one("pulumi:index:Stash", "place")
    assert (record.inputs["input"], record.ignored) == (HERE, ("input",))
    others = [each for each in deployed.resources if each.type.startswith(("aws:", "kubernetes:")) and each.id]
    assert all(deployed.needs(each, record) for each in others)
