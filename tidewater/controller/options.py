"""What the controller looks after and how, as its command line says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidewater.contract.controller_program import Quota
from tidewater.controller import objects


@dataclass(frozen=True)
class Options:
    """What the controller looks after and how.

    Attributes:
        namespaces: Of the jobs; none: all namespaces.
        workers: Jobs that are reconciled at the same time.
        domain: The cluster's DNS domain.
        fixed_nodes: Whether no node comes for a pod that waits.
        taints_nodes: Whether nodes on which devices fail get a taint.
        quotas: Of the teams that lend workers to each other, by namespace.
        worker_size: What counts as one worker in a quota, by resource; nothing: each worker counts once.
    """

    namespaces: tuple[str, ...] = ()
    workers: int = 16
    domain: str = objects.CLUSTER_DOMAIN
    fixed_nodes: bool = False
    taints_nodes: bool = False
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    worker_size: Mapping[str, str] = field(default_factory=dict)
