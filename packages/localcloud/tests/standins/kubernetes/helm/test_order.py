"""What depends on what among a chart's objects, as kubernetes-sigs/cli-utils decides it."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.standins.kubernetes.helm.order import APPLY_TIME_MUTATION, DEPENDS_ON, Identity, ordered
from localcloud.standins.serve import PluginError


def obj(kind: str, name: str, where: str = "", api: str = "v1", **more: Any) -> dict[str, Any]:
    annotations = more.pop("annotations", {})
    meta = {"name": name, **({"namespace": where} if where else {}), "annotations": annotations}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **more}


def definition(kind: str, group: str = "example.test") -> dict[str, Any]:
    spec = {"group": group, "names": {"kind": kind}}
    return obj("CustomResourceDefinition", f"{kind}.{group}", api="apiextensions.k8s.io/v1", spec=spec)


def names(objects: list[dict[str, Any]]) -> list[str]:
    return [f"{each['kind']}/{each['metadata']['name']}" for each, _ in ordered(objects)]


def test_a_custom_resource_comes_after_its_definition_and_depends_on_it() -> None:
    objects = [obj("Toy", "t", "n", api="example.test/v1"), definition("Toy"), definition("Other")]
    by_name = {each["metadata"]["name"]: dependencies for each, dependencies in ordered(objects)}
    assert by_name["t"] == (Identity("apiextensions.k8s.io", "CustomResourceDefinition", "", "Toy.example.test"),)
    assert names(objects)[-1] == "Toy/t"


def test_an_object_depends_on_its_namespace_if_the_chart_has_it() -> None:
    objects = [obj("ConfigMap", "a", "n"), obj("ConfigMap", "b", "elsewhere"), obj("Namespace", "n")]
    assert {each["metadata"]["name"]: dependencies for each, dependencies in ordered(objects)} == {
        "n": (),
        "b": (),
        "a": (Identity("", "Namespace", "", "n"),),
    }


def test_kinds_that_others_need_come_first_and_webhooks_that_check_come_last() -> None:
    objects = [
        obj("ValidatingWebhookConfiguration", "v", api="admissionregistration.k8s.io/v1"),
        obj("Deployment", "d", "n", api="apps/v1"),
        obj("Job", "j", "n", api="batch/v1"),
        obj("ClusterRoleBinding", "b", api="rbac.authorization.k8s.io/v1"),
        obj("ServiceAccount", "s", "n"),
        obj("Service", "z", "n"),
        obj("Service", "a", "n"),
        definition("Toy"),
    ]
    assert names(objects) == [
        "CustomResourceDefinition/Toy.example.test",
        "ServiceAccount/s",
        "ClusterRoleBinding/b",
        "Service/a",
        "Service/z",
        "Deployment/d",
        "Job/j",
        "ValidatingWebhookConfiguration/v",
    ]


def test_the_annotation_names_what_must_be_there_first() -> None:
    after = "apps/namespaces/n/Deployment/d, rbac.authorization.k8s.io/ClusterRole/r"
    objects = [
        obj("ConfigMap", "c", "n", annotations={DEPENDS_ON: after}),
        obj("Deployment", "d", "n", api="apps/v1"),
        obj("ClusterRole", "r", api="rbac.authorization.k8s.io/v1"),
    ]
    assert names(objects) == ["ClusterRole/r", "Deployment/d", "ConfigMap/c"]
    assert ordered(objects)[-1][1] == (
        Identity("apps", "Deployment", "n", "d"),
        Identity("rbac.authorization.k8s.io", "ClusterRole", "", "r"),
    )


def test_a_mutation_at_apply_time_depends_on_its_source() -> None:
    mutation = "- sourceRef: {apiVersion: apps/v1, kind: Deployment, name: d, namespace: n}\n  sourcePath: $.a\n"
    objects = [
        obj("ConfigMap", "c", "n", annotations={APPLY_TIME_MUTATION: mutation}),
        obj("Deployment", "d", "n", api="apps/v1"),
    ]
    assert names(objects) == ["Deployment/d", "ConfigMap/c"]


def test_of_two_objects_with_one_identity_the_last_counts() -> None:
    ((found, _),) = ordered([obj("ConfigMap", "c", "n", data={"a": "1"}), obj("ConfigMap", "c", "n", data={"a": "2"})])
    assert found["data"] == {"a": "2"}


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param({DEPENDS_ON: "apps/Deployment"}, "expected GROUP/KIND/NAME", id="form"),
        pytest.param({DEPENDS_ON: "/ConfigMap/other"}, "which is not an object of the chart", id="elsewhere"),
        pytest.param({DEPENDS_ON: "/namespaces/n/ConfigMap/c"}, "depend on each other: /namespaces/n/", id="itself"),
        pytest.param({APPLY_TIME_MUTATION: "none"}, f"{APPLY_TIME_MUTATION} can't be read", id="mutation"),
    ],
)
def test_an_annotation_that_makes_no_sense_is_an_error(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        ordered([obj("ConfigMap", "c", "n", annotations=annotations)])
