"""How an ElasticJob shares a cluster with others: a part of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tidewater.elasticjob import names
from tidewater.elasticjob.about import About
from tidewater.elasticjob.names import DNS_LABEL

MOST_REPLICAS = 5000
"""Pods of one type: as many as Kubernetes supports nodes in a cluster, see
https://kubernetes.io/docs/setup/best-practices/cluster-large/"""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """How the job shares a cluster with others."""

    min_available: Annotated[
        int | None,
        About(
            "Number of workers for which there must be room before a job of a queue starts. Defaults to"
            " spec.minReplicas; a larger value than replicaSpecs.Worker.replicas counts as that number.",
            minimum=0,
            maximum=MOST_REPLICAS,
        ),
    ] = None
    queue: Annotated[
        str | None,
        About(
            "Name of the queue in which the job waits until all of its minimum can start, every replica type"
            " included. A job without a queue starts at once.",
            pattern=DNS_LABEL,
            max_length=names.LONGEST_NAME,
        ),
    ] = None
    core_priority_class_name: Annotated[
        str | None,
        About(
            "Priority class of the workers below spec.minReplicas and of all pods of other types. Defaults to the"
            " template's.",
            min_length=1,
            max_length=253,
        ),
    ] = None
    surge_priority_class_name: Annotated[
        str | None,
        About(
            "Priority class of the workers above spec.minReplicas, which pods of a higher priority may displace while"
            " the job goes on. Defaults to the template's.",
            min_length=1,
            max_length=253,
        ),
    ] = None
    priority: Annotated[
        int,
        About(
            "Order within the queue: a higher number first, then the older job.",
            minimum=-1_000_000_000,
            maximum=1_000_000_000,
        ),
    ] = 0
    queue_timeout_seconds: Annotated[
        int,
        About(
            "How long a job of a queue may hold pods while its minimum cannot start. After that it gives its room back"
            " and the next job of the queue is tried.",
            minimum=1,
            maximum=7 * 86400,
        ),
    ] = 300
