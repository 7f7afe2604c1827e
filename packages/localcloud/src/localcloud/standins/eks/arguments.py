"""Which inputs the components take: an unknown one is an error that names it, and so is one that isn't covered here.

The names are those of the package's schema, version 4.4; a test compares them with the installed SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pulumi.errors import InputPropertiesError, InputPropertyErrorDetails
from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import NULL, is_truthy, text
from localcloud.standins.serve import PluginError

_SELF_MANAGED: Final = "self-managed node groups are not covered, use ManagedNodeGroup"
_AWS_AUTH: Final = "the aws-auth config map is not covered, use authenticationMode API and accessEntries"
_USER_DATA: Final = "nodes of the one-machine cloud have no user data"
_EFA: Final = "nodes of the one-machine cloud have no network interfaces for it"


@dataclass(frozen=True)
class Arguments:
    """The inputs of one component."""

    token: str
    covered: frozenset[str]
    uncovered: Mapping[str, str]
    required: tuple[str, ...] = ()

    @property
    def known(self) -> frozenset[str]:
        """All inputs that the package's schema has."""
        return self.covered | frozenset(self.uncovered)

    def check(self, inputs: Mapping[str, PropertyValue]) -> None:
        """Refuse inputs that don't exist, that are missing, or that this stand-in doesn't cover.

        Raises:
            InputPropertiesError: inputs that the component doesn't have, or required ones missing.
            PluginError: an input of the official plug-in that isn't covered.
        """
        problems: list[InputPropertyErrorDetails] = [
            {"property_path": key, "reason": f"{self.token} has no such input"}
            for key in sorted(inputs)
            if key not in self.known and not key.startswith("__")
        ]
        problems += [
            {"property_path": key, "reason": f"{self.token} requires it"}
            for key in self.required
            if key not in inputs or inputs[key].value is None
        ]
        if problems:
            raise InputPropertiesError(f"The inputs of {self.token} are invalid.", problems)
        for key, reason in self.uncovered.items():
            if key in inputs and is_truthy(inputs[key]):
                raise not_covered(f"the input {key} of {self.token}", reason)


def not_covered(what: str, reason: str) -> PluginError:
    """The error for what the official plug-in can do and this stand-in cannot."""
    return PluginError(
        f"{what} is not covered by the eks stand-in: {reason} "
        "(or use the official plug-in: leave eks out of LOCALCLOUD_STANDINS)"
    )


_CNI_ENVIRONMENT: Final = frozenset(
    [
        "cniConfigureRpfilter",
        "cniCustomNetworkCfg",
        "cniExternalSnat",
        "customNetworkConfig",
        "disableTcpEarlyDemux",
        "enablePodEni",
        "enablePrefixDelegation",
        "eniConfigLabelDef",
        "eniMtu",
        "externalSnat",
        "logFile",
        "logLevel",
        "nodePortSupport",
        "vethPrefix",
        "warmEniTarget",
        "warmIpTarget",
        "warmPrefixTarget",
    ]
)
_CNI: Final = _CNI_ENVIRONMENT | frozenset(
    [
        "addonVersion",
        "configurationValues",
        "enableNetworkPolicy",
        "resolveConflictsOnCreate",
        "resolveConflictsOnUpdate",
        "serviceAccountRoleArn",
    ]
)
_CNI_UNCOVERED: Final = {
    "securityContextPrivileged": "it patches the aws-node DaemonSet, which the one-machine cloud doesn't run"
}

VPC_CNI_OPTIONS: Final = Arguments("eks:index:VpcCniOptions", _CNI, _CNI_UNCOVERED)
VPC_CNI_ADDON: Final = Arguments(
    "eks:index:VpcCniAddon",
    _CNI | {"clusterName", "clusterVersion", "tags"},
    _CNI_UNCOVERED,
    required=("clusterName",),
)
ADDON_OPTIONS: Final = Arguments(
    "eks:index:AddonOptions",
    frozenset(["configurationValues", "enabled", "resolveConflictsOnCreate", "resolveConflictsOnUpdate", "version"]),
    {},
)
ACCESS_ENTRY: Final = Arguments(
    "eks:index:AccessEntry",
    frozenset(["principalArn", "accessPolicies", "kubernetesGroups", "tags", "type", "username"]),
    {},
    required=("principalArn",),
)
ACCESS_POLICY: Final = Arguments(
    "eks:index:AccessPolicyAssociation",
    frozenset({"accessScope", "policyArn"}),
    {},
    required=("accessScope", "policyArn"),
)
ADDON: Final = Arguments(
    "eks:index:Addon",
    frozenset(
        [
            "addonName",
            "cluster",
            "addonVersion",
            "configurationValues",
            "preserve",
            "resolveConflictsOnCreate",
            "resolveConflictsOnUpdate",
            "serviceAccountRoleArn",
            "tags",
        ]
    ),
    {},
    required=("addonName", "cluster"),
)
CLUSTER: Final = Arguments(
    "eks:index:Cluster",
    frozenset(
        [
            "accessEntries",
            "authenticationMode",
            "bootstrapSelfManagedAddons",
            "clusterSecurityGroup",
            "clusterSecurityGroupTags",
            "clusterTags",
            "corednsAddonOptions",
            "deletionProtection",
            "enableConfigMapMutable",
            "enabledClusterLogTypes",
            "encryptionConfigKeyArn",
            "endpointPrivateAccess",
            "endpointPublicAccess",
            "instanceRoles",
            "ipFamily",
            "kubeProxyAddonOptions",
            "kubernetesServiceIpAddressRange",
            "name",
            "nodeGroupOptions",
            "nodeSecurityGroupTags",
            "nodeSubnetIds",
            "privateSubnetIds",
            "providerCredentialOpts",
            "publicAccessCidrs",
            "publicSubnetIds",
            "roleMappings",
            "serviceRole",
            "skipDefaultNodeGroup",
            "skipDefaultSecurityGroups",
            "subnetIds",
            "tags",
            "upgradePolicy",
            "useDefaultVpcCni",
            "userMappings",
            "version",
            "vpcCniOptions",
            "vpcId",
        ]
    ),
    {
        "autoMode": "nodes come from managed node groups",
        "createOidcProvider": "the issuer can't be reached for its certificate's fingerprint, use pod identity",
        "creationRoleProvider": "it is not supported in non-nodejs Pulumi programs; use providerCredentialOpts",
        "fargate": "pods run on managed node groups only",
        "proxy": "the API server is on this machine",
        "storageClasses": "declare them with the kubernetes provider",
        **dict.fromkeys(
            (
                "createInstanceRole",
                "desiredCapacity",
                "gpu",
                "instanceProfileName",
                "instanceRole",
                "instanceType",
                "maxSize",
                "minSize",
                "nodeAmiId",
                "nodeAssociatePublicIpAddress",
                "nodePublicKey",
                "nodeRootVolumeEncrypted",
                "nodeRootVolumeSize",
                "nodeUserData",
            ),
            _SELF_MANAGED,
        ),
    },
)
MANAGED_NODE_GROUP: Final = Arguments(
    "eks:index:ManagedNodeGroup",
    frozenset(
        [
            "cluster",
            "amiType",
            "capacityType",
            "clusterName",
            "diskSize",
            "enableIMDSv2",
            "forceUpdateVersion",
            "gpu",
            "ignoreScalingChanges",
            "instanceTypes",
            "labels",
            "launchTemplate",
            "nodeGroupName",
            "nodeGroupNamePrefix",
            "nodeRole",
            "nodeRoleArn",
            "operatingSystem",
            "releaseVersion",
            "remoteAccess",
            "scalingConfig",
            "subnetIds",
            "tags",
            "taints",
            "version",
        ]
    ),
    {
        "amiId": _USER_DATA,
        "bootstrapExtraArgs": _USER_DATA,
        "bottlerocketSettings": _USER_DATA,
        "kubeletExtraArgs": _USER_DATA,
        "nodeadmExtraOptions": _USER_DATA,
        "userData": _USER_DATA,
        "enableEfaSupport": _EFA,
        "placementGroupAvailabilityZone": _EFA,
    },
    required=("cluster",),
)
UNCOVERED_TYPES: Final = {
    "eks:index:NodeGroup": _SELF_MANAGED,
    "eks:index:NodeGroupV2": _SELF_MANAGED,
    "eks:index:NodeGroupSecurityGroup": _SELF_MANAGED,
    "eks:index:ClusterCreationRoleProvider": "use the operator's credentials, or providerCredentialOpts",
}

AUTHENTICATION_MODES: Final = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")


def check_cluster(inputs: Mapping[str, PropertyValue]) -> None:
    """Refuse what the official component refuses of a cluster, in its words, then what isn't covered here."""
    CLUSTER.check(inputs)
    mode = text(inputs.get("authenticationMode", NULL))
    if mode is not None and mode not in AUTHENTICATION_MODES:
        raise PluginError(
            f"Invalid value for authenticationMode: {mode}. Allowed values are: {', '.join(AUTHENTICATION_MODES)}."
        )
    if mode == "API":
        for key in ("roleMappings", "userMappings", "instanceRoles"):
            value = inputs.get(key)
            if value is not None and value.value:
                raise PluginError(
                    f"The '{key}' property does not support non-empty values "
                    f"when 'authenticationMode' is set to '{mode}'."
                )
    elif mode in (None, "CONFIG_MAP") and _truthy(inputs, "accessEntries"):
        state = "not set" if mode is None else f"set to '{mode}'"
        raise PluginError(f"The 'accessEntries' property is not supported when 'authenticationMode' is {state}.")
    _check_exclusive(inputs)
    if mode != "API":
        raise not_covered(f"authenticationMode {mode or 'CONFIG_MAP (the default)'} of {CLUSTER.token}", _AWS_AUTH)
    if not _truthy(inputs, "skipDefaultNodeGroup"):
        raise not_covered(
            f"the default node group of {CLUSTER.token}", f"{_SELF_MANAGED}, and set skipDefaultNodeGroup"
        )


def _check_exclusive(inputs: Mapping[str, PropertyValue]) -> None:
    if _truthy(inputs, "subnetIds") and (_truthy(inputs, "publicSubnetIds") or _truthy(inputs, "privateSubnetIds")):
        raise PluginError(
            "subnetIds, and the use of publicSubnetIds and/or privateSubnetIds are mutually exclusive. "
            "Choose a single approach."
        )
    if _truthy(inputs, "nodeGroupOptions") and _truthy(inputs, "nodeSubnetIds"):
        raise PluginError(
            "Setting nodeGroupOptions, and any set of singular node group option(s) on the cluster, "
            "is mutually exclusive. Choose a single approach."
        )
    public = inputs.get("endpointPublicAccess")
    if _truthy(inputs, "publicAccessCidrs") and public is not None and public.value is False:
        raise PluginError("`publicAccessCidrs` can only be set when `endpointPublicAccess` is true")


def check_node_group(inputs: Mapping[str, PropertyValue]) -> None:
    """Refuse what the official component refuses of a managed node group's inputs, in its words."""
    MANAGED_NODE_GROUP.check(inputs)
    problems: list[InputPropertyErrorDetails] = []
    if _truthy(inputs, "nodeRole") and _truthy(inputs, "nodeRoleArn"):
        reason = "You cannot specify both nodeRole and nodeRoleArn when creating a managed node group."
        problems.append({"property_path": "nodeRole", "reason": reason})
    if not _truthy(inputs, "nodeRole") and not _truthy(inputs, "nodeRoleArn"):
        reason = "An IAM role, or role ARN must be provided to create a managed node group"
        problems.append({"property_path": "nodeRole", "reason": reason})
    if _truthy(inputs, "launchTemplate") and "enableIMDSv2" in inputs:
        reason = (
            "If you provide a custom launch template, you cannot provide any of kubeletExtraArgs, bootstrapExtraArgs, "
            "bottlerocketSettings, nodeadmExtraOptions, enableIMDSv2, userData, amiId, enableEfaSupport. "
            "Please include these in the launch template that you are providing."
        )
        problems.append({"property_path": "launchTemplate", "reason": reason})
    if problems:
        raise InputPropertiesError("The input properties for the managed node group are invalid.", problems)


def _truthy(inputs: Mapping[str, PropertyValue], key: str) -> bool:
    return key in inputs and is_truthy(inputs[key])
