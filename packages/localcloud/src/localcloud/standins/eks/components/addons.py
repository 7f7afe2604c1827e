"""The EKS addons that come with a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import NULL, combine, first_set, is_set, is_truthy, member, record
from localcloud.standins.eks.scope import Scope
from localcloud.standins.monitor import Resource

ADDON: Final = "eks/addon:Addon"
_OVERWRITE: Final = PropertyValue("OVERWRITE")

_ENVIRONMENT: Final = {
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
"""The official component's own values of vpc-cni's variables."""


def cni_configuration(options: Mapping[str, Any]) -> dict[str, Any]:
    """The vpc-cni addon's configuration for plain options: the user's values over the component's."""
    given = dict(options.get("configurationValues") or {})
    if "enableNetworkPolicy" not in given and options.get("enableNetworkPolicy") is not None:
        given["enableNetworkPolicy"] = str(options["enableNetworkPolicy"]).lower()
    given["env"] = {**_ENVIRONMENT, **_map(given.get("env"))}
    init = _map(given.get("init"))
    given["init"] = {**init, "env": {"DISABLE_TCP_EARLY_DEMUX": "false", **_map(init.get("env"))}}
    return given


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def sorted_json(value: Any) -> str | None:
    """Return JSON with sorted keys, so that equal configurations are equal strings; None for None."""
    return None if value is None else json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


async def newest_version(scope: Scope, addon: str, kubernetes_version: PropertyValue) -> PropertyValue:
    """The newest version of an addon for a Kubernetes version."""
    arguments = record({"addonName": addon, "kubernetesVersion": kubernetes_version, "mostRecent": True})
    return member(await scope.invoke("eks/getAddonVersion:getAddonVersion", arguments), "version")


async def default_addon(
    scope: Scope, name: str, addon: str, cluster: Resource, options: PropertyValue, tags: PropertyValue
) -> None:
    """Register an addon that comes with the cluster (`kube-proxy`, `coredns`); deleting it leaves it in the cluster."""
    version = member(options, "version")
    if not is_set(version):
        version = await newest_version(scope, addon, cluster.output("version"))
    inputs = record(
        {
            "clusterName": cluster.output("name"),
            "addonName": addon,
            "preserve": True,
            "tags": tags,
            "resolveConflictsOnCreate": first_set(member(options, "resolveConflictsOnCreate"), _OVERWRITE),
            "resolveConflictsOnUpdate": first_set(member(options, "resolveConflictsOnUpdate"), _OVERWRITE),
            "addonVersion": version,
            "configurationValues": combine(sorted_json, member(options, "configurationValues")),
        }
    )
    await scope.aws(ADDON, f"{name}-{addon}", inputs)


async def vpc_cni(scope: Scope, name: str, options: Mapping[str, PropertyValue]) -> Resource:
    """The child of the component `eks:index:VpcCniAddon` that each cluster has."""
    version = options.get("addonVersion", NULL)
    if not is_truthy(version):
        version = await newest_version(scope, "vpc-cni", options["clusterVersion"])
    not_configuration = ("clusterName", "clusterVersion", "addonVersion", "tags", "serviceAccountRoleArn")
    settings = record({key: value for key, value in options.items() if key not in not_configuration})
    inputs = record(
        {
            "clusterName": options["clusterName"],
            "addonVersion": version,
            "addonName": "vpc-cni",
            "resolveConflictsOnCreate": first_set(options.get("resolveConflictsOnCreate", NULL), _OVERWRITE),
            "resolveConflictsOnUpdate": first_set(options.get("resolveConflictsOnUpdate", NULL), _OVERWRITE),
            "preserve": True,
            "configurationValues": combine(
                lambda plain_options: sorted_json(cni_configuration(plain_options)), settings
            ),
            "serviceAccountRoleArn": options.get("serviceAccountRoleArn", NULL),
            "tags": options.get("tags", NULL),
        }
    )
    return await scope.aws(ADDON, name, inputs)
