"""Where a resource is in AWS, kind by kind: the place follows from its inputs, whatever ID it got.

    kind = KINDS[resource["type"]]
    place = kind.place(resource)      # None while an input that names the place is not known
    place.listing                     # the command of the AWS CLI that lists what is in the place
    place.id("fsmt-1")                # the ID with which the plug-in takes it over

Here are the kinds for which AWS refuses a second resource, those for which a second one keeps the cluster or the VPC
from being deleted, and those with a name that Pulumi had drawn before it was killed. Each place is in something that
only this stack has, such as its VPC, or has the stack's tags or a drawn name: two people may give their stacks the same
name, and neither takes over what the other one has made.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Resource = Mapping[str, Any]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What a preview has in the place of a text that is not known yet: `plugin.UnknownStringValue` of Pulumi's SDK."""


@dataclass(frozen=True)
class Place:
    """One resource's place, as commands of the AWS CLI without `aws`.

    Attributes:
        listing: lists the names or IDs of what is in the place, as JSON.
        import_id: the plug-in's ID for what the listing calls `{found}`.
        options: which name that in EKS's commands about this kind; empty for kinds that have no status.
        pattern: of the names that belong into the place.
    """

    listing: tuple[str, ...]
    import_id: str
    options: str
    pattern: re.Pattern[str]

    def id(self, found: str) -> str:
        """Return the ID with which the plug-in imports it."""
        return self.import_id.format(found=found)

    def holds(self, found: str) -> bool:
        """Return whether something that is listed belongs into the place."""
        return self.pattern.fullmatch(found) is not None

    def one(self, found: str) -> list[str]:
        """Return EKS's options that name it."""
        return [part.format(found=found) for part in shlex.split(self.options)]


@dataclass(frozen=True)
class Kind:
    """How AWS lists the resources of one kind. The texts have inputs in braces.

    Attributes:
        noun: what it is called, for EKS's kinds also in the commands of the AWS CLI.
        command: lists the resources.
        query: picks those in the place (JMESPath).
        import_id: with `{found}`; as the registry documents it, under "Import" of each resource:
            https://www.pulumi.com/registry/packages/aws/api-docs/
        options: with `{found}`; only of kinds that EKS makes in a while, or fails to.
        automatic: whether Pulumi chooses the name anew in each `up`: the name in Pulumi and seven hexadecimal digits.
            https://www.pulumi.com/docs/iac/concepts/resources/names/#autonaming
        pending: whether the place is known of what a killed `up` was making only: it is that very name, not a pattern.
    """

    noun: str
    command: str
    query: str
    import_id: str = "{found}"
    options: str = ""
    automatic: bool = False
    pending: bool = False

    def place(self, resource: Resource) -> Place | None:
        """Return where the resource is; None if an input that says so is missing or not known yet."""
        logical = str(resource["urn"]).rpartition("::")[2]
        values = _Values(resource["inputs"], found="{found}")
        try:
            listing = [part.format_map(values) for part in shlex.split(self.command)]
            query, id, options = (text.format_map(values) for text in (self.query, self.import_id, self.options))
        except (LookupError, TypeError):
            return None
        if any(UNKNOWN in text for text in (*listing, query, id, options)):
            return None
        pattern = re.compile(f"{re.escape(logical)}-[0-9a-f]{{7}}" if self.automatic else ".*")
        return Place((*listing, "--query", query, "--output", "json"), id, options, pattern)


class _Values(dict[str, Any]):
    """A resource's inputs. One that is null counts as missing."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        if value is None:
            raise KeyError(key)
        return value


_TABLE = "ec2 describe-route-tables --route-table-ids {routeTableId}"
_IN_VPC = "--filters Name=vpc-id,Values={vpcId}"

KINDS: Mapping[str, Kind] = {
    "aws:iam/role:Role": Kind("role", "iam get-role --role-name {name}", "[Role.RoleName]", pending=True),
    "aws:cloudwatch/eventRule:EventRule": Kind(
        "event rule", "events describe-rule --name {name}", "[Name]", pending=True
    ),
    "aws:s3/bucket:Bucket": Kind("bucket", "s3api get-bucket-location --bucket {bucket}", "['{bucket}']", pending=True),
    "aws:ec2/launchTemplate:LaunchTemplate": Kind(
        "launch template",
        "ec2 describe-launch-templates --launch-template-names {name}",
        "LaunchTemplates[].LaunchTemplateId",
        pending=True,
    ),
    "aws:ec2/placementGroup:PlacementGroup": Kind(
        "placement group",
        "ec2 describe-placement-groups --group-names {name}",
        "PlacementGroups[?State!='deleted'].GroupName",
        pending=True,
    ),
    "aws:ec2/subnet:Subnet": Kind(
        "subnet", f"ec2 describe-subnets {_IN_VPC} Name=cidr-block,Values={{cidrBlock}}", "Subnets[].SubnetId"
    ),
    "aws:ec2/routeTable:RouteTable": Kind(
        "route table",
        f"ec2 describe-route-tables {_IN_VPC} 'Name=tag:Name,Values={{tags[Name]}}'",
        "RouteTables[].RouteTableId",
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Kind(
        "association of a route table",
        _TABLE,
        "RouteTables[].Associations[?SubnetId=='{subnetId}'][].SubnetId",
        "{found}/{routeTableId}",
    ),
    "aws:ec2/route:Route": Kind(
        "route",
        _TABLE,
        "RouteTables[].Routes[?DestinationCidrBlock=='{destinationCidrBlock}'][].DestinationCidrBlock",
        "{routeTableId}_{found}",
    ),
    "aws:ec2/natGateway:NatGateway": Kind(
        "NAT gateway",
        "ec2 describe-nat-gateways --filter Name=subnet-id,Values={subnetId} Name=state,Values=pending,available",
        "NatGateways[].NatGatewayId",
    ),
    "aws:ec2/flowLog:FlowLog": Kind(
        "flow log",
        "ec2 describe-flow-logs --filter Name=resource-id,Values={vpcId} 'Name=tag:Name,Values={tags[Name]}'",
        "FlowLogs[].FlowLogId",
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Kind(
        "VPC endpoint",
        f"ec2 describe-vpc-endpoints {_IN_VPC} Name=service-name,Values={{serviceName}}",
        "VpcEndpoints[?!starts_with(State, 'delet')].VpcEndpointId",
    ),
    "aws:ec2/securityGroup:SecurityGroup": Kind(
        "security group",
        f"ec2 describe-security-groups {_IN_VPC} 'Name=tag:Name,Values={{tags[Name]}}'",
        "SecurityGroups[].GroupId",
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": Kind(
        "security group rule",
        "ec2 describe-security-group-rules --filters Name=group-id,Values={securityGroupId}",
        "SecurityGroupRules[?Description=='{description}' && !IsEgress].SecurityGroupRuleId",
    ),
    "aws:efs/mountTarget:MountTarget": Kind(
        "mount target",
        "efs describe-mount-targets --file-system-id {fileSystemId}",
        "MountTargets[?SubnetId=='{subnetId}'].MountTargetId",
    ),
    "aws:kms/alias:Alias": Kind(
        "alias", "kms list-aliases --key-id {targetKeyId}", "Aliases[?AliasName=='{name}'].AliasName"
    ),
    "aws:cloudwatch/logGroup:LogGroup": Kind(
        "log group",
        "logs list-tags-log-group --log-group-name {name}",  # the other command needs the account in an ARN
        "[tags][?Project=='{tags[Project]}' && Stack=='{tags[Stack]}'].Stack",
        "{name}",
    ),
    "aws:eks/cluster:Cluster": Kind(
        "cluster",
        "eks describe-cluster --name {name}",
        "[cluster][?contains(resourcesVpcConfig.subnetIds, '{vpcConfig[subnetIds][0]}')].name",
        options="--name {found}",
    ),
    "aws:eks/nodeGroup:NodeGroup": Kind(
        "nodegroup",
        "eks list-nodegroups --cluster-name {clusterName}",
        "nodegroups",
        "{clusterName}:{found}",
        "--cluster-name {clusterName} --nodegroup-name {found}",
        automatic=True,
    ),
    "aws:eks/addon:Addon": Kind(
        "addon",
        "eks list-addons --cluster-name {clusterName}",
        "addons[?@=='{addonName}']",
        "{clusterName}:{found}",
        "--cluster-name {clusterName} --addon-name {found}",
    ),
    "aws:eks/accessEntry:AccessEntry": Kind(
        "access entry",
        "eks list-access-entries --cluster-name {clusterName}",
        "accessEntries[?@=='{principalArn}']",
        "{clusterName}:{found}",
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": Kind(
        "pod identity association",
        "eks list-pod-identity-associations --cluster-name {clusterName} --namespace {namespace}"
        " --service-account {serviceAccount}",
        "associations[].associationId",
        "{clusterName},{found}",
    ),
}
