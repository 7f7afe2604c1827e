"""What a platform team has before the stack comes: a VPC, an EKS cluster with addons, and file systems, by boto3.

platform = Platform.make(checkout)
platform.connect()          # gives VPC and cluster what they lack at first: names, a way to the internet, a driver
platform.described()        # all that AWS and Kubernetes say of it
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud import tools

from settings import versions
from tests.e2e.checkout import Checkout, wait_until
from tidewater.kube import kinds
from tidewater.kube.kinds import Kind

CLUSTER = "platform"
ADDRESSES = "198.18.0.0/15"
"""Those of the one-machine cloud."""
ADDONS = {
    "vpc-cni": {"enableNetworkPolicy": "true"},
    **dict.fromkeys(("kube-proxy", "coredns", "eks-pod-identity-agent", "aws-efs-csi-driver"), None),
}
LUSTRE_DRIVER = "aws-fsx-csi-driver"
SYSTEM = "kube-system"
RBAC = "rbac.authorization.k8s.io/v1"
KINDS = (
    *(kinds.NAMESPACES, kinds.DEFINITIONS, kinds.PRIORITY_CLASSES, kinds.NODES, kinds.DEPLOYMENTS, kinds.SERVICES),
    Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Kind(RBAC, "ClusterRole", "clusterroles", namespaced=False),
    Kind(RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
)
"""Of what the stack makes on the cluster: what has no namespace, and what Karpenter has in `SYSTEM`."""


@dataclass(frozen=True)
class Platform:
    """The network, the cluster and the file systems, EFS's and that of Lustre, in the cloud of a checkout."""

    checkout: Checkout
    vpc: str
    subnets: list[str]
    files: str
    lustre: dict[str, str]
    """Its id and its mount name, as the stack's key `lustre` has them."""

    @classmethod
    def make(cls, checkout: Checkout) -> Platform:
        """Make all of it; return when the cluster is ACTIVE and has the objects of its addons."""
        vpc, subnets = _network(checkout)
        trust = {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        role = checkout.client("iam").create_role(RoleName=CLUSTER, AssumeRolePolicyDocument=document)["Role"]["Arn"]
        eks = checkout.client("eks")
        eks.create_cluster(
            name=CLUSTER,
            version=tools.KUBERNETES,
            roleArn=role,
            accessConfig={"authenticationMode": "API"},
            bootstrapSelfManagedAddons=False,
            resourcesVpcConfig={
                "subnetIds": subnets,
                "endpointPrivateAccess": True,
                "endpointPublicAccess": True,
                "publicAccessCidrs": [ADDRESSES],
            },
        )
        eks.get_waiter("cluster_active").wait(name=CLUSTER, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
        for name, values in ADDONS.items():
            configured = {"configurationValues": json.dumps(values)} if values else {}
            version = versions.KUBERNETES[tools.KUBERNETES].addons[name]
            eks.create_addon(clusterName=CLUSTER, addonName=name, addonVersion=version, **configured)
        # Of the addons only CoreDNS has objects of `KINDS`. Without nodes it doesn't become ACTIVE.
        wait_until("CoreDNS", lambda: checkout.objects(kinds.DEPLOYMENTS, SYSTEM))
        return cls(checkout, vpc, subnets, _files(checkout, vpc, subnets), _lustre(checkout, subnets[0]))

    def connect(self) -> None:
        """Turn on DNS host names, make a NAT gateway the way out of both subnets, and install the driver of Lustre."""
        ec2 = self.checkout.client("ec2")
        ec2.modify_vpc_attribute(VpcId=self.vpc, EnableDnsHostnames={"Value": True})
        internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=self.vpc)
        address = ec2.allocate_address(Domain="vpc")["AllocationId"]
        nat = ec2.create_nat_gateway(SubnetId=self.subnets[0], AllocationId=address)["NatGateway"]["NatGatewayId"]
        main = [{"Name": "vpc-id", "Values": [self.vpc]}, {"Name": "association.main", "Values": ["true"]}]
        (table,) = ec2.describe_route_tables(Filters=main)["RouteTables"]
        ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", NatGatewayId=nat)
        self.checkout.client("eks").create_addon(clusterName=CLUSTER, addonName=LUSTRE_DRIVER)

    @property
    def runs(self) -> Path:
        """Return the folder on Lustre that its owner has made for checkpoints, as the host sees it."""
        return _of_host(self.checkout, self.lustre) / "runs"

    @property
    def config(self) -> dict[str, Any]:
        """Return the keys with which a stack goes into all of it."""
        network = {"vpcId": self.vpc, "privateSubnetIds": self.subnets}
        named = {**network, "clusterName": CLUSTER, "fileSystemId": self.files, "lustre": self.lustre}
        return {f"tidewater:{key}": value for key, value in named.items()}

    def described(self) -> dict[str, Any]:
        """Return what AWS says of the network and the cluster, and the names of what is on it, in a stable order."""
        ec2, eks, efs = (self.checkout.client(name) for name in ("ec2", "eks", "efs"))
        there = [{"Name": "vpc-id", "Values": [self.vpc]}]
        named = {"clusterName": CLUSTER}
        lustre = self.checkout.client("fsx").describe_file_systems()["FileSystems"]
        return {
            "lustre": lustre,
            "vpc": ec2.describe_vpcs(VpcIds=[self.vpc])["Vpcs"],
            "subnets": ec2.describe_subnets(Filters=there)["Subnets"],
            "gateways": ec2.describe_nat_gateways(Filters=there)["NatGateways"],
            "endpoints": ec2.describe_vpc_endpoints(Filters=there)["VpcEndpoints"],
            "tables": ec2.describe_route_tables(Filters=there)["RouteTables"],
            "groups": sorted(map(repr, ec2.describe_security_groups(Filters=there)["SecurityGroups"])),
            "tags": sorted(map(repr, ec2.describe_tags(Filters=_of(self.vpc, *self.subnets))["Tags"])),
            "files": [each | {"SizeInBytes": 0} for each in efs.describe_file_systems()["FileSystems"]],
            "mount targets": efs.describe_mount_targets(FileSystemId=self.files)["MountTargets"],
            "access points": efs.describe_access_points()["AccessPoints"],
            "cluster": eks.describe_cluster(name=CLUSTER)["cluster"],
            "addons": eks.list_addons(**named)["addons"],
            "entries": eks.list_access_entries(**named)["accessEntries"],
            "groups of nodes": eks.list_nodegroups(**named)["nodegroups"],
            "pod identities": eks.list_pod_identity_associations(**named)["associations"],
            **{kind.kind: self._names(kind) for kind in KINDS},
        }

    def _names(self, kind: Kind) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.checkout.objects(kind, SYSTEM))


def _of(*ids: str) -> list[dict[str, Any]]:
    return [{"Name": "resource-id", "Values": list(ids)}]


def _files(checkout: Checkout, vpc: str, subnets: list[str]) -> str:
    """Make a file system with a mount target in each subnet, which all of the VPC reaches; return its id."""
    ec2, efs = checkout.client("ec2"), checkout.client("efs")
    group = ec2.create_security_group(GroupName=CLUSTER, Description="NFS", VpcId=vpc)["GroupId"]
    nfs = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "IpRanges": [{"CidrIp": "10.8.0.0/16"}]}
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[nfs])
    files = str(efs.create_file_system(CreationToken=CLUSTER, Encrypted=True)["FileSystemId"])
    for subnet in subnets:
        efs.create_mount_target(FileSystemId=files, SubnetId=subnet, SecurityGroups=[group])
    return files


def _lustre(checkout: Checkout, subnet: str) -> dict[str, str]:
    """Make a file system of Lustre with a folder that the pods of the stack may write to."""
    asked = {"FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": [subnet]}
    kind = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125}
    made = checkout.client("fsx").create_file_system(**asked, LustreConfiguration=kind)["FileSystem"]
    found = {"fileSystemId": made["FileSystemId"], "mountName": made["LustreConfiguration"]["MountName"]}
    runs = _of_host(checkout, found) / "runs"
    runs.mkdir()
    os.chown(runs, 1000, 1000)
    return found


def _of_host(checkout: Checkout, lustre: dict[str, str]) -> Path:
    return checkout.state / "lustre" / lustre["fileSystemId"] / lustre["mountName"]


def _network(checkout: Checkout) -> tuple[str, list[str]]:
    """Make a VPC with two subnets, without DNS host names and without a way to the internet; return the ids."""
    ec2 = checkout.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.8.{64 * index}.0/18", AvailabilityZone=f"us-west-2{zone}")
        for index, zone in enumerate("ab")
    ]
    return vpc, [each["Subnet"]["SubnetId"] for each in subnets]
