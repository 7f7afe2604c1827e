"""Whether an existing cluster is as the stack needs it.

    cluster.mistakes(stack, found, region.vpc), cluster.warnings(stack, found)

checks   what AWS and the API server say of it as plain data, and what is wrong with that; pure
lookup   asks AWS for it, at the same time as the rest of the preflight asks
objects  asks the API server which names are taken
kubeconfig  of the cluster, for `objects` and for the stack's own objects
"""

from infra.preflight.cluster.checks import Cluster, known, mistakes, warnings
from infra.preflight.cluster.objects import Look, look

__all__ = ["Cluster", "Look", "known", "look", "mistakes", "warnings"]
