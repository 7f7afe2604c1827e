"""Inputs that are unknown, missing, exclude each other or aren't covered."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pulumi
import pulumi_eks
import pytest
from localcloud.standins.eks import arguments
from localcloud.standins.eks.arguments import Arguments
from localcloud.standins.serve import PluginError
from pulumi.errors import InputPropertiesError

from packages.localcloud.tests.standins.eks.fake_monitor import API_CLUSTER, FakeMonitor

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "standins.md"


def schema_names(sdk_class: type) -> set[str]:
    """The inputs of an SDK's args class, as the schema spells them."""
    return {
        getattr(member.fget, "_pulumi_name", name)
        for name, member in inspect.getmembers(sdk_class, lambda item: isinstance(item, property))
    }


@pytest.mark.parametrize(
    ("ours", "sdk_class"),
    [
        (arguments.CLUSTER, pulumi_eks.ClusterArgs),
        (arguments.VPC_CNI_OPTIONS, pulumi_eks.VpcCniOptionsArgs),
        (arguments.ADDON_OPTIONS, pulumi_eks.KubeProxyAddonOptionsArgs),
        (arguments.ADDON_OPTIONS, pulumi_eks.CoreDnsAddonOptionsArgs),
        (arguments.ACCESS_ENTRY, pulumi_eks.AccessEntryArgs),
        (arguments.ACCESS_POLICY, pulumi_eks.AccessPolicyAssociationArgs),
    ],
    ids=lambda item: item.__name__ if isinstance(item, type) else "",
)
def test_the_known_inputs_are_those_of_the_installed_sdk(ours: Arguments, sdk_class: type) -> None:
    assert ours.known == schema_names(sdk_class)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"authenticationMode": "IAM"}, "Invalid value for authenticationMode: IAM. Allowed values are: CONFIG_MAP"),
        ({"authenticationMode": None}, "authenticationMode CONFIG_MAP (the default) of eks:index:Cluster is not"),
        ({"roleMappings": [{}]}, "the input roleMappings of eks:index:Cluster is not covered"),
        ({"subnetIds": ["s"]}, "mutually exclusive. Choose a single approach."),
        ({"endpointPublicAccess": False, "publicAccessCidrs": ["10.0.0.0/8"]}, "`publicAccessCidrs` can only be set"),
        ({"authenticationMode": "CONFIG_MAP"}, "authenticationMode CONFIG_MAP of eks:index:Cluster is not covered"),
        ({"skipDefaultNodeGroup": False}, "the default node group of eks:index:Cluster is not covered"),
        ({"skipDefaultSecurityGroups": False}, "the default security groups of eks:index:Cluster is not covered"),
        ({"clusterSecurityGroup": "sg"}, "the input clusterSecurityGroup of eks:index:Cluster is not covered"),
        ({"vpcId": None}, "a cluster in the default VPC is not covered by the eks stand-in: set vpcId"),
        ({"vpcCniOptions": {"warmEniTarget": 0}}, "the input warmEniTarget of eks:index:VpcCniOptions is not covered"),
        ({"fargate": True}, "the input fargate of eks:index:Cluster is not covered by the eks stand-in"),
        ({"createOidcProvider": True}, "the input createOidcProvider of eks:index:Cluster is not covered"),
    ],
)
def test_a_cluster_refuses(changed: dict[str, Any], message: str) -> None:
    inputs = {key: value for key, value in {**API_CLUSTER, **changed}.items() if value is not None}
    with pytest.raises(PluginError) as caught:
        FakeMonitor().construct("Cluster", "c", inputs)
    assert message in str(caught.value)


def test_an_uncovered_input_that_is_off_is_no_error() -> None:
    FakeMonitor().construct("Cluster", "c", {**API_CLUSTER, "fargate": False, "createOidcProvider": False})


@pytest.mark.parametrize(
    ("token", "inputs", "path"),
    [
        ("Cluster", {**API_CLUSTER, "vpcID": "x"}, "vpcID"),
        ("Cluster", {**API_CLUSTER, "vpcCniOptions": {"warm": 1}}, "warm"),
        ("Cluster", {**API_CLUSTER, "kubeProxyAddonOptions": {"on": True}}, "on"),
        ("Cluster", {**API_CLUSTER, "accessEntries": {"a": {"arn": "x", "principalArn": "y"}}}, "arn"),
        ("Cluster", {**API_CLUSTER, "accessEntries": {"a": {}}}, "principalArn"),
    ],
    ids=["cluster", "cni options", "addon options", "access entry", "access entry without principal"],
)
def test_inputs_that_do_not_exist_or_are_missing_are_named(token: str, inputs: dict[str, Any], path: str) -> None:
    with pytest.raises(InputPropertiesError) as caught:
        FakeMonitor().construct(token, "c", inputs)
    assert caught.value.errors is not None
    assert [error["property_path"] for error in caught.value.errors] == [path]


@pytest.mark.parametrize(("token", "remedy"), arguments.UNCOVERED_TYPES.items())
def test_components_that_are_not_covered_are_named_with_what_to_use(token: str, remedy: str) -> None:
    with pytest.raises(PluginError, match=f"the resource type {token} is not covered") as caught:
        FakeMonitor().construct(token.removeprefix("eks:index:"), "x", {})
    assert remedy in str(caught.value)


def test_every_component_of_the_sdk_but_the_cluster_is_refused_by_name() -> None:
    components = {
        f"eks:index:{name}"
        for name, item in vars(pulumi_eks).items()
        if isinstance(item, type) and issubclass(item, pulumi.ComponentResource)
    }
    assert components - {"eks:index:Cluster"} == set(arguments.UNCOVERED_TYPES)


def test_a_component_that_does_not_exist_is_named() -> None:
    with pytest.raises(PluginError, match="the eks package has no resource type eks:index:Zap"):
        FakeMonitor().construct("Zap", "x", {})


@pytest.mark.parametrize("ours", [arguments.CLUSTER, arguments.VPC_CNI_OPTIONS])
def test_the_documentation_lists_what_is_not_covered(ours: Arguments) -> None:
    documented = DOCUMENTATION.read_text(encoding="utf-8")
    assert {name for name in ours.uncovered if f"`{name}`" not in documented} == set()
