"""The plug-ins are given no input that their schemas lack, at any depth.

Pulumi generates its SDKs from the schemas. But an SDK looks at the names of a resource's own inputs only, and hands on
what a nested object has.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pulumi
import pytest
from pulumi import _types

from tests import graph

PACKAGES = {"aws": "pulumi_aws", "eks": "pulumi_eks", "kubernetes": "pulumi_kubernetes"}
CUSTOM = {"karpenter.sh", "karpenter.k8s.aws", "elastic.pytorch.org"}
"""Groups of custom resources, which no SDK knows: the API server checks them by their definitions."""
EXTENSION = "x-kubernetes-"
"""How names begin that the SDK writes with underscores, since Python has no others; the plug-in takes both."""


def arguments(token: str) -> type | None:
    """Return the class with the inputs of a type of resources; None for what isn't a plug-in's."""
    package, module, name = token.split(":")
    group, _, version = module.partition("/")
    if package not in PACKAGES or group in CUSTOM:
        return None
    parts = {"aws": [group], "eks": [], "kubernetes": [group.split(".")[0], version]}[package]
    found = getattr(importlib.import_module(".".join([PACKAGES[package], *parts])), name)
    home = vars(importlib.import_module(found.__module__))
    kind: type = home.get(f"{name}InitArgs") or home[f"{name}Args"]
    return kind


def alternatives(kind: Any) -> Iterator[Any]:
    """Yield the types that a value of a type may have."""
    if get_origin(kind) in (Union, UnionType, Awaitable, pulumi.Output):
        for each in get_args(kind):
            yield from alternatives(each)
    else:
        yield kind


def unknown(path: str, value: Any, kind: Any) -> Iterator[str]:
    """Yield the paths of what a value of a type has and the type doesn't know."""
    kinds = list(alternatives(kind))
    if isinstance(value, list):
        inside = [get_args(each)[0] for each in kinds if get_origin(each) is Sequence]
        for item in value if inside else ():
            yield from unknown(path, item, Union[tuple(inside)])  # noqa: UP007 # their number isn't known here
    elif isinstance(value, Mapping):
        of_all = [get_args(each)[1] for each in kinds if get_origin(each) is Mapping]
        objects = [_types.input_type_types(each) for each in kinds if _types.is_input_type(each)]
        known = {name: each for found in objects for name, each in found.items()}
        for name, item in value.items():
            if of_all:
                yield from unknown(f"{path}.{name}", item, of_all[0])
            elif name in known:
                yield from unknown(f"{path}.{name}", item, known[name])
            elif objects and not name.startswith(EXTENSION):
                yield f"{path}.{name}"


@pytest.mark.parametrize(
    "changes",
    [{}, {"coreNodes": 0, "instanceStore": True, "vpcFlowLogs": 30, "monitoring": "managed", "imageCache": True}],
    ids=["the example", "with more"],
)
def test_the_production_example_gives_no_input_that_a_plug_in_does_not_know(changes: Mapping[str, Any]) -> None:
    made = graph.production(**changes).resources
    kinds = [(each, arguments(each.type)) for each in made]
    assert sum(kind is not None for _, kind in kinds) > 100
    assert [path for each, kind in kinds if kind for path in unknown(each.type, dict(each.inputs), kind)] == []


@pytest.mark.parametrize(
    ("token", "inputs", "lacks"),
    [
        ("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "cidrBlocks": []}, "cidrBlocks"),
        ("aws:ec2/launchTemplate:LaunchTemplate", {"placement": {"groupNames": "g"}}, "placement.groupNames"),
        (
            "aws:ec2/launchTemplate:LaunchTemplate",
            {"blockDeviceMappings": [{"ebs": {"size": 1}}]},
            "blockDeviceMappings.ebs.size",
        ),
        ("aws:ec2/vpc:Vpc", {"tags": {"anything": "value"}}, ""),
        ("eks:index:Cluster", {"accessEntries": {"anyone": {"principal": "arn"}}}, "accessEntries.anyone.principal"),
        ("kubernetes:apps/v1:Deployment", {"spec": {"template": {"spec": {"nodes": {}}}}}, "spec.template.spec.nodes"),
    ],
)
def test_an_unknown_input_is_found_at_any_depth(token: str, inputs: Mapping[str, Any], lacks: str) -> None:
    assert list(unknown("", inputs, arguments(token))) == ([f".{lacks}"] if lacks else [])
