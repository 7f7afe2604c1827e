"""The kubeconfig of a cluster that was there before the stack. pulumi-eks writes that of a cluster that it makes."""

from __future__ import annotations

import json

import settings

EXEC_API = "client.authentication.k8s.io/v1beta1"


def kubeconfig(cluster: settings.ExistingCluster, region: str, profile: str) -> str:
    """Return a kubeconfig, as JSON, that gets its tokens from `aws`, with the profile if there is one.

    https://docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html
    """
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", cluster.name, "--output", "json"]
    arguments += ["--profile", profile] if profile else []
    user = {"exec": {"apiVersion": EXEC_API, "command": "aws", "args": arguments}}
    server = {"server": cluster.endpoint, "certificate-authority-data": cluster.certificate}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": server}],
            "users": [{"name": "aws", "user": user}],
            "contexts": [{"name": "aws", "context": {"cluster": "kubernetes", "user": "aws"}}],
            "current-context": "aws",
        }
    )
