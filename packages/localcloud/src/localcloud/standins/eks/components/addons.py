"""EKS addons: those that come with a cluster, `eks:index:VpcCniAddon` and `eks:index:Addon`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import NULL, combine, first_set, is_set, is_truthy, member, record
from localcloud.standins.eks.scope import Scope
from localcloud.standins.monitor import Resource
from localcloud.standins.serve import PluginError

ADDON: Final = "eks/addon:Addon"
_OVERWRITE: Final = PropertyValue("OVERWRITE")

_ENVIRONMENT: Final = (
    ("nodePortSupport", "AWS_VPC_CNI_NODE_PORT_SUPPORT", None),
    ("customNetworkConfig", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", None),
    ("warmEniTarget", "WARM_ENI_TARGET", "1"),
    ("warmIpTarget", "WARM_IP_TARGET", None),
    ("warmPrefixTarget", "WARM_PREFIX_TARGET", None),
    ("enablePrefixDelegation", "ENABLE_PREFIX_DELEGATION", None),
    ("logLevel", "AWS_VPC_K8S_CNI_LOGLEVEL", "DEBUG"),
    ("logFile", "AWS_VPC_K8S_CNI_LOG_FILE", "/host/var/log/aws-routed-eni/ipamd.log"),
    ("vethPrefix", "AWS_VPC_K8S_CNI_VETHPREFIX", "eni"),
    ("eniMtu", "AWS_VPC_ENI_MTU", "9001"),
    ("eniConfigLabelDef", "ENI_CONFIG_LABEL_DEF", None),
    (None, "AWS_VPC_K8S_PLUGIN_LOG_LEVEL", "DEBUG"),
    (None, "AWS_VPC_K8S_PLUGIN_LOG_FILE", "/var/log/aws-routed-eni/plugin.log"),
    ("enablePodEni", "ENABLE_POD_ENI", "false"),
    ("cniConfigureRpfilter", "AWS_VPC_K8S_CNI_CONFIGURE_RPFILTER", None),
    ("cniCustomNetworkCfg", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "false"),
    ("cniExternalSnat", "AWS_VPC_K8S_CNI_EXTERNALSNAT", "false"),
    ("externalSnat", "AWS_VPC_K8S_CNI_EXTERNALSNAT", None),
)
"""Input, environment variable, default; later rows win over earlier ones."""


def cni_configuration(options: Mapping[str, Any]) -> dict[str, Any]:
    """The vpc-cni addon's configuration for plain options: the user's values over the environment's defaults.

    Raises:
        PluginError: `cniExternalSnat` and `externalSnat` are both given.
    """
    if options.get("cniExternalSnat") and options.get("externalSnat"):
        raise PluginError("Please specify one of `cniExternalSnat` or `externalSnat` in your VpcCniOptions")
    environment: dict[str, str] = {}
    for name, variable, default in _ENVIRONMENT:
        value = options.get(name) if name else None
        # An explicit zero counts only for the one number that has a default; elsewhere it is the same as unset.
        if value or (name == "warmEniTarget" and value is not None):
            environment[variable] = _text(value)
        elif default is not None:
            environment[variable] = default
    early_demux = {"DISABLE_TCP_EARLY_DEMUX": _text(options.get("disableTcpEarlyDemux") or False)}
    given = dict(options.get("configurationValues") or {})
    if "enableNetworkPolicy" not in given and options.get("enableNetworkPolicy") is not None:
        given["enableNetworkPolicy"] = _text(options["enableNetworkPolicy"])
    given["env"] = {**environment, **_map(given.get("env"))}
    init = _map(given.get("init"))
    given["init"] = {**init, "env": {**early_demux, **_map(init.get("env"))}}
    return given


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    """The children of the component `eks:index:VpcCniAddon`: the addon, with the inputs of the component.

    Raises:
        PluginError: neither `addonVersion` nor `clusterVersion` is given.
    """
    version = options.get("addonVersion", NULL)
    if not is_truthy(version):
        if not is_truthy(options.get("clusterVersion", NULL)):
            raise PluginError(
                "You need to specify either `addonVersion` or `clusterVersion` to determine the version "
                "of the vpc-cni addon to use."
            )
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


async def addon(scope: Scope, name: str, cluster_name: PropertyValue, inputs: Mapping[str, PropertyValue]) -> Resource:
    """The child of the component `eks:index:Addon`."""
    passed_on = [
        "addonName",
        "addonVersion",
        "preserve",
        "resolveConflictsOnCreate",
        "resolveConflictsOnUpdate",
        "serviceAccountRoleArn",
        "tags",
    ]
    fields: dict[str, PropertyValue | str | float | bool | None] = {key: inputs.get(key, NULL) for key in passed_on}
    fields["clusterName"] = cluster_name
    fields["configurationValues"] = combine(sorted_json, inputs.get("configurationValues", NULL))
    return await scope.aws(ADDON, name, record(fields))
