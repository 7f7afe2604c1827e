"""The schema is structural, says what the model says, and follows it when it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tidewater.elasticjob import crd, schema
from tidewater.elasticjob.about import About, fields_of
from tidewater.elasticjob.model import JobSpec, ReplicaSpec, SchedulingPolicy, Status

Node = dict[str, Any]


def whole() -> Node:
    definition: Any = crd.definition()
    found: Node = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield every schema within a schema, with its path."""
    yield path, node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{path}[*]")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


def property_of(model: type, name: str) -> Node:
    found: Any = schema.of(model, defaults=True)["properties"]
    node: Node = found[name]
    return node


def test_every_part_has_a_type() -> None:
    for path, node in nodes(whole()):
        assert node["type"] in ("object", "array", "string", "integer", "boolean"), path
        assert ("items" in node) == (node["type"] == "array"), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_what_is_required_exists() -> None:
    for path, node in nodes(whole()):
        assert set(node.get("required", ())) <= set(node.get("properties", ())), path


def test_lists_that_are_merged_by_key_require_it() -> None:
    for path, node in nodes(whole()):
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path


def test_every_field_of_a_job_is_explained() -> None:
    for path, node in nodes(whole()):
        inside_a_template = ".template." in path or path.startswith(".metadata") or path in (".apiVersion", ".kind")
        element = path.endswith(("[]", "[*]")) and node["type"] != "object"
        assert inside_a_template or element or len(node["description"]) > 10, path


def test_descriptions_are_the_models() -> None:
    for model in (JobSpec, ReplicaSpec, SchedulingPolicy, Status):
        for one in fields_of(model):
            assert property_of(model, one.key)["description"] == one.about.text


@pytest.mark.parametrize(
    ("model", "name", "default"),
    [
        (ReplicaSpec, "replicas", 1),
        (ReplicaSpec, "restartPolicy", "ExitCode"),
        (ReplicaSpec, "podNames", "Indexed"),
        (JobSpec, "restartScope", "Pod"),
        (JobSpec, "cleanPodPolicy", "None"),
        (JobSpec, "successPolicy", "Rank0"),
        (JobSpec, "backoffLimit", 20),
        (JobSpec, "suspend", False),
        (JobSpec, "autoscale", False),
        (JobSpec, "snoozeSeconds", 60),
        (SchedulingPolicy, "priority", 0),
        (SchedulingPolicy, "queueTimeoutSeconds", 300),
    ],
)
def test_a_default_of_the_model_is_one_of_the_api(model: type, name: str, default: object) -> None:
    assert property_of(model, name)["default"] == default


@pytest.mark.parametrize("name", ["minReplicas", "maxReplicas", "launcher", "ttlSecondsAfterFinished", "sizes"])
def test_a_default_that_depends_on_other_things_is_left_to_the_reader(name: str) -> None:
    assert "default" not in property_of(JobSpec, name)


def test_a_status_has_no_defaults() -> None:
    assert not [path for path, node in nodes(schema.of(Status, defaults=False)) if "default" in node]


def test_an_enumeration_lists_its_members() -> None:
    assert property_of(ReplicaSpec, "restartPolicy")["enum"] == ["Always", "OnFailure", "Never", "ExitCode", ""]
    assert property_of(JobSpec, "restartScope")["enum"] == ["Pod", "Job"]


def test_an_immutable_field_is_always_present_for_the_comparison() -> None:
    """CEL compares only what is there before and after: an optional field could be removed and set anew."""
    for model in (JobSpec, ReplicaSpec):
        for one in fields_of(model):
            if one.about.immutable:
                assert one.required or one.default is not None, one.name
                assert property_of(model, one.key)["x-kubernetes-validations"][0]["rule"] == "self == oldSelf"


def test_a_field_that_is_added_to_a_model_is_in_its_schema() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Grown(SchedulingPolicy):
        colour: Annotated[str, About("A new field.", max_length=9, pattern="^[a-z]*$", min_length=2)] = "red"
        weight: Annotated[int | None, About("Another.", minimum=-1, maximum=2**40)] = None

    assert property_of(Grown, "colour") == {
        "type": "string",
        "minLength": 2,
        "maxLength": 9,
        "pattern": "^[a-z]*$",
        "description": "A new field.",
        "default": "red",
    }
    assert property_of(Grown, "weight") == {
        "type": "integer",
        "format": "int64",
        "minimum": -1,
        "maximum": 2**40,
        "description": "Another.",
    }
