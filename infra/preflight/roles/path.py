"""Whether the roles of a stack that exists stay in their path. Pure.

A role in another path is another role, and EKS changes neither the role of a cluster nor that of a node group: both
would be replaced.
https://docs.aws.amazon.com/eks/latest/APIReference/API_UpdateClusterConfig.html
"""

from __future__ import annotations

import settings


def path_of(role_arn: str) -> str:
    """Return the path in a role's ARN, with its slashes."""
    return role_arn.partition(":role")[2].rpartition("/")[0] + "/"


def mistakes(stack: settings.Settings, role_arn: str | None) -> list[str]:
    """Return a mistake if another path would replace the cluster; None if it has no role yet."""
    if stack.roles.arns or role_arn is None or (now := path_of(role_arn)) == stack.roles.path:
        return []
    replaced = "node groups" if stack.cluster.existing else "cluster"
    return [
        f"rolePath = {stack.roles.path}: the stack's roles are in {now}, and roles in another path would replace the "
        f"{replaced}; set it back, or destroy the stack first (`pulumi destroy`)"
    ]
