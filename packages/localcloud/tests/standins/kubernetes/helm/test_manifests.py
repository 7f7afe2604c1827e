"""Helm's text as objects: YAML as Kubernetes reads it, lists, namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from localcloud.standins.kubernetes.helm.manifests import normalized, parsed
from localcloud.standins.serve import PluginError

Tree = dict[str, Any]


def scalar(text: str) -> Any:
    return parsed(f"value: {text}\n")[0]["value"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-03-04", "2026-03-04"),
        ("12:30:00", "12:30:00"),
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("'y'", "y"),
        ("0644", 420),
        ("0o17", 15),
        ("0x1f", 31),
        ("08", 8.0),
        ("-1_000", -1000),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.2.3", "1.2.3"),
        ("100m", "100m"),
        ("~", None),
        ("", None),
        ("null", None),
        ("nullable", "nullable"),
        ("=", "="),
    ],
)
def test_scalars_have_the_types_that_kubernetes_gives_them(text: str, value: Any) -> None:
    found = scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_keys_are_text() -> None:
    assert parsed("data:\n  2: a\n  true: b\n  x: c\n") == [{"data": {"2": "a", "true": "b", "x": "c"}}]


def test_empty_documents_and_comments_are_left_out() -> None:
    assert parsed("---\n# Source: a\n---\nkind: A\n---\n{}\n---\n") == [{"kind": "A"}]


def test_anchors_are_merged() -> None:
    assert parsed("a: &a {x: 1}\nb:\n  <<: *a\n  z: 2\n")[0]["b"] == {"x": 1, "z": 2}


@pytest.mark.parametrize(
    ("text", "message"), [("a: [", "can't be read as YAML"), ("just text", 'is no object: `"just')]
)
def test_what_is_no_object_is_an_error(text: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        parsed(text)


def config_map(name: str = "c", **meta: str) -> Tree:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}}


def all_namespaced(obj: Tree, others: Sequence[Tree]) -> bool:
    return True


def test_objects_without_a_namespace_get_the_release_s_where_they_live_in_one() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    found = normalized(
        [config_map(), config_map("other", namespace="kept"), role],
        "release",
        lambda obj, _: obj["kind"] != "ClusterRole",
    )
    assert [each["metadata"].get("namespace") for each in found] == ["release", "kept", None]


def test_lists_are_their_items_in_place() -> None:
    inner = {"apiVersion": "v1", "kind": "ConfigMapList", "items": [config_map("b"), config_map("c")]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [config_map("a"), inner]}
    found = normalized([outer, config_map("d")], "n", all_namespaced)
    assert [each["metadata"]["name"] for each in found] == ["a", "b", "c", "d"]


def test_the_core_group_is_written_as_kubernetes_does() -> None:
    assert normalized([{**config_map(), "apiVersion": "core/v1"}], "n", all_namespaced)[0]["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"kind": "ConfigMap", "metadata": {"name": "c"}}, "require a kind and apiVersion: `{"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "require a .metadata.name: `{"),
    ],
    ids=["kind", "name"],
)
def test_an_object_that_cannot_be_registered_is_an_error(obj: Tree, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        normalized([obj], "n", all_namespaced)
