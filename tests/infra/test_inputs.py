"""Every input that the program registers is one that the official plug-ins know, nested ones too.

Python refuses an unknown argument of a resource, and mypy a wrong class. But nested objects are dictionaries, and the
SDKs pass on each key of those as it is. The SDKs are generated from the schemas of the plug-ins, so their classes of
arguments name every input.
"""

from __future__ import annotations

import functools
import importlib
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pytest

from tests import graph

UNTYPED = {
    "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob",
    "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
    "kubernetes:karpenter.sh/v1:NodePool",
}
"""Kinds that CustomResourceDefinitions define. Tests with an API server check these."""

OURS = ("tidewater:", "pulumi:")
DASHED = "x-kubernetes-"
"""The SDK has these names with underscores. The plug-in takes both forms: `underscoreToDashMap` in pulumi-kubernetes,
provider/pkg/provider/provider.go."""


class Checked:
    """Compares inputs with the SDKs' classes.

    Attributes:
        count: how many inputs were looked up, by the package of their resource.
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._package = ""

    def unknown(self, registered: graph.Registered) -> list[str]:
        """Return the paths of a resource's inputs that the SDK doesn't have."""
        self._package = registered.type.partition(":")[0]
        return list(self._members(registered.inputs, arguments_of(registered.type), registered.type))

    def _members(self, value: Mapping[str, Any], arguments: type, path: str) -> Iterator[str]:
        known = members(arguments)
        for name, given in value.items():
            self.count[self._package] += 1
            wire = name.replace("-", "_") if name.startswith(DASHED) else name
            if wire in known:
                yield from self._value(given, known[wire], f"{path}.{name}")
            else:
                yield f"{path}.{name}"

    def _value(self, value: Any, hint: Any, path: str) -> Iterator[str]:
        hints = list(plain(hint))
        if isinstance(value, Mapping):
            classes = [each for each in hints if hasattr(each, "_pulumi_input_type")]
            values = [typing.get_args(each)[1] for each in hints if typing.get_origin(each) is MAPPING]
            if classes:
                yield from self._members(value, classes[0], path)
            elif values:
                for name, given in value.items():
                    yield from self._value(given, values[0], f"{path}.{name}")
            elif Any not in hints:
                yield f"{path} is no object"
        elif isinstance(value, list):
            items = [typing.get_args(each)[0] for each in hints if typing.get_origin(each) is SEQUENCE]
            if not items and Any not in hints:
                yield f"{path} is no list"
            for index, given in enumerate(value):
                yield from self._value(given, items[0] if items else Any, f"{path}[{index}]")


MAPPING = typing.get_origin(typing.Mapping[str, str])
SEQUENCE = typing.get_origin(typing.Sequence[str])


def plain(hint: Any) -> Iterator[Any]:
    """Yield the alternatives of an input's type, without what gives them later and without typed dictionaries."""
    if isinstance(hint, typing.TypeVar):
        yield Any
    elif typing.get_origin(hint) is typing.Union:
        for each in typing.get_args(hint):
            if not typing.is_typeddict(each):
                yield from plain(each)
    else:
        yield hint


def arguments_of(token: str) -> type:
    """Return the class of a resource type's arguments. The program has loaded the resource's own class."""
    resource = resources()[token]
    module = importlib.import_module(resource.__module__)
    # Where a nested type has the name already, the SDK calls the resource's own arguments ...InitArgs.
    found: type | None = getattr(module, f"{resource.__name__}InitArgs", None)
    return found or getattr(module, f"{resource.__name__}Args")


def resources() -> dict[str, type]:
    """Return the SDKs' classes that are loaded, by the type of resource."""
    found: dict[str, type] = {}
    waiting: list[type] = [pulumi.Resource]
    while waiting:
        each = waiting.pop()
        waiting += each.__subclasses__()
        if each.__module__.startswith(("pulumi_aws.", "pulumi_eks.", "pulumi_kubernetes.")):
            found[str(getattr(each, "pulumi_type", each.__name__))] = each
    return found


@functools.cache
def members(arguments: type) -> dict[str, Any]:
    """Return the types of a class's members, by their names in the plug-in's schema."""
    scope = {**vars(importlib.import_module(arguments.__module__)), "Output": pulumi.Output, "T": typing.TypeVar("T")}
    return {
        getattr(each.fget, "_pulumi_name", name): typing.get_type_hints(each.fget, scope)["return"]
        for name, each in vars(arguments).items()
        if isinstance(each, property)
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "production": {},
    "everything": {
        "imageCache": True,
        "vpcFlowLogs": 365,
        "dataset": "s3://pictures/animals/",
        "datasetStorage": "s3",
        "monitoring": "prometheus",
        "coreNodes": 0,
        "jobLogDays": 7,
        "capacityReservationIds": ["cr-0123456789abcdef0"],
        "placementGroup": True,
        "fileThroughput": "100",
        "fileAccess": "iam",
        "teams": [{"name": "vision", "userArns": ["arn:aws:iam::123456789012:user/ada"], "maxWorkers": 2}],
    },
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS.keys())
def test_every_input_is_one_that_the_sdks_have(changes: dict[str, Any]) -> None:
    made, checked = graph.production(**changes), Checked()
    official = [each for each in made.resources if not each.type.startswith(OURS) and each.type not in UNTYPED]
    assert [path for each in official for path in checked.unknown(each)] == []
    assert all(checked.count[package] > least for package, least in {"aws": 300, "eks": 10, "kubernetes": 1000}.items())


def registered(token: str, **inputs: Any) -> graph.Registered:
    found = graph.production().all(token)[0]
    return graph.Registered(**{**vars(found), "inputs": inputs})


@pytest.mark.parametrize(
    ("token", "inputs", "path"),
    [
        pytest.param("aws:ec2/vpc:Vpc", {"cidr": "10.0.0.0/16"}, "cidr", id="top"),
        pytest.param(
            "aws:ec2/launchTemplate:LaunchTemplate",
            {"blockDeviceMappings": [{"deviceName": "/dev/xvda"}, {"ebs": {"sizeGib": 1}}]},
            "blockDeviceMappings[1].ebs.sizeGib",
            id="nested",
        ),
        pytest.param("aws:ec2/vpc:Vpc", {"tags": ["a"]}, "tags is no list", id="a-list-for-an-object"),
        pytest.param(
            "kubernetes:apps/v1:DaemonSet",
            {"spec": {"template": {"spec": {"containers": [{"securityContext": {"capabilites": {}}}]}}}},
            "spec.template.spec.containers[0].securityContext.capabilites",
            id="manifest",
        ),
        pytest.param("eks:index:Cluster", {"accessEntries": {"a": {"arn": "b"}}}, "accessEntries.a.arn", id="eks"),
    ],
)
def test_a_wrong_name_is_found_at_any_depth(token: str, inputs: dict[str, Any], path: str) -> None:
    assert Checked().unknown(registered(token, **inputs)) == [f"{token}.{path}"]
