"""Asks the API server of an existing cluster for what is on it: a name of the stack's objects may be taken.

    look(kubeconfig)        # {("Namespace", "default"), ("CustomResourceDefinition", "nodepools.karpenter.sh"), …}

Two things of one name can't be distinguished, and a destroy would delete what is in them.
"""

from __future__ import annotations

from collections.abc import Callable

from tidewater.kube.errors import ClusterError
from tidewater.kube.kinds import DEFINITIONS, NAMESPACES
from tidewater.kube.kubeconfig import Access
from tidewater.kube.server import connect

Objects = frozenset[tuple[str, str]]
"""Kinds and names."""


class NoAnswer(Exception):
    """The API server can't be asked, in words."""


Look = Callable[[str], Objects]
"""Returns the namespaces and definitions of the cluster of a kubeconfig. Raises NoAnswer."""


def look(kubeconfig: str) -> Objects:
    """Ask, with the `aws` that the kubeconfig starts. See `Look`."""
    try:
        server = connect(Access(text=kubeconfig))
        return frozenset(
            (kind.kind, str(each["metadata"]["name"]))
            for kind in (NAMESPACES, DEFINITIONS)
            for each in server.list(kind).items
        )
    except ClusterError as error:
        raise NoAnswer(str(error)) from error
