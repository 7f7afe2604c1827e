"""The versions that belong together, for each Kubernetes version: the nodes' image, and EKS's addons.

    versions.KUBERNETES["1.35"].addons["coredns"]      # v1.13.2-eksbuild.31

`pulumi up` moves an addon only when this table, or `kubernetesVersion`, changes. Without a version here, pulumi-eks
takes the newest kube-proxy and vpc-cni at every update, and a fix to a training script would restart the network of all
nodes. docs/upgrades.md says how a row is changed, and how a running stack goes from one to the next.

Looked up on 2026-11-24, the node monitoring agent on 2026-11-28. The addons of 1.35 are EKS's defaults of October 2026;
those of 1.34 and 1.36 are in use with these versions. For 1.36 the EFS driver and the node monitoring agent are those
of 1.35: they were not looked up. The one-machine cloud has no 1.36, so the default is 1.35. To look them up again, with
an AWS account:

    aws eks describe-addon-versions --kubernetes-version 1.35 --query \\
        'addons[].[addonName, addonVersions[?compatibilities[0].defaultVersion].addonVersion | [0]]' --output text
    aws ssm get-parameter --query Parameter.Value --output text --name \\
        /aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/release_version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Release:
    """What goes with one Kubernetes version."""

    node_image: str
    """Release of EKS's AL2023 images: https://github.com/awslabs/amazon-eks-ami/releases"""
    addons: Mapping[str, str]
    standard_support_until: str
    """https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"""


_ANY_KUBERNETES = {
    "vpc-cni": "v1.22.4-eksbuild.3",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.3",
    "aws-efs-csi-driver": "v3.4.1-eksbuild.1",
    "eks-node-monitoring-agent": "v1.7.0-eksbuild.1",
}

MOUNTPOINT = "v2.7.0-eksbuild.1"
"""Version of the addon aws-mountpoint-s3-csi-driver, for every Kubernetes version; only with `datasetStorage` s3."""

NO_ENVIRONMENT = "v20251023"
"""The last release of EKS's images in which nodes can't be given variables for all of their services.
https://github.com/awslabs/amazon-eks-ami/pull/2427 (and 2489)"""

KUBERNETES: Mapping[str, Release] = MappingProxyType(
    {
        "1.34": Release(
            node_image="v20260903",  # 1.34.10-20260903
            addons=_ANY_KUBERNETES | {"coredns": "v1.12.4-eksbuild.29", "kube-proxy": "v1.34.6-eksbuild.29"},
            standard_support_until="2026-12-02",
        ),
        "1.35": Release(
            node_image="v20260903",  # 1.35.7-20260903
            addons=_ANY_KUBERNETES | {"coredns": "v1.13.2-eksbuild.31", "kube-proxy": "v1.35.3-eksbuild.29"},
            standard_support_until="2027-03-27",
        ),
        "1.36": Release(
            node_image="v20260903",  # 1.36.3-20260903
            addons=_ANY_KUBERNETES | {"coredns": "v1.14.3-eksbuild.16", "kube-proxy": "v1.36.0-eksbuild.25"},
            standard_support_until="2027-08-02",
        ),
    }
)
"""EKS refuses a new cluster of a version that has left standard support, as the stack asks for no other support."""
