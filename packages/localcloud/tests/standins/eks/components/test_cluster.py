"""The children and outputs of a cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from localcloud.standins.values import UNKNOWN
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from packages.localcloud.tests.standins.eks.fake_monitor import API_CLUSTER, FakeMonitor, plain_outputs

OBSERVED = {
    ("", "eks:index:Cluster", "c"),
    ("c", "eks:index:ServiceRole", "c-eksRole"),
    ("c-eksRole", "aws:iam/role:Role", "c-eksRole-role"),
    ("c-eksRole", "aws:iam/rolePolicyAttachment:RolePolicyAttachment", "c-eksRole-4b490823"),
    ("c", "aws:eks/cluster:Cluster", "c-eksCluster"),
    ("c", "pulumi:providers:kubernetes", "c-eks-k8s"),
    ("c", "aws:eks/addon:Addon", "c-kube-proxy"),
    ("c", "eks:index:VpcCniAddon", "c-vpc-cni"),
    ("c-vpc-cni", "aws:eks/addon:Addon", "c-vpc-cni"),
}
"""What the official plug-in was seen to register."""


@pytest.fixture
def monitor() -> FakeMonitor:
    return FakeMonitor()


def test_a_cluster_has_the_children_of_the_official_plugin(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", API_CLUSTER)
    assert monitor.tree() == OBSERVED


def test_children_use_the_explicit_provider_of_the_component(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", API_CLUSTER)
    providers = {r.provider for r in monitor.registrations if r.type.startswith("aws:")}
    assert providers == {"urn:pulumi:s::p::pulumi:providers:aws::explicit::1"}


def test_the_control_plane_waits_for_its_role_and_the_attachments(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", API_CLUSTER)
    waited_for = {urn.rsplit("::", 1)[-1] for urn in monitor.named("c-eksCluster").depends_on}
    assert waited_for == {"c-eksRole-role", "c-eksRole-4b490823"}


def test_the_control_plane_gets_public_then_private_subnets_and_the_creators_access(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", {**API_CLUSTER, "version": "1.34", "tags": {"team": "ml"}})
    assert monitor.inputs("c-eksCluster") == {
        "roleArn": "arn:aws:iam::123456789012:role/r",
        "vpcConfig": {"subnetIds": ["subnet-3", "subnet-1", "subnet-2"]},
        "bootstrapSelfManagedAddons": True,
        "version": "1.34",
        "tags": {"Name": "c-eksCluster", "team": "ml"},
        "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
    }
    assert monitor.named("c-eksCluster").ignore_changes == (
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "bootstrapSelfManagedAddons",
    )


@pytest.mark.parametrize(
    ("argument", "value", "path", "expected"),
    [
        ("encryptionConfigKeyArn", "k", "encryptionConfig", {"provider": {"keyArn": "k"}, "resources": ["secrets"]}),
        ("deletionProtection", True, "deletionProtection", True),
        ("enabledClusterLogTypes", ["audit"], "enabledClusterLogTypes", ["audit"]),
        ("upgradePolicy", {"supportType": "STANDARD"}, "upgradePolicy", {"supportType": "STANDARD"}),
        ("name", "mine", "name", "mine"),
        ("clusterTags", {"a": "b"}, "tags", {"Name": "c-eksCluster", "a": "b"}),
        ("bootstrapSelfManagedAddons", False, "bootstrapSelfManagedAddons", False),
        (
            "kubernetesServiceIpAddressRange",
            "172.20.0.0/16",
            "kubernetesNetworkConfig",
            {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"},
        ),
        ("ipFamily", "ipv6", "kubernetesNetworkConfig", {"ipFamily": "ipv6"}),
    ],
)
def test_an_argument_reaches_the_control_plane(
    monitor: FakeMonitor, argument: str, value: Any, path: str, expected: Any
) -> None:
    monitor.construct("Cluster", "c", {**API_CLUSTER, argument: value})
    assert monitor.inputs("c-eksCluster")[path] == expected


def test_endpoint_access_reaches_the_vpc_config(monitor: FakeMonitor) -> None:
    access = {"endpointPrivateAccess": True, "publicAccessCidrs": ["10.0.0.0/8"]}
    monitor.construct("Cluster", "c", {**API_CLUSTER, **access})
    config = monitor.inputs("c-eksCluster")["vpcConfig"]
    assert config["endpointPrivateAccess"] is True
    assert config["publicAccessCidrs"] == ["10.0.0.0/8"]


def test_access_entries_carry_their_policies(monitor: FakeMonitor) -> None:
    entry = {
        "principalArn": "arn:p",
        "username": "me",
        "accessPolicies": {"admin": {"policyArn": "arn:policy", "accessScope": {"type": "cluster"}}},
    }
    monitor.construct("Cluster", "c", {**API_CLUSTER, "accessEntries": {"op": entry}})
    name = "c-eksCluster-1234567"
    assert monitor.inputs("c-op") == {"clusterName": name, "principalArn": "arn:p", "userName": "me"}
    assert monitor.inputs("c-op-admin") == {
        "clusterName": name,
        "principalArn": "arn:p",
        "policyArn": "arn:policy",
        "accessScope": {"type": "cluster"},
    }
    assert monitor.named("c-op-admin").parent.endswith("::c-op")


def test_the_vpc_cni_waits_for_the_access_entries(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", {**API_CLUSTER, "accessEntries": {"op": {"principalArn": "arn:p"}}})
    component = next(r for r in monitor.registrations if r.type == "eks:index:VpcCniAddon")
    assert [urn.rsplit("::", 1)[-1] for urn in component.depends_on] == ["c-op"]


def test_default_addons_are_kept_on_deletion_and_are_the_newest(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", API_CLUSTER)
    assert monitor.inputs("c-kube-proxy") == {
        "clusterName": "c-eksCluster-1234567",
        "addonName": "kube-proxy",
        "preserve": True,
        "resolveConflictsOnCreate": "OVERWRITE",
        "resolveConflictsOnUpdate": "OVERWRITE",
        "addonVersion": "v1.2.3-eksbuild.1",
    }
    asked = [arguments for token, arguments in monitor.invoked if token.endswith("getAddonVersion")]
    assert {"addonName": "vpc-cni", "kubernetesVersion": "1.34", "mostRecent": True} in asked


def test_addons_can_be_left_out_chosen_and_pinned(monitor: FakeMonitor) -> None:
    options = {
        "kubeProxyAddonOptions": {"enabled": False},
        "corednsAddonOptions": {"enabled": True, "version": "v1", "configurationValues": {"b": 1, "a": 2}},
        "useDefaultVpcCni": True,
    }
    monitor.construct("Cluster", "c", {**API_CLUSTER, **options})
    names = {r.name for r in monitor.registrations}
    assert not names & {"c-kube-proxy", "c-vpc-cni"}
    assert monitor.inputs("c-coredns")["addonVersion"] == "v1"
    assert monitor.inputs("c-coredns")["configurationValues"] == '{"a":2,"b":1}'


def test_a_given_role_is_used(monitor: FakeMonitor) -> None:
    role = monitor.given("urn:pulumi:s::p::aws:iam/role:Role::mine", arn="arn:mine")
    monitor.construct("Cluster", "c", {**API_CLUSTER, "serviceRole": role})
    assert monitor.inputs("c-eksCluster")["roleArn"] == "arn:mine"
    assert "c-eksRole" not in {r.name for r in monitor.registrations}


def test_outputs_are_those_of_the_official_component(monitor: FakeMonitor) -> None:
    made = monitor.construct("Cluster", "c", API_CLUSTER)
    outputs = plain_outputs(made)
    assert outputs["clusterSecurityGroupId"] == outputs["nodeSecurityGroupId"] == "sg-of-eks"
    assert "nodeSecurityGroup" not in outputs
    assert outputs["clusterIngressRuleId"] == ""
    assert outputs["oidcProviderUrl"] == "https://oidc.example/id/ABC"
    assert outputs["oidcIssuer"] == "oidc.example/id/ABC"
    assert outputs["oidcProviderArn"] == ""
    assert json.loads(outputs["kubeconfigJson"]) == outputs["kubeconfig"] == outputs["core"]["kubeconfig"]
    assert outputs["core"]["subnetIds"] == ["subnet-3", "subnet-1", "subnet-2"]
    assert isinstance(made.outputs["eksCluster"].value, ResourceReference)
    assert monitor.outputs[made.urn] == made.outputs


def test_a_profile_is_for_the_components_own_provider_only(monitor: FakeMonitor) -> None:
    made = monitor.construct("Cluster", "c", API_CLUSTER, config={"aws:profile": "dev"})
    assert '"--profile","dev"' in monitor.inputs("c-eks-k8s")["kubeconfig"]
    assert "--profile" not in plain_outputs(made)["kubeconfigJson"]


def test_a_preview_registers_all_children_and_leaves_unknown_what_aws_computes() -> None:
    monitor = FakeMonitor(preview=True)
    outputs = plain_outputs(monitor.construct("Cluster", "c", {**API_CLUSTER, "vpcId": PropertyValue.computed()}))
    assert monitor.tree() == OBSERVED
    assert monitor.inputs("c-eksCluster")["roleArn"] is UNKNOWN
    assert monitor.inputs("c-vpc-cni")["addonVersion"] is UNKNOWN
    assert outputs["kubeconfigJson"] is UNKNOWN
    assert outputs["core"]["publicSubnetIds"] == ["subnet-3"]


def test_a_secret_argument_stays_secret_in_the_child(monitor: FakeMonitor) -> None:
    secret = PropertyValue({"token": PropertyValue("x", is_secret=True)})
    monitor.construct("Cluster", "c", {**API_CLUSTER, "tags": secret})
    assert monitor.named("c-eksCluster").inputs["tags"].is_secret


def test_outputs_that_the_user_names_are_secret(monitor: FakeMonitor) -> None:
    made = monitor.construct("Cluster", "c", API_CLUSTER, additionalSecretOutputs=["kubeconfig", "kubeconfigJson"])
    assert {key for key, value in made.outputs.items() if value.is_secret} == {"kubeconfig", "kubeconfigJson"}
    assert monitor.outputs[made.urn]["kubeconfig"].is_secret


def test_children_inherit_protection(monitor: FakeMonitor) -> None:
    monitor.construct("Cluster", "c", API_CLUSTER, protect=True, deletedWith="urn:x")
    assert {(r.protect, r.deleted_with) for r in monitor.registrations} == {(True, "urn:x")}
