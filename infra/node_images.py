"""The nodes' images: which of EKS' images nodes need, and EKS' name for a release of it.

    image = image_of(stack, stack.workers.nodes, account)
    image.ami_type, image.release_version      # AL2023_x86_64_NVIDIA, 1.35.7-20260903

Without a release, EKS takes the newest at the time. Two node groups of one stack could then differ, and a group would
stay at its release until the next version of Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra.account import Account

PARAMETER = "aws:ssm/getParameter:getParameter"

AMI_TYPES = {"standard": "AL2023_x86_64_STANDARD", "nvidia": "AL2023_x86_64_NVIDIA"}
"""EKS' image types for node groups, by the variant of the image."""


@dataclass(frozen=True)
class NodeImage:
    """EKS' image type, and the release of it."""

    ami_type: str
    release_version: pulumi.Input[str]


def image_of(stack: settings.Settings, nodes: settings.Nodes, account: Account) -> NodeImage:
    """Return the image of a node group. The preview fails if EKS has no such release."""
    kind = variant(nodes)
    return NodeImage(AMI_TYPES[kind], pulumi.Output.from_input(_release(stack, kind, account)))


async def _release(stack: settings.Settings, kind: str, account: Account) -> str:
    """Ask for EKS' name of the release.

    Not by the data source's `_output` form: all of its result would be a secret for Pulumi, since `value` is one.

    Raises:
        pulumi.RunError: there is no such release, or AWS refused the question.
    """
    version, release = stack.cluster.version, stack.node_image
    question, options = {"name": parameter(version, kind, release)}, pulumi.InvokeOptions(provider=account.provider)
    try:
        found = await pulumi.runtime.invoke_async(PARAMETER, question, options, aws.ssm.GetParameterResult)
    except Exception as error:  # the SDK has no other type for it
        raise pulumi.RunError(
            f"nodeImageVersion = {release}: EKS' {kind} image for Kubernetes {version} was not found in this release; "
            f"choose one of https://github.com/awslabs/amazon-eks-ami/releases that has it. AWS's answer: {error}"
        ) from error
    return str(found.insecure_value)


def variant(nodes: settings.Nodes) -> str:
    """Return the variant that these nodes need: the one with NVIDIA's driver if they have GPUs."""
    return "nvidia" if nodes.smallest.gpus else "standard"


def parameter(kubernetes_version: str, variant: str, release: str) -> str:
    """Return the name of the public parameter with EKS' name for a release: the version of kubelet, and the day.

    There is one for each image that EKS has published, by the image's name. Karpenter finds the image by the same path.
    https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html
    https://github.com/awslabs/amazon-eks-ami/issues/1843
    """
    image = f"amazon-eks-node-al2023-x86_64-{variant}-{kubernetes_version}-{release}"
    folder = f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/x86_64/{variant}"
    return f"{folder}/{image}/release_version"
