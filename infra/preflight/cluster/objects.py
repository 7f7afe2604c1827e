"""Asks the API server of a cluster for what is on it: a name of the stack's objects may be taken.

    look(kubeconfig)        # Objects({("Namespace", "default"): False, ("Namespace", "training"): True, …})

Two things of one name can't be distinguished. The stack would take over one that people have made, and a destroy would
delete it with what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewater.contract import labels
from tidewater.kube.errors import ClusterError
from tidewater.kube.kinds import DEFINITIONS, NAMESPACES
from tidewater.kube.kubeconfig import Access
from tidewater.kube.server import connect

OWN_LABELS: Mapping[str, str] = {labels.PART_OF: labels.APPLICATION, labels.MANAGED_BY: "pulumi"}
"""Every version of the program gives them to its objects. A cluster has one stack, so they don't say which one."""

KARPENTER = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")
"""Karpenter's definitions. https://github.com/aws/karpenter-provider-aws (pkg/apis/crds)"""

MANAGER = "pulumi-kubernetes-"
"""The names of Pulumi's field managers begin with it. Karpenter's chart gives its definitions no labels.
https://github.com/pulumi/pulumi-kubernetes (provider/pkg/provider/provider.go, fieldManagerName)"""


@dataclass(frozen=True)
class Objects:
    """What is on a cluster. `found`: whether a stack has made it, by kind and name of namespaces and definitions."""

    found: Mapping[tuple[str, str], bool] = field(default_factory=dict)


class NoAnswer(Exception):
    """The API server can't be asked, in words."""


Look = Callable[[str], Objects]
"""Returns what is on the cluster of a kubeconfig. Raises NoAnswer."""


def look(kubeconfig: str) -> Objects:
    """Ask, with the `aws` that the kubeconfig starts. See `Look`."""
    try:
        server = connect(Access(text=kubeconfig))
        listed = [
            (kind.kind, each["metadata"]) for kind in (NAMESPACES, DEFINITIONS) for each in server.list(kind).items
        ]
    except ClusterError as error:
        raise NoAnswer(str(error)) from error
    return Objects({(kind, str(each["name"])): made_by_a_stack(each) for kind, each in listed})


def made_by_a_stack(metadata: Mapping[str, Any]) -> bool:
    """Return whether a stack has made the object; a killed `pulumi up` may have done so without recording it."""
    if OWN_LABELS.items() <= (metadata.get("labels") or {}).items():
        return True
    managers = (str(each.get("manager", "")) for each in metadata.get("managedFields") or ())
    return metadata["name"] in KARPENTER and any(each.startswith(MANAGER) for each in managers)
