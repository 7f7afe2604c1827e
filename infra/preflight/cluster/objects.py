"""Asks the API server of a cluster for what is on it: a name of the stack's objects may be taken.

    look(kubeconfig)        # Objects({("Namespace", "default"): False, ("Namespace", "training"): True, …})

Two things of one name can't be distinguished. The stack would take over one that people have made, and a destroy would
delete it with what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewater.contract import labels
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import ALL_NAMESPACES, Selection
from tidewater.kube.errors import ClusterError, MissingKind
from tidewater.kube.kinds import DEFINITIONS, NAMESPACES, PRIORITY_CLASSES, Kind
from tidewater.kube.kubeconfig import Access
from tidewater.kube.server import Server, connect

KINDS = (NAMESPACES, DEFINITIONS, JOBS)
"""What people make, and would lose, under names that the stack may get by its configuration."""

OWN_LABELS: Mapping[str, str] = {labels.PART_OF: labels.APPLICATION, labels.MANAGED_BY: "pulumi"}
"""Every version of the program gives them to its objects. A cluster has one stack, so they don't say which one."""

KARPENTER = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")
"""Karpenter's definitions. https://github.com/aws/karpenter-provider-aws (pkg/apis/crds)"""

MANAGER = "pulumi-kubernetes-"
"""The names of Pulumi's field managers begin with it. Karpenter's chart gives its definitions no labels.
https://github.com/pulumi/pulumi-kubernetes (provider/pkg/provider/provider.go, fieldManagerName)"""


Key = tuple[str, str]
"""Kind and name. An ElasticJob's name has its namespace and a slash before it."""


@dataclass(frozen=True)
class Objects:
    """What is on a cluster.

    Attributes:
        found: whether a stack has made it, for each namespace, definition and ElasticJob.
        default_priority: the PriorityClass of pods that name none; empty if there is none.
    """

    found: Mapping[Key, bool] = field(default_factory=dict)
    default_priority: str = ""


class NoAnswer(Exception):
    """The API server can't be asked, in words."""


Look = Callable[[str], Objects]
"""Returns what is on the cluster of a kubeconfig. Raises NoAnswer."""


def look(kubeconfig: str) -> Objects:
    """Ask, with the `aws` that the kubeconfig starts. See `Look`."""
    try:
        server = connect(Access(text=kubeconfig), interactive=False)  # a preview must not wait for an answer
        classes = server.list(PRIORITY_CLASSES).items
        default = next((str(each["metadata"]["name"]) for each in classes if each.get("globalDefault")), "")
        return Objects({key: own for kind in KINDS for key, own in _listed(server, kind)}, default)
    except ClusterError as error:
        raise NoAnswer(str(error)) from error


def _listed(server: Server, kind: Kind) -> Iterator[tuple[Key, bool]]:
    """Yield what there is of a kind, and whether a stack has made it: nothing if the cluster doesn't know the kind."""
    try:
        items = server.list(kind, Selection(namespace=ALL_NAMESPACES)).items
    except MissingKind:
        return
    for each in items:
        metadata = each["metadata"]
        place = f"{metadata['namespace']}/" if kind.namespaced else ""
        yield (kind.kind, f"{place}{metadata['name']}"), made_by_a_stack(metadata)


def made_by_a_stack(metadata: Mapping[str, Any]) -> bool:
    """Return whether a stack has made the object; a killed `pulumi up` may have done so without recording it."""
    if OWN_LABELS.items() <= (metadata.get("labels") or {}).items():
        return True
    managers = (str(each.get("manager", "")) for each in metadata.get("managedFields") or ())
    return metadata["name"] in KARPENTER and any(each.startswith(MANAGER) for each in managers)
