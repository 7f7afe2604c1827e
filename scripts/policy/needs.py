"""What is needed in addition to the resources: look-ups of the program and of the preflight, and `scripts`. Data."""

from __future__ import annotations

from scripts.policy.actions import Actions
from scripts.policy.scopes import Scope

LOOK_UPS: Actions = {
    Scope.REGION: "ec2:DescribeAvailabilityZones ec2:DescribeInstanceTypeOfferings ec2:DescribeInstanceTypes "
    "ec2:DescribeVpcs ec2:GetEbsDefaultKmsKeyId eks:DescribeClusterVersions "
    "eks:DescribeAddonVersions servicequotas:GetServiceQuota servicequotas:GetAWSDefaultServiceQuota",
    Scope.CLUSTER: "DescribeCluster ListNodegroups DescribeNodegroup",
    Scope.PARAMETERS: "GetParameter",
}
"""Of `infra.preflight.lookup`, `infra.node_groups` and `infra.network`."""

OWN_VPC: Actions = {Scope.REGION: "ec2:DescribeAddresses ec2:DescribeNatGateways"}
"""Of `infra.preflight.lookup` for the quotas, in a VPC of the stack's own."""

EXISTING_VPC: Actions = {
    Scope.REGION: "eks:ListClusters ec2:DescribeVpcAttribute ec2:DescribeNetworkAcls ec2:DescribeSubnets "
    "ec2:DescribeRouteTables ec2:DescribeVpcEndpoints ec2:DescribePrefixLists",
}
"""Of `infra.preflight.vpc`. Without those of routes and endpoints the preview only warns."""

EXISTING_CLUSTER: Actions = {Scope.CLUSTER: "DescribeAddon DescribeAccessEntry"}
"""Of `infra.preflight.cluster`."""

EXISTING_FILES: Actions = {
    Scope.FILES: "DescribeFileSystems DescribeLifecycleConfiguration",
    Scope.REGION: "ec2:DescribeNetworkInterfaces",
}
"""Of `infra.preflight.vpc.files`."""

LUSTRE: Actions = {
    Scope.REGION: "fsx:DescribeFileSystems ec2:DescribeNetworkInterfaces ec2:DescribeSecurityGroups",
}
"""Of `infra.preflight.vpc.lustre`. Without them the preview only warns."""

DISK_KEY: Actions = {Scope.DISK_KEY: "DescribeKey", Scope.AUTO_SCALING: "GetRole"}
"""Of `infra.preflight.keys`, with a key for the nodes' disks."""

DATA_KEY: Actions = {Scope.KEY: "DescribeKey"}
"""Of `infra.preflight.keys`, with a key for the data."""

BOUNDARY: Actions = {Scope.BOUNDARY: "GetPolicy GetPolicyVersion"}
"""Of `infra.preflight.roles.boundary`. Without them the preview only warns."""

GIVEN_ROLES: Actions = {Scope.ROLES: "GetRole ListRolePolicies ListAttachedRolePolicies"}
"""Of `infra.preflight.roles.given`, and of Pulumi for the role that `infra.cluster` hands to pulumi-eks."""

DATASET: Actions = {Scope.DATASET: "ListBucket GetBucketLocation"}
"""Of `infra.preflight.dataset`, if it is in S3. Without them the preview only warns."""

SCRIPTS: Actions = {
    Scope.REGION: "ec2:DescribeInstances",
    Scope.CLUSTER: "ListAddons ListAccessEntries ListPodIdentityAssociations DescribeUpdate",
    Scope.LOGS: "ListTagsLogGroup",
}
"""Of `adopt` and `destroy`, as far as no resource needs it."""

ADDRESS: Actions = {Scope.CLUSTER: "UpdateClusterConfig"}
"""Of `address`, for a cluster of the stack's own."""
