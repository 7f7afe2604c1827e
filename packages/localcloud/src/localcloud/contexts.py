"""Keeps the kubeconfig of the state directory equal to the clusters that there are.

    contexts.publish(instance, {"demo": Cluster("https://198.18.0.2:6443", ca_pem)})

The entries are those that `aws eks update-kubeconfig` makes, under the cluster's ARN, so a cluster that is deleted and
created again needs no command in between. Entries of other names, and a context's namespace, are the user's and stay.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcloud.instance import Instance

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cluster:
    """How an API server is reached, and the certificate of its authority."""

    endpoint: str
    ca_pem: str


def publish(instance: Instance, clusters: Mapping[str, Cluster]) -> None:
    """Make the kubeconfig name these clusters, by their names, and none that is gone.

    A file that can't be read or written is left as it is and logged: a cluster works without it.
    """
    import yaml

    path = instance.kubeconfig
    try:
        before = yaml.safe_load(path.read_text()) if path.exists() else None
        after = updated(before or {}, instance, clusters)
        if after != before and (clusters or path.exists()):
            _write(path, yaml.safe_dump(after, sort_keys=False))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        log.warning("%s can't be updated (%s): delete it, or run `aws eks update-kubeconfig`", path, error)


def updated(document: Mapping[str, Any], instance: Instance, clusters: Mapping[str, Cluster]) -> dict[str, Any]:
    """Return a kubeconfig with our entries replaced by those of `clusters`; the current context stays if it exists."""
    prefix = f"arn:aws:eks:{instance.region}:{instance.account}:cluster/"
    entries: dict[str, list[dict[str, Any]]] = {
        kind: [entry for entry in document.get(kind) or [] if not entry["name"].startswith(prefix)]
        for kind in ("clusters", "contexts", "users")
    }
    earlier = {entry["name"]: entry["context"] for entry in document.get("contexts") or []}
    for name, cluster in sorted(clusters.items()):
        arn = prefix + name
        authority = base64.b64encode(cluster.ca_pem.encode()).decode()
        reached = {"server": cluster.endpoint, "certificate-authority-data": authority}
        entries["clusters"].append({"name": arn, "cluster": reached})
        entries["contexts"].append({"name": arn, "context": {**earlier.get(arn, {}), "cluster": arn, "user": arn}})
        entries["users"].append({"name": arn, "user": {"exec": _login(instance.region, name)}})
    known = [entry["name"] for entry in entries["contexts"]]
    current = document.get("current-context")
    if current not in known:
        current = next((name for name in known if name.startswith(prefix)), "")
    return {"apiVersion": "v1", "kind": "Config", **document, **entries, "current-context": current}


def _login(region: str, cluster: str) -> dict[str, Any]:
    """Return the command that prints a token for the AWS credentials in the environment."""
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", cluster, "--output", "json"]
    return {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": arguments,
        "interactiveMode": "Never",
    }


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)
