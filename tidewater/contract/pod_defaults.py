"""What the pods and namespaces of the controller and of the Pulumi program have in common.

{"securityContext": confined()}                              # of a container
{"tolerations": [*others, *lost_node_tolerations()]}         # of a pod
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]

LOST_NODE_SECONDS = 15
"""Pods on a node that doesn't answer are evicted after this, instead of Kubernetes' 300."""

RESTRICTED_NAMESPACE: Mapping[str, str] = {
    f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")
}
"""Labels of a namespace that accepts only pods without privileges.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""


def confined() -> Manifest:
    """Return the `securityContext` of a container without privileges.

    Each call returns a new dictionary: PyYAML would print the second use of the same one as a reference to the first.
    """
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def lost_node_tolerations() -> list[Manifest]:
    """Return the tolerations that let a pod be evicted soon from a lost node."""
    return [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LOST_NODE_SECONDS,
        }
        for condition in ("not-ready", "unreachable")
    ]
