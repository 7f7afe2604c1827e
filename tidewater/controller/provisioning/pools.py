"""Whether Karpenter can bring nodes at all: what its NodePools and their node classes say of themselves.

pools = Pools()
pools.heard(manifest, gone=False)       # True: the explanation of any pod may have changed
pools.explanation(said)                 # why no node comes, if it is for the pools; else what was said of the pod
"""

from __future__ import annotations

from tidewater.controller.cluster.client import NODE_CLASSES, NODE_POOLS, Manifest
from tidewater.controller.provisioning.conditions import dynamic, node_class, unready
from tidewater.controller.provisioning.messages import FAILED_SCHEDULING, Explanation


class Pools:
    """The NodePools and node classes that exist."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[Explanation, str]] = {}  # why it isn't ready, and its node class
        self._classes: dict[str, Explanation] = {}
        self._unready = Explanation()
        self._all = False

    def heard(self, manifest: Manifest, *, gone: bool) -> bool:
        """Take over a NodePool or a node class. Return whether the explanation of any pod may have changed."""
        name, before = manifest["metadata"]["name"], (self._unready, self._all)
        if manifest["kind"] == NODE_CLASSES.kind:
            self._classes.pop(name, None)
            if not gone:
                self._classes[name] = unready(manifest)
        else:
            self._pools.pop(name, None)
            if not gone and dynamic(manifest):
                self._pools[name] = (unready(manifest), node_class(manifest))
        # A NodePool only says which conditions of its node class don't hold; the node class says why.
        causes = [(why, self._classes.get(of, why)) for _, (why, of) in sorted(self._pools.items()) if why.reason]
        self._unready = next((of if of.reason else why for why, of in causes), Explanation())
        self._all = len(causes) == len(self._pools)
        return before != (self._unready, self._all)

    def forget(self, kind: str) -> None:
        """Forget the objects of a kind: those that still exist are heard of again."""
        if kind == NODE_CLASSES.kind:
            self._classes.clear()
        elif kind == NODE_POOLS.kind:
            self._pools.clear()

    def explanation(self, said: Explanation) -> Explanation:
        """Return why no node comes for a pod, given what Karpenter has said of it.

        If no NodePool is ready, that is the cause, and Karpenter says nothing more of any pod. If some are, those that
        aren't may be the ones that it can't be scheduled without.
        """
        if not self._unready.reason:
            return said
        if self._all:
            return self._unready
        if said.reason == FAILED_SCHEDULING:
            return said._replace(why=f"{self._unready.why}; {said.why}")
        return said
