"""A cluster in memory: an API server, nodes with room for some pods, and replicas of the controller.

world = World()
replica = world.start()               # a controller
world.apply(jobs.manifest())
await world.settle()
world.pods()                          # {"imagenet-worker-0": "Running", ...}
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import WRITES, Api, Fault
from tidewater.contract.controller_program import Quota
from tidewater.controller.act import stamp
from tidewater.controller.cluster.client import Manifest, Ref
from tidewater.controller.cluster.fence import Fence, Fenced
from tidewater.controller.loop import Controller
from tidewater.controller.observe.events import Recorder
from tidewater.controller.observe.log import Log
from tidewater.controller.observe.metrics import Metrics
from tidewater.controller.options import Options
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import EVENTS, NODES, PODS, SERVICES

STEP_SECONDS = 0.5
SETTLE_SECONDS = 30.0
NODE = "node-0"


class Replica:
    """A process that runs the controller and is the leader."""

    def __init__(self, api: Api, fault: Fault = lambda call, moment: None, options: Options | None = None) -> None:
        self.client = api.client(fault)
        self.fence = Fence(virtual.seconds)
        self.fence.open_until(float("inf"))
        self.output = io.StringIO()
        cluster = Fenced(self.client, self.fence)
        self.controller = Controller(
            cluster,
            options or Options(),
            recorder=Recorder(cluster, "controller-0", now=virtual.now),
            log=Log("controller-0", level="debug", stream=self.output),
            metrics=Metrics(),
            now=virtual.now,
        )
        self.task = asyncio.create_task(self.controller.run())

    async def stop(self) -> None:
        """End the process; it may have died before."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class World:
    """An API server, nodes, and the programs that act on them.

    Args:
        rooms: Pods that can run at the same time.
        fixed_nodes: Whether the controller knows that no nodes come.
        taints_nodes: Whether it taints nodes on which devices fail.
        quotas: Of namespaces that lend workers to each other.
    """

    def __init__(
        self,
        rooms: int = 100,
        *,
        fixed_nodes: bool = False,
        taints_nodes: bool = False,
        quotas: Mapping[str, Quota] | None = None,
    ) -> None:
        self.api = Api()
        self.rooms = rooms
        self.options = Options(fixed_nodes=fixed_nodes, taints_nodes=taints_nodes, quotas=quotas or {})
        self.lingering = False  # whether pods that are deleted don't end yet
        self.most: Counter[str] = Counter()
        self.replicas: list[Replica] = []
        self.add_node(NODE)
        self._nodes = asyncio.create_task(self._run_nodes())

    @classmethod
    async def running(cls, **spec: Any) -> World:
        """Return a cluster with a controller that has given a job its pods; `spec` adds fields to the job's."""
        world = cls()
        world.start()
        world.apply(jobs.manifest(**spec))
        await world.settle()
        return world

    def start(self, fault: Fault = lambda call, moment: None) -> Replica:
        """Start a replica of the controller that leads."""
        self.replicas.append(Replica(self.api, fault, self.options))
        return self.replicas[-1]

    def add_node(self, name: str) -> None:
        """Add a node that is ready."""
        status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": str(self.rooms)}}
        self.api.create(NODES, {"metadata": {"name": name}, "spec": {}, "status": status})

    def apply(self, manifest: Manifest) -> None:
        """Create a job."""
        self.api.create(JOBS, manifest)

    def edit(self, name: str = "imagenet", **spec: Any) -> None:
        """Change fields of a job's spec."""
        self.api.patch(Ref(JOBS, jobs.NAMESPACE, name), {"spec": spec})

    def scale(self, replicas: int, name: str = "imagenet") -> None:
        """Change the number of workers that is wanted."""
        self.edit(name, replicaSpecs={names.WORKER: {"replicas": replicas}})

    def delete(self, name: str = "imagenet") -> None:
        """Delete a job."""
        self.api.delete(Ref(JOBS, jobs.NAMESPACE, name))

    def kill(self, pod: str) -> None:
        """Delete a pod."""
        self.api.delete(Ref(PODS, jobs.NAMESPACE, pod))

    def exit(self, pod: str, code: int, reason: str = "Error") -> None:
        """End the container of a pod."""
        terminated = {"exitCode": code, "reason": reason, "finishedAt": stamp(virtual.now())}
        container = {"name": names.WORKER_CONTAINER, "restartCount": 0, "state": {"terminated": terminated}}
        phase = "Succeeded" if code == 0 else "Failed"
        self._set_status(pod, {"phase": phase, "containerStatuses": [container]})

    def evict(self, pod: str) -> None:
        """Evict a pod, as a kubelet does when its node runs out of memory: there is no status of its containers."""
        self._set_status(pod, {"phase": "Failed", "reason": "Evicted", "containerStatuses": None})

    async def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Let everybody act."""
        await asyncio.sleep(seconds)

    async def until(self, holds: Callable[[], bool], seconds: float = 600.0) -> None:
        """Wait until something holds.

        Raises:
            TimeoutError: It does not within `seconds`.
        """
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(STEP_SECONDS / 5)

    def job(self, name: str = "imagenet") -> Manifest:
        """Return a job."""
        return self.api.get(JOBS, jobs.NAMESPACE, name)

    def status(self, name: str = "imagenet") -> Manifest:
        """Return a job's status."""
        found: Manifest = self.job(name).get("status", {})
        return found

    def conditions(self, name: str = "imagenet") -> dict[str, str]:
        """Return the conditions of a job that are true, with their reasons."""
        found = self.status(name).get("conditions", [])
        return {each["type"]: each["reason"] for each in found if each["status"] == "True"}

    def pods(self) -> dict[str, str]:
        """Return the phases of all pods that are not being deleted."""
        found = [pod for pod in self.api.all(PODS) if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}

    def uids(self) -> dict[str, str]:
        """Return the uids of all pods."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.api.all(PODS)}

    def events(self, reason: str) -> list[str]:
        """Return the messages of the events with a reason."""
        return [each["message"] for each in self.api.all(EVENTS) if each["reason"] == reason]

    def writes(self) -> Counter[str]:
        """Return the numbers of writes so far, by verb and kind."""
        return Counter(f"{call.verb} {call.kind.plural}" for call in self.api.calls if call.verb in WRITES)

    def orphans(self) -> list[str]:
        """Return the pods and services with a job that does not exist."""
        alive = {job["metadata"]["uid"] for job in self.api.all(JOBS)}
        owned = [*self.api.all(PODS), *self.api.all(SERVICES)]
        return [
            each["metadata"]["name"]
            for each in owned
            if not any(owner["uid"] in alive for owner in each["metadata"].get("ownerReferences", ()))
        ]

    def _set_status(self, pod: str, status: Manifest) -> None:
        self.api.patch(Ref(PODS, jobs.NAMESPACE, pod), {"status": status}, "status")

    async def _run_nodes(self) -> None:
        """Bind, start and end pods, for ever."""
        seen = 0
        while True:
            await self.api.change_after(seen)
            await asyncio.sleep(STEP_SECONDS - virtual.seconds() % STEP_SECONDS)
            seen = 0 if self.lingering else self.api.version
            pods = self.api.all(PODS)
            ending = [each for each in pods if "deletionTimestamp" in each["metadata"]]
            for pod in ending[: 0 if self.lingering else None]:
                self.api.delete(_ref(pod), grace=0)
            alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            self._note(alive)
            busy = sum(pod["status"]["phase"] == "Running" for pod in alive)
            for pod in [each for each in alive if each["status"]["phase"] == "Pending"]:
                self._start(pod, room=busy < self.rooms)
                busy += 1

    def _start(self, pod: Manifest, *, room: bool) -> None:
        if room:
            self.api.patch(_ref(pod), {"spec": {"nodeName": NODE}})
            self.api.patch(_ref(pod), {"status": {"phase": "Running", "conditions": []}}, "status")
        elif not pod["status"].get("conditions"):
            since = stamp(virtual.now())
            unmet = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
            self.api.patch(_ref(pod), {"status": {"conditions": [unmet]}}, "status")

    def _note(self, pods: list[Manifest]) -> None:
        """Note the largest numbers of pods that the jobs have had, without those that failed."""
        found = Counter(
            pod["metadata"]["labels"][names.LABEL_JOB_NAME] for pod in pods if pod["status"].get("phase") != "Failed"
        )
        for job, count in found.items():
            self.most[job] = max(self.most[job], count)


def _ref(pod: Manifest) -> Ref:
    return Ref(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])
