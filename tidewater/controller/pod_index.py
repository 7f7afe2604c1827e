"""The pods of all jobs, by job and by node.

index = PodIndex()
index.put(job_uid, pod)
index.of(job_uid)               # all of its pods
index.jobs_on("node-0")         # the uids of the jobs with a pod there, without a look at every pod
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from tidewater.controller.decide.observed import PodView

PATIENCE_SECONDS = 0.1
PATIENCE_PODS = 100
"""For each so many pods of a job, news of it waits for PATIENCE_SECONDS. Otherwise, when a thousand pods end one after
another, each would cause a decision, which looks at all pods, and a write of the status."""

LONGEST_PATIENCE_SECONDS = 2.0


class PodIndex:
    """Pods of jobs. A job is named by its uid."""

    def __init__(self) -> None:
        self.by_job: dict[str, dict[str, PodView]] = {}
        """By the job and by the pod's name. To be read only."""
        self._on: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def of(self, job: str) -> Collection[PodView]:
        """Return the pods of a job."""
        return self.by_job.get(job, {}).values()

    def patience(self, job: str) -> float:
        """Return for how many seconds more news of the job is waited for; 0 for a small one."""
        return min(LONGEST_PATIENCE_SECONDS, PATIENCE_SECONDS * (len(self.of(job)) // PATIENCE_PODS))

    def jobs_on(self, node: str) -> list[str]:
        """Return the jobs that have a pod on a node."""
        return list(self._on.get(node, ()))

    def put(self, job: str, pod: PodView) -> None:
        """Add a pod, or replace the one of its name."""
        self.drop(job, pod)
        self.by_job.setdefault(job, {})[pod.name] = pod
        if pod.node is not None:
            self._on[pod.node][job] += 1

    def drop(self, job: str, pod: PodView) -> None:
        """Forget the job's pod of this name, if it has one."""
        pods = self.by_job.get(job, {})
        old = pods.pop(pod.name, None)
        if not pods:
            self.by_job.pop(job, None)
        if old is None or old.node is None:
            return
        self._on[old.node][job] -= 1
        if not self._on[old.node][job]:
            del self._on[old.node][job]
        if not self._on[old.node]:
            del self._on[old.node]
