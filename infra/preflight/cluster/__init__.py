"""Whether an existing cluster is as the stack needs it, and whether on any cluster the names of its objects are free.

    cluster.mistakes(stack, found, region.vpc), cluster.warnings(stack, found)
    taken.mistakes(stack, region.inside, new=False), taken.warnings(stack, region.inside)

checks   what AWS says of an existing cluster as plain data, and what is wrong with that; pure
taken    what is on the cluster as plain data, and which names of the stack others have; pure
lookup   asks AWS for it, at the same time as the rest of the preflight asks
objects  asks the API server what is there
kubeconfig  of the cluster, for `objects` and for the stack's own objects
"""

from infra.preflight.cluster.checks import Cluster, known, mistakes, warnings
from infra.preflight.cluster.objects import Look, Objects, look
from infra.preflight.cluster.taken import Inside

__all__ = ["Cluster", "Inside", "Look", "Objects", "known", "look", "mistakes", "warnings"]
