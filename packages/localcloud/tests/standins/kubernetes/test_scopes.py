"""Whether objects of a kind live in a namespace, without asking a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.standins.kubernetes.cluster.scopes import Scopes
from localcloud.standins.values import UNKNOWN


def definition(scope: str) -> dict[str, Any]:
    spec = {"group": "example.test", "scope": scope, "names": {"kind": "Toy"}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}


TOY = {"apiVersion": "example.test/v1", "kind": "Toy"}


@pytest.mark.parametrize(("scope", "expected"), [("Cluster", False), ("Namespaced", True)])
def test_a_kind_whose_definition_was_seen_is_known(scope: str, expected: bool) -> None:
    scopes = Scopes()
    assert scopes.namespaced(TOY) is None
    scopes.learn(definition(scope))
    assert scopes.namespaced(TOY) is expected


def test_a_definition_beside_the_object_counts_first() -> None:
    scopes = Scopes()
    scopes.learn(definition("Cluster"))
    assert scopes.namespaced(TOY, [definition("Namespaced")]) is True


def test_built_in_kinds_and_definitions_that_are_not_known_yet() -> None:
    scopes = Scopes()
    scopes.learn({**definition("Cluster"), "spec": UNKNOWN})
    assert scopes.namespaced({"apiVersion": "v1", "kind": "ConfigMap"}) is True
    assert scopes.namespaced({"apiVersion": "v1", "kind": "Node"}) is False
    assert scopes.namespaced(TOY) is None
