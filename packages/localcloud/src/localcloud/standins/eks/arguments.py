"""Which inputs the component takes: an unknown one is an error that names it, and so is one that isn't covered here.

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

_SELF_MANAGED: Final = "self-managed node groups are not covered, use aws.eks.NodeGroup"
_AWS_AUTH: Final = "the aws-auth config map is not covered, use authenticationMode API and accessEntries"
_GROUPS: Final = "the cluster has the security group that EKS makes: set skipDefaultSecurityGroups"
_CNI_SETTING: Final = "set the variable of vpc-cni in configurationValues.env"


@dataclass(frozen=True)
class Arguments:
    """The inputs of one component.

    Attributes:
        token: the component's type.
        covered: the names of inputs that are carried out, separated by spaces.
        refused: further names, separated by spaces, with what to do without them.
        required: the inputs that must be given.
    """

    token: str
    covered: str
    refused: Mapping[str, str]
    required: tuple[str, ...] = ()

    @property
    def uncovered(self) -> dict[str, str]:
        """The inputs that aren't covered here, and what to do without each."""
        return {name: remedy for names, remedy in self.refused.items() for name in names.split()}

    @property
    def known(self) -> frozenset[str]:
        """All inputs that the package's schema has."""
        return frozenset([*self.covered.split(), *self.uncovered])

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
            if key in inputs and (is_truthy(inputs[key]) or _is_number(inputs[key].value)):
                raise not_covered(f"the input {key} of {self.token}", reason)


def _is_number(value: object) -> bool:
    """Return whether a value is a number: zero, too, is something that a program asks for."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def not_covered(what: str, reason: str) -> PluginError:
    """The error for what the official plug-in can do and this stand-in cannot."""
    return PluginError(
        f"{what} is not covered by the eks stand-in: {reason} "
        "(or use the official plug-in: leave eks out of LOCALCLOUD_STANDINS)"
    )


VPC_CNI_OPTIONS: Final = Arguments(
    "eks:index:VpcCniOptions",
    (
        "addonVersion configurationValues enableNetworkPolicy resolveConflictsOnCreate resolveConflictsOnUpdate"
        " serviceAccountRoleArn"
    ),
    {
        "securityContextPrivileged": "it patches the aws-node DaemonSet, which the one-machine cloud doesn't run",
        (
            "cniConfigureRpfilter cniCustomNetworkCfg cniExternalSnat customNetworkConfig disableTcpEarlyDemux"
            " enablePodEni enablePrefixDelegation eniConfigLabelDef eniMtu externalSnat logFile logLevel"
            " nodePortSupport vethPrefix warmEniTarget warmIpTarget warmPrefixTarget"
        ): _CNI_SETTING,
    },
)
ADDON_OPTIONS: Final = Arguments(
    "eks:index:AddonOptions",
    "configurationValues enabled resolveConflictsOnCreate resolveConflictsOnUpdate version",
    {},
)
ACCESS_ENTRY: Final = Arguments(
    "eks:index:AccessEntry",
    "principalArn accessPolicies kubernetesGroups tags type username",
    {},
    required=("principalArn",),
)
ACCESS_POLICY: Final = Arguments(
    "eks:index:AccessPolicyAssociation",
    "accessScope policyArn",
    {},
    required=("accessScope", "policyArn"),
)
CLUSTER: Final = Arguments(
    "eks:index:Cluster",
    (
        "accessEntries authenticationMode bootstrapSelfManagedAddons clusterTags corednsAddonOptions"
        " deletionProtection enabledClusterLogTypes encryptionConfigKeyArn endpointPrivateAccess endpointPublicAccess"
        " ipFamily kubeProxyAddonOptions kubernetesServiceIpAddressRange name nodeSubnetIds privateSubnetIds"
        " providerCredentialOpts publicAccessCidrs publicSubnetIds serviceRole skipDefaultNodeGroup"
        " skipDefaultSecurityGroups subnetIds tags upgradePolicy useDefaultVpcCni version vpcCniOptions vpcId"
    ),
    {
        "autoMode": "nodes come from managed node groups",
        "createOidcProvider": "the issuer can't be reached for its certificate's fingerprint, use pod identity",
        "creationRoleProvider": "it is not supported in non-nodejs Pulumi programs; use providerCredentialOpts",
        "fargate": "pods run on managed node groups only",
        "proxy": "the API server is on this machine",
        "storageClasses": "declare them with the kubernetes provider",
        "clusterSecurityGroup clusterSecurityGroupTags nodeSecurityGroupTags": _GROUPS,
        "enableConfigMapMutable instanceRoles roleMappings userMappings": _AWS_AUTH,
        (
            "createInstanceRole desiredCapacity gpu instanceProfileName instanceRole instanceType maxSize minSize"
            " nodeAmiId nodeAssociatePublicIpAddress nodeGroupOptions nodePublicKey nodeRootVolumeEncrypted"
            " nodeRootVolumeSize nodeUserData"
        ): _SELF_MANAGED,
    },
)
UNCOVERED_TYPES: Final = {
    "eks:index:Addon": "use aws.eks.Addon, or an option of eks.Cluster such as kubeProxyAddonOptions",
    "eks:index:ManagedNodeGroup": "use aws.eks.NodeGroup",
    "eks:index:VpcCniAddon": "use the vpcCniOptions of eks.Cluster, or aws.eks.Addon",
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
    _check_exclusive(inputs)
    if mode != "API":
        raise not_covered(f"authenticationMode {mode or 'CONFIG_MAP (the default)'} of {CLUSTER.token}", _AWS_AUTH)
    required = {
        "skipDefaultNodeGroup": (
            f"the default node group of {CLUSTER.token}",
            f"{_SELF_MANAGED}, and set skipDefaultNodeGroup",
        ),
        "skipDefaultSecurityGroups": (f"the default security groups of {CLUSTER.token}", _GROUPS),
        "vpcId": ("a cluster in the default VPC", "set vpcId, and privateSubnetIds, publicSubnetIds or subnetIds"),
    }
    for key, (what, remedy) in required.items():
        if not _truthy(inputs, key):
            raise not_covered(what, remedy)


def _check_exclusive(inputs: Mapping[str, PropertyValue]) -> None:
    if _truthy(inputs, "subnetIds") and (_truthy(inputs, "publicSubnetIds") or _truthy(inputs, "privateSubnetIds")):
        raise PluginError(
            "subnetIds, and the use of publicSubnetIds and/or privateSubnetIds are mutually exclusive. "
            "Choose a single approach."
        )
    public = inputs.get("endpointPublicAccess")
    if _truthy(inputs, "publicAccessCidrs") and public is not None and public.value is False:
        raise PluginError("`publicAccessCidrs` can only be set when `endpointPublicAccess` is true")


def _truthy(inputs: Mapping[str, PropertyValue], key: str) -> bool:
    return key in inputs and is_truthy(inputs[key])
