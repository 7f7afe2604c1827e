"""What the conditions of Karpenter's objects say about why no node comes. There are no events for this.

    launch(claim)         # Explanation("Unauthorized", "Error creating fleet request: ...")
    unready(node_class)   # Explanation("AMINotFound", "EC2NodeClass workers isn't ready: AMIsReady: ...")

- A NodeClaim that the cloud refuses for another reason than a shortage stays, with its condition `Launched` Unknown and
  the reason. Karpenter tries again, and deletes it after five minutes.
- A NodePool that isn't Ready is passed over, mostly since its EC2NodeClass isn't: its image, subnets or security groups
  don't exist, or the role that it names, or Karpenter's own rights don't suffice. If no NodePool is left, Karpenter
  says nothing of the pods.

(Karpenter v1.14: `nodeclaim/lifecycle/launch.go` and `liveness.go`, `provisioning/provisioner.go` and
`nodepool/readiness` below `pkg/controllers` of its core, `pkg/controllers/nodeclass` of its provider for AWS.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidewater.controller.cluster.client import Manifest
from tidewater.controller.provisioning.messages import Explanation

NOT_READY = "NodePoolNotReady"
"""Our word if Karpenter doesn't know yet whether a NodePool, or its node class, is ready."""

_UNTRIED = "AwaitingReconciliation"
"""The reason of a condition that Karpenter has not looked at."""

_FOLLOWS = ("DependenciesNotReady", "UnhealthyDependents", "ReconcilingDependents")
"""Reasons of conditions that only say that another one doesn't hold."""

_BESIDES = ("Ready", "NodeRegistrationHealthy")
"""Conditions that are no part of Ready."""

Conditions = Mapping[str, Mapping[str, Any]]


def conditions(manifest: Manifest) -> Conditions:
    """Return an object's conditions by type."""
    found = (manifest.get("status") or {}).get("conditions") or ()
    return {each.get("type", ""): each for each in found}


def launched(claim: Manifest) -> bool:
    """Return whether the NodeClaim has an instance."""
    return conditions(claim).get("Launched", {}).get("status") == "True"


def launch(claim: Manifest) -> Explanation:
    """Return why the cloud gives no instance for a NodeClaim; empty if nothing is known of that."""
    condition = conditions(claim).get("Launched", {})
    reason = condition.get("reason", _UNTRIED)
    if condition.get("status") == "True" or reason == _UNTRIED:
        return Explanation()
    return Explanation(reason, condition.get("message") or reason)


def unready(manifest: Manifest) -> Explanation:
    """Return why a NodePool or a node class isn't ready; empty if it is, or Karpenter has not looked at it."""
    known = conditions(manifest)
    if not known or known.get("Ready", {}).get("status") == "True":
        return Explanation()
    lacking = [each for type, each in known.items() if type not in _BESIDES and each.get("status") != "True"]
    own = [each for each in lacking if each.get("reason") not in _FOLLOWS]
    wrong = [each for each in own if each.get("status") == "False"]
    causes = [f"{each['type']}: {each.get('message') or each.get('reason', '')}" for each in wrong or own or lacking]
    what = f"{manifest['kind']} {manifest['metadata']['name']} isn't ready"
    return Explanation(wrong[0].get("reason", NOT_READY) if wrong else NOT_READY, ": ".join((what, ", ".join(causes))))


def dynamic(pool: Manifest) -> bool:
    """Return whether a NodePool brings nodes for pods: it stays, and has no fixed number of nodes."""
    return not pool["metadata"].get("deletionTimestamp") and (pool.get("spec") or {}).get("replicas") is None


def node_class(pool: Manifest) -> str:
    """Return the name of a NodePool's node class; empty if it isn't one for AWS."""
    template = (pool.get("spec") or {}).get("template") or {}
    reference = (template.get("spec") or {}).get("nodeClassRef") or {}
    return str(reference.get("name", "")) if reference.get("kind") == "EC2NodeClass" else ""
