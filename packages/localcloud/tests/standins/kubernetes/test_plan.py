"""Which change of inputs is none, an update or a replacement."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.standins.kubernetes.decide.diff import compare, inputs_of, normalize, parse_path, prune, render_path
from localcloud.standins.kubernetes.decide.plan import Rules, plan
from localcloud.standins.values import UNKNOWN
from pulumi.provider.experimental.provider import PropertyDiffKind


def obj(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"}, **fields}


def job(**spec: Any) -> dict[str, Any]:
    return obj(
        "batch/v1", "Job", spec={"parallelism": 1, "completions": 1, "backoffLimit": 1, "template": {"spec": {}}} | spec
    )


def replaces(old: dict[str, Any], new: dict[str, Any], **rules: Any) -> list[str]:
    return plan(old, old, new, Rules(**rules)).replaces


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"parallelism": 2}, ["spec.parallelism"], id="parallelism"),
        pytest.param({"completions": 2}, ["spec.completions"], id="completions"),
        pytest.param({"template": {"spec": {"a": 1}}}, ["spec.template.spec.a"], id="template"),
        pytest.param({"backoffLimit": 2}, [], id="backoffLimit"),
    ],
)
def test_a_changed_immutable_field_replaces_a_job(change: dict[str, Any], expected: list[str]) -> None:
    assert replaces(job(), job(**change)) == expected


def test_a_container_image_replaces_a_pod_and_a_label_does_not() -> None:
    old = obj("v1", "Pod", spec={"containers": [{"name": "x", "image": "1"}]})
    new = obj("v1", "Pod", spec={"containers": [{"name": "x", "image": "2"}]})
    assert replaces(old, new) == ["spec.containers[0].image"]
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a.b": "c"}}}
    result = plan(old, old, labelled, Rules())
    assert result.replaces == []
    assert result.changes


def test_a_larger_claim_is_an_update() -> None:
    old = obj(
        "v1", "PersistentVolumeClaim", spec={"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "a"}
    )
    grown = {**old, "spec": {**old["spec"], "resources": {"requests": {"storage": "2Gi"}}}}
    assert replaces(old, grown) == []
    assert replaces(old, {**old, "spec": {**old["spec"], "storageClassName": "b"}}) == ["spec.storageClassName"]


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_data_replaces_unless_mutable_and_immutable_always_does(kind: str) -> None:
    old, new = obj("v1", kind, data={"a": "1"}), obj("v1", kind, data={"a": "2"})
    assert replaces(old, new) == ["data.a"]
    mutable = {"config_map_mutable": True, "secret_mutable": True}
    assert replaces(old, new, **mutable) == []
    assert replaces({**old, "immutable": True}, {**new, "immutable": True}, **mutable) == ["data.a"]


def test_adding_the_parent_of_a_pattern_replaces() -> None:
    old = obj("v1", "ConfigMap")
    assert replaces(old, {**old, "data": {"a": "1"}}) == ["data"]


def test_a_new_name_replaces_and_nothing_else_replaces_a_patch() -> None:
    old = job()
    assert replaces(old, {**old, "metadata": {"name": "b", "namespace": "n"}}) == ["metadata.name"]
    assert replaces(old, job(parallelism=2), patch=True) == []


def test_fields_that_others_added_are_no_change_and_fields_that_they_changed_are() -> None:
    inputs = obj("apps/v1", "Deployment", spec={"replicas": 2})
    live = {**inputs, "spec": {"replicas": 2, "paused": False}, "status": {"replicas": 2}}
    assert plan(live, inputs, inputs, Rules()).changes == {}
    scaled = {**live, "spec": {"replicas": 5, "paused": False}}
    assert list(plan(scaled, inputs, inputs, Rules()).changes) == [("spec", "replicas")]


def test_ignored_paths_are_no_change() -> None:
    result = plan(job(), job(), job(parallelism=3, completions=3), Rules(ignore=[("spec", "parallelism"), ("spec",)]))
    assert result.changes == {}


def test_empty_values_that_the_api_server_drops_are_no_change() -> None:
    inputs = obj("v1", "Pod", spec={"hostNetwork": False, "nodeSelector": {}})
    live = obj("v1", "Pod", spec={"x": 1})
    assert plan(live, inputs, inputs, Rules()).changes == {}
    assert plan(live, obj("v1", "Pod", spec={}), inputs, Rules()).changes


DROPPED = {
    "egress": [],
    "volumes": [{"name": "data", "readOnly": False}],
    "probe": {"initialDelaySeconds": 0, "headers": {"x": ""}},
    "count": 3,
}
LIVE = {"volumes": [{"name": "data"}], "probe": {"periodSeconds": 10}, "count": 5}


def test_a_refresh_keeps_the_empty_values_that_the_api_server_drops_and_shows_what_others_changed() -> None:
    found = inputs_of(LIVE, DROPPED, LIVE)
    assert found == {**DROPPED, "count": 5}
    inputs, live = obj("v1", "Pod", spec=DROPPED), obj("v1", "Pod", spec=LIVE)
    refreshed = obj("v1", "Pod", spec=found)
    assert list(plan(live, refreshed, inputs, Rules()).changes) == [("spec", "count")]


def test_a_refresh_shows_an_empty_value_that_the_object_had_and_that_others_removed() -> None:
    selector = {"from": [{"namespaceSelector": {}, "podSelector": {"a": "b"}}]}
    edited = {"from": [{"podSelector": {"a": "b"}}]}
    assert inputs_of(edited, selector, selector) == edited
    assert inputs_of(edited, selector, edited) == selector


def test_same_quantities_are_no_change() -> None:
    def pod(cpu: Any, memory: str) -> dict[str, Any]:
        return obj("v1", "Pod", spec={"containers": [{"resources": {"requests": {"cpu": cpu, "memory": memory}}}]})

    assert plan(pod("1", "1Gi"), pod("1000m", "1024Mi"), pod("1000m", "1024Mi"), Rules()).changes == {}
    assert plan(pod("1", "1Gi"), pod("1000m", "1024Mi"), pod("1500m", "1024Mi"), Rules()).changes


def test_unknown_values_are_changes_and_replace_where_known_values_do() -> None:
    result = plan(job(), job(), job(parallelism=UNKNOWN), Rules())
    assert result.replaces == ["spec.parallelism"]


def test_an_object_that_the_program_named_is_deleted_before_its_replacement_is_created() -> None:
    response = plan(job(), job(), job(parallelism=2), Rules()).response(job(), job(parallelism=2))
    assert response.delete_before_replace
    assert response.detailed_diff["spec.parallelism"].kind is PropertyDiffKind.UPDATE_REPLACE
    named = {"name": "a", "namespace": "n", "annotations": {"pulumi.com/autonamed": "true"}}
    automatic = {**job(parallelism=2), "metadata": named}
    assert not plan(job(), job(), automatic, Rules()).response(job(), automatic).delete_before_replace


def test_a_missing_namespace_means_default_and_is_dropped_outside_namespaces() -> None:
    old = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert plan(old, old, new, Rules()).changes == {}
    assert plan(old, old, new, Rules(namespaced=False)).changes == {}


def test_string_data_of_a_secret_is_compared_as_data() -> None:
    secret = normalize({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}, "data": {"c": "ZA=="}})
    assert secret == {"apiVersion": "v1", "kind": "Secret", "data": {"a": "Yg==", "c": "ZA=="}}


def test_lists_are_compared_by_place() -> None:
    changes = compare({"a": [1, 2, 3]}, {"a": [1, 5]})
    assert [render_path(path) for path in changes] == ["a[1]", "a[2]"]
    assert prune({"a": [{"x": 1, "y": 2}, {"x": 3}]}, {"a": [{"x": 0}]}) == {"a": [{"x": 1}]}


@pytest.mark.parametrize(
    "text", ["spec.replicas", 'metadata.annotations["a.b/c"]', "spec.containers[0].env[1].name", "a[*].b"]
)
def test_property_paths_are_the_same_after_reading_and_writing(text: str) -> None:
    assert render_path(parse_path(text)).replace(".*", "[*]") == text
