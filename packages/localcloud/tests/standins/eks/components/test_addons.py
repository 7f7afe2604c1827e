"""Addons and the configuration of the vpc-cni."""

from __future__ import annotations

import json

import pytest
from localcloud.standins.eks.components.addons import cni_configuration
from localcloud.standins.serve import PluginError
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from packages.localcloud.tests.standins.eks.fake_monitor import API_CLUSTER, FakeMonitor

DEFAULT_ENVIRONMENT = {
    "WARM_ENI_TARGET": "1",
    "AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG",
    "AWS_VPC_K8S_CNI_LOG_FILE": "/host/var/log/aws-routed-eni/ipamd.log",
    "AWS_VPC_K8S_CNI_VETHPREFIX": "eni",
    "AWS_VPC_ENI_MTU": "9001",
    "AWS_VPC_K8S_PLUGIN_LOG_LEVEL": "DEBUG",
    "AWS_VPC_K8S_PLUGIN_LOG_FILE": "/var/log/aws-routed-eni/plugin.log",
    "ENABLE_POD_ENI": "false",
    "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "false",
    "AWS_VPC_K8S_CNI_EXTERNALSNAT": "false",
}


def test_the_cni_has_its_defaults() -> None:
    assert cni_configuration({}) == {
        "env": DEFAULT_ENVIRONMENT,
        "init": {"env": {"DISABLE_TCP_EARLY_DEMUX": "false"}},
    }


def test_options_of_the_cni_become_its_environment() -> None:
    configuration = cni_configuration({"warmEniTarget": 0, "enablePrefixDelegation": True, "externalSnat": True})
    assert configuration["env"] == {
        **DEFAULT_ENVIRONMENT,
        "WARM_ENI_TARGET": "0",
        "ENABLE_PREFIX_DELEGATION": "true",
        "AWS_VPC_K8S_CNI_EXTERNALSNAT": "true",
    }


def test_configuration_values_win_over_options_and_network_policy_is_a_string() -> None:
    configuration = cni_configuration(
        {"enableNetworkPolicy": True, "configurationValues": {"env": {"ENABLE_POD_ENI": "true"}, "init": {"x": 1}}}
    )
    assert configuration["enableNetworkPolicy"] == "true"
    assert configuration["env"]["ENABLE_POD_ENI"] == "true"
    assert configuration["init"] == {"x": 1, "env": {"DISABLE_TCP_EARLY_DEMUX": "false"}}


def test_two_settings_of_external_snat_are_refused() -> None:
    with pytest.raises(PluginError, match="one of `cniExternalSnat` or `externalSnat`"):
        cni_configuration({"externalSnat": True, "cniExternalSnat": True})


def test_an_addons_parent_is_its_cluster_and_its_configuration_is_sorted() -> None:
    monitor = FakeMonitor()
    made = monitor.construct("Cluster", "c", API_CLUSTER)
    cluster = PropertyValue(ResourceReference(made.urn, None, None))
    inputs = {
        "cluster": cluster,
        "addonName": "aws-efs-csi-driver",
        "configurationValues": {"b": 1, "a": {"d": 1, "c": 2}},
    }
    monitor.construct("Addon", "efs", inputs)
    assert ("c", "eks:index:Addon", "efs") in monitor.tree()
    assert ("efs", "aws:eks/addon:Addon", "efs") in monitor.tree()
    assert monitor.inputs("efs") == {
        "addonName": "aws-efs-csi-driver",
        "clusterName": "c-eksCluster-1234567",
        "configurationValues": '{"a":{"c":2,"d":1},"b":1}',
    }


def test_the_cni_can_be_a_component_of_its_own() -> None:
    monitor = FakeMonitor()
    monitor.construct("VpcCniAddon", "cni", {"clusterName": "x", "addonVersion": "v9", "enableNetworkPolicy": True})
    inputs = monitor.inputs("cni")
    assert (inputs["clusterName"], inputs["addonVersion"], inputs["preserve"]) == ("x", "v9", True)
    assert json.loads(inputs["configurationValues"])["enableNetworkPolicy"] == "true"


def test_a_cni_without_any_version_is_refused() -> None:
    with pytest.raises(PluginError, match="either `addonVersion` or `clusterVersion`"):
        FakeMonitor().construct("VpcCniAddon", "cni", {"clusterName": "x"})
