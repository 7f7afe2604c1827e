"""A cluster that was there before the stack, in the VPC of `existing_vpc`, as AWS tells of it.

graph.run(graph.program, {**graph.defaults(), **existing_cluster.CONFIG}, ask=existing_cluster.ask)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests import graph
from tests.infra.preflight.vpc import existing_vpc

NAME = "platform"
GROUP = "sg-of-the-platform"
ENDPOINT = "https://platform.eks.example"
SERVICES = "10.96.0.0/16"
CONFIG: dict[str, Any] = {
    **existing_vpc.CONFIG,
    "clusterName": NAME,
    "publicAccessCidrs": [],
}
CLUSTER: dict[str, Any] = {
    "name": NAME,
    "arn": f"arn:aws:eks:us-west-2:{graph.ACCOUNT}:cluster/{NAME}",
    "status": "ACTIVE",
    "version": "1.35",
    "endpoint": ENDPOINT,
    "kubernetesNetworkConfigs": [{"serviceIpv4Cidr": SERVICES}],
    "certificateAuthorities": [{"data": "c2VjcmV0"}],
    "accessConfigs": [{"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True}],
    "vpcConfig": {
        "vpcId": existing_vpc.VPC,
        "clusterSecurityGroupId": GROUP,
        "endpointPrivateAccess": True,
        "endpointPublicAccess": True,
        "publicAccessCidrs": [graph.ADDRESS],
        "subnetIds": [],
        "securityGroupIds": [],
    },
}
ADDONS = {
    "vpc-cni": '{"enableNetworkPolicy": "true"}',
    "eks-pod-identity-agent": "",
    "aws-efs-csi-driver": "",
    "eks-node-monitoring-agent": "",
}


def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer for an account with this cluster, with the addons that the stack needs and a node group of its owner's."""
    match token.rpartition(":")[2]:
        case "getCluster" if arguments["name"] == NAME:
            return CLUSTER
        case "getAddon" if arguments["addonName"] in ADDONS:
            return {**arguments, "configurationValues": ADDONS[arguments["addonName"]]}
        case "getAddon":
            raise graph.Refused("reading EKS Add-On (x): couldn't find resource")
        case "getAccessEntry":
            raise graph.Refused("reading EKS Access Entry (x): couldn't find resource")
        case "getNodeGroups":
            return {"names": ["general"]}
        case "getNodeGroup":
            raise AssertionError(f"{arguments} is not the stack's")
        case "getClusters":
            raise AssertionError("a cluster of the stack's own is looked for")
    return existing_vpc.ask(token, arguments)
