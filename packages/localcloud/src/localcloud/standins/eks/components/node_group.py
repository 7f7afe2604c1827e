"""`eks:index:ManagedNodeGroup`: a node group, and a launch template where one is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from localcloud.standins.algebra import NULL, combine, depending, first_set, is_set, is_truthy, member, record
from localcloud.standins.eks.arguments import check_node_group
from localcloud.standins.eks.components.ami import ami_type
from localcloud.standins.eks.scope import Scope
from localcloud.standins.monitor import Resource
from localcloud.standins.serve import PluginError

_PASSED_ON = [
    "capacityType",
    "diskSize",
    "forceUpdateVersion",
    "instanceTypes",
    "labels",
    "nodeGroupName",
    "nodeGroupNamePrefix",
    "releaseVersion",
    "remoteAccess",
    "tags",
    "taints",
]
_ROOT_DEVICE = "/dev/xvda"
_BOTTLEROCKET_DATA_DEVICE = "/dev/xvdb"
_HOP_LIMIT = 2


@dataclass(frozen=True)
class Core:
    """What a node group takes from its cluster."""

    cluster: Resource
    data: PropertyValue

    @classmethod
    async def of(cls, scope: Scope, value: PropertyValue) -> Core:
        """Read it from the component's input `cluster`: an `eks.Cluster`, or its output `core`."""
        data = value
        if isinstance(value.value, ResourceReference):
            component = await scope.resource(value, "cluster")
            data = component.output("core")
            if not is_set(data):
                raise PluginError(f"cluster: {value.value.urn} is not an eks.Cluster")
        data = depending(data, value.all_dependencies())
        return cls(await scope.resource(member(data, "cluster"), "cluster.core.cluster"), data)

    @property
    def subnet_ids(self) -> PropertyValue:
        """The subnets of a node group that names none: all that the cluster has, the public ones too."""
        return first_set(
            *(member(self.data, key) for key in ("subnetIds", "privateSubnetIds", "publicSubnetIds")), PropertyValue([])
        )


async def node_group(scope: Scope, name: str, inputs: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Register the children of the component and returns its outputs."""
    check_node_group(inputs)
    core = await Core.of(scope, inputs["cluster"])
    template = await _launch_template(scope, name, inputs)
    fields: dict[str, PropertyValue | str | float | bool | None] = {key: inputs.get(key, NULL) for key in _PASSED_ON}
    fields |= {
        "amiType": _ami_type(inputs),
        "clusterName": inputs["clusterName"]
        if is_truthy(inputs.get("clusterName", NULL))
        else core.cluster.output("name"),
        "nodeRoleArn": await _role_arn(scope, inputs),
        "scalingConfig": combine(scaling_config, inputs.get("scalingConfig", NULL)),
        "subnetIds": first_set(inputs.get("subnetIds", NULL), core.subnet_ids),
        "launchTemplate": inputs.get("launchTemplate", NULL),
        "version": _version(inputs, core),
    }
    if template is not None:
        fields["launchTemplate"] = record(
            {"id": template.identity, "version": combine(str, template.output("latestVersion"))}
        )
        # The template has it.
        fields["diskSize"] = None
    ignored = ("scalingConfig.desiredSize",) if is_truthy(inputs.get("ignoreScalingChanges", NULL)) else ()
    group = await scope.aws("eks/nodeGroup:NodeGroup", name, record(fields), ignore_changes=ignored)
    placement_group = depending(PropertyValue(""), [group.urn])
    return await scope.close({"nodeGroup": group.reference, "placementGroupName": placement_group})


async def _role_arn(scope: Scope, inputs: Mapping[str, PropertyValue]) -> PropertyValue:
    if is_truthy(inputs.get("nodeRoleArn", NULL)):
        return inputs["nodeRoleArn"]
    return (await scope.resource(inputs["nodeRole"], "nodeRole")).output("arn")


def _ami_type(inputs: Mapping[str, PropertyValue]) -> PropertyValue:
    given, system = inputs.get("amiType", NULL), inputs.get("operatingSystem", NULL)
    if is_set(given) or not is_set(system):
        return given
    return combine(ami_type, system, inputs.get("gpu", NULL), inputs.get("instanceTypes", NULL))


def _version(inputs: Mapping[str, PropertyValue], core: Core) -> PropertyValue:
    """The cluster's version, unless the user has a say in it: a launch template decides by its image."""
    given = inputs.get("version", NULL)
    if is_truthy(given) or is_truthy(inputs.get("launchTemplate", NULL)):
        return given
    return core.cluster.output("version")


async def _launch_template(scope: Scope, name: str, inputs: Mapping[str, PropertyValue]) -> Resource | None:
    """A launch template, where an input asks for what only a template can say."""
    if not is_set(inputs.get("enableIMDSv2", NULL)):
        return None
    system = combine(_is_bottlerocket, inputs.get("amiType", NULL), inputs.get("operatingSystem", NULL))
    template = record(
        {
            "blockDeviceMappings": combine(_block_devices, inputs.get("diskSize", NULL), system),
            "metadataOptions": combine(metadata_options, inputs["enableIMDSv2"]),
        }
    )
    return await scope.aws("ec2/launchTemplate:LaunchTemplate", f"{name}-launchTemplate", template)


def _is_bottlerocket(given_ami_type: str | None, system: str | None) -> bool:
    return (given_ami_type or "").startswith("BOTTLEROCKET") or (not given_ami_type and system == "Bottlerocket")


def _block_devices(size: int | None, bottlerocket: bool) -> list[dict[str, object]] | None:
    device = _BOTTLEROCKET_DATA_DEVICE if bottlerocket else _ROOT_DEVICE
    return [{"deviceName": device, "ebs": {"volumeSize": size}}] if size else None


def metadata_options(version_two_only: bool) -> dict[str, object]:
    """Who may read an instance's metadata."""
    return {
        "httpTokens": "required" if version_two_only else "optional",
        "httpPutResponseHopLimit": _HOP_LIMIT,
        "httpEndpoint": "enabled",
    }


def scaling_config(given: Mapping[str, int] | None) -> dict[str, int]:
    """The sizes of a node group, with the component's defaults for those not given."""
    given = given or {}
    return {
        "desiredSize": given.get("desiredSize", 2),
        "minSize": given.get("minSize", 1),
        "maxSize": given.get("maxSize", 2),
    }
