"""The kubeconfig of an EKS cluster: pure functions.

The order of members is that of the official plug-in, since the kubeconfig is also passed on as a string, in which
another order would be a change.
"""

from __future__ import annotations

import json
from typing import Any, Final

EXEC_API: Final = "client.authentication.k8s.io/v1beta1"


def kubeconfig(
    *,
    name: str,
    endpoint: str,
    certificate_authority: str,
    region: str,
    role_arn: str | None = None,
    profile: str | None = None,
) -> dict[str, Any]:
    """Return a kubeconfig that gets its token from the AWS CLI.

    Args:
        name: the cluster's name.
        endpoint: the URL of its API server.
        certificate_authority: its certificate authority, PEM in base64.
        region: the cluster's region.
        role_arn: a role to assume before asking, if any.
        profile: the AWS CLI's profile to use, if any.
    """
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    if role_arn:
        arguments += ["--role", role_arn]
    if profile:
        arguments += ["--profile", profile]
    environment = [{"name": "KUBERNETES_EXEC_INFO", "value": f'{{"apiVersion": "{EXEC_API}"}}'}]
    return {
        "apiVersion": "v1",
        "clusters": [
            {"cluster": {"server": endpoint, "certificate-authority-data": certificate_authority}, "name": "kubernetes"}
        ],
        "contexts": [{"context": {"cluster": "kubernetes", "user": "aws"}, "name": "aws"}],
        "current-context": "aws",
        "kind": "Config",
        "users": [
            {
                "name": "aws",
                "user": {"exec": {"apiVersion": EXEC_API, "command": "aws", "args": arguments, "env": environment}},
            }
        ],
    }


def kubeconfig_of(
    name: str, endpoint: str, certificate_authority: str, arn: str, role_arn: str | None, profile: str | None
) -> dict[str, Any]:
    """The kubeconfig of the cluster with this ARN."""
    return kubeconfig(
        name=name,
        endpoint=endpoint,
        certificate_authority=certificate_authority,
        region=region_of(arn),
        role_arn=role_arn,
        profile=profile,
    )


def kubeconfig_json(*sources: str | None) -> str:
    """`kubeconfig_of`, as a string."""
    return compact_json(kubeconfig_of(*sources))  # type: ignore[arg-type]


def compact_json(value: Any) -> str:
    """JSON as JavaScript's `JSON.stringify` writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def region_of(arn: str) -> str:
    """The region within an ARN.

    Raises:
        ValueError: the ARN has none.
    """
    parts = arn.split(":")
    if len(parts) < 6 or not parts[3]:
        raise ValueError(f"the cluster's ARN {arn!r} names no region")
    return parts[3]
