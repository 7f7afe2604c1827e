"""Additions to the pods."""

from __future__ import annotations

from typing import Any

import pytest
from elasticdl.client.flags import podspec

TEMPLATE = {
    "metadata": {"labels": {"app": "elasticdl"}},
    "spec": {
        "tolerations": [{"key": "own"}],
        "containers": [{"name": "worker", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}],
    },
}


def test_additions_for_all_pods_come_before_those_for_one_kind() -> None:
    spec = {
        "worker_spec": {"annotations": {"b": "worker"}, "env": [{"name": "A", "value": "9"}]},
        "pod_spec": {"labels": {"app": "mine", "team": "vision"}, "tolerations": [{"key": "more"}]},
        "ps_spec": {"labels": {"never": "here"}},
    }
    found = podspec.added(TEMPLATE, "worker", spec)
    assert found["metadata"] == {"labels": {"app": "elasticdl", "team": "vision"}, "annotations": {"b": "worker"}}
    assert found["spec"]["tolerations"] == [{"key": "own"}, {"key": "more"}]
    assert found["spec"]["containers"][0]["env"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "9"}]


def test_additions_may_choose_nodes() -> None:
    spec = {"master_pod_spec": {"nodeSelector": {"zone": "a"}, "affinity": {"podAffinity": {}}}}
    found = podspec.added(TEMPLATE, "master", spec)["spec"]
    assert (found["nodeSelector"], found["affinity"]) == ({"zone": "a"}, {"podAffinity": {}})
    assert podspec.added(TEMPLATE, "ps", spec) == TEMPLATE


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"service_spec": {}}, "--cluster_spec: service_spec"),
        ({"chief_spec": {}}, "--cluster_spec: chief_spec is unknown"),
        ({"pod_spec": []}, "--cluster_spec: pod_spec is no mapping"),
        ({"pod_spec": {"replicas": 1}}, "--cluster_spec: pod_spec.replicas is unknown"),
        ({"pod_spec": {"labels": {"a": 1}}}, "--cluster_spec: pod_spec.labels has the wrong form"),
        ({"pod_spec": {"tolerations": {}}}, "--cluster_spec: pod_spec.tolerations has the wrong form"),
        ({"pod_spec": {"env": [{"value": "1"}]}}, "--cluster_spec: pod_spec.env has the wrong form"),
        ({"pod_spec": {"affinity": "x"}}, "--cluster_spec: pod_spec.affinity has the wrong form"),
    ],
)
def test_what_can_not_be_added_is_named(spec: dict[str, Any], said: str) -> None:
    (found,) = podspec.mistakes(spec)
    assert found.message == said
    assert found.remedy


def test_several_mistakes_are_all_found() -> None:
    assert len(podspec.mistakes({"a": {}, "pod_spec": {"b": 1, "labels": []}})) == 3
