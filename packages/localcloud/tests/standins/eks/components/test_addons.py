"""The configuration of the vpc-cni."""

from __future__ import annotations

from localcloud.standins.eks.components.addons import cni_configuration

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


def test_configuration_values_win_over_options_and_network_policy_is_a_string() -> None:
    configuration = cni_configuration(
        {"enableNetworkPolicy": True, "configurationValues": {"env": {"ENABLE_POD_ENI": "true"}, "init": {"x": 1}}}
    )
    assert configuration["enableNetworkPolicy"] == "true"
    assert configuration["env"]["ENABLE_POD_ENI"] == "true"
    assert configuration["init"] == {"x": 1, "env": {"DISABLE_TCP_EARLY_DEMUX": "false"}}
