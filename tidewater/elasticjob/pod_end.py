"""How a pod of a job failed.

failed_end(pod["status"])["exitCode"]      # of the container that trains, or of the one that failed first
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidewater.elasticjob import names


def failed_end(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `terminated` part of the container that trains if it failed, else of the one that failed first.

    First by time: the kubelet reports containers in the order of their names, and init containers before them. A
    sidecar among the init containers ends after the others, mostly by a signal.

    Args:
        status: of a pod. Any part may be missing.

    Returns:
        The part; empty if no container failed.
    """
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    ends = [(each.get("name") != names.WORKER_CONTAINER, (each.get("state") or {}).get("terminated")) for each in every]
    failed = [(other, end) for other, end in ends if end and end.get("exitCode")]
    return min(failed, key=lambda each: (each[0], each[1].get("finishedAt") or ""), default=(True, {}))[1]
