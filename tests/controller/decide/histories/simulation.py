"""A small cluster in memory: it carries out decisions as the API server, the scheduler and the kubelets would.

It keeps what the decisions may rely on: names are unique, deletions carry a uid, a pod that runs ends only after a
while, one that has ended or has no node goes at once, and a lost node is silent. Each decision is checked
against the promises in `promises`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tests.controller.decide.histories import promises
from tests.controller.decide.world import NOW
from tidewater.contract.exit_codes import DEVICE_FAILED
from tidewater.controller.decide.actions import (
    Action,
    CreatePod,
    CreateService,
    Decision,
    DeleteJob,
    DeletePod,
    Emit,
    TaintNode,
    reserving,
    status_comes_first,
)
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, JobView, NodeView, PodView, is_finished
from tidewater.controller.decide.queue import Site, admit, demand
from tidewater.controller.room.packing import Held, Room
from tidewater.controller.room.placement import Node
from tidewater.elasticjob.choices import PodNames
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import Status

ENDED = ("Succeeded", "Failed")


class Stopped(Exception):
    """The controller was stopped before the next action."""


@dataclass
class Simulation:
    """Jobs, their pods, and nodes with room for some pods each."""

    jobs: dict[str, ElasticJob]
    rooms: dict[str, int]
    nodes: dict[str, NodeView]
    pods: dict[str, dict[str, PodView]] = field(default_factory=dict)
    services: set[str] = field(default_factory=set)
    admissions: Mapping[tuple[str, str], Admission] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    device_failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By job and node: pods that ended there by an error of a device."""
    given: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """By job: the types and numbers of pods that no other pod may get."""
    now: datetime = NOW
    made: int = 0
    checked: bool = True
    fixed: bool = False
    """Whether the controller knows that no node comes for pods that wait."""

    @classmethod
    def of(cls, jobs: Iterable[ElasticJob], rooms: Mapping[str, int]) -> Simulation:
        return cls(
            jobs={job.name: job for job in jobs}, rooms=dict(rooms), nodes={name: NodeView(name=name) for name in rooms}
        )

    def observe(self, name: str) -> JobView:
        job = self.jobs[name]
        mine = self.pods.get(name, {})
        others = (pod for other, pods in self.pods.items() if other != name for pod in pods.values())
        return JobView(
            job=job,
            pods=tuple(mine.values()),
            nodes=self.nodes,
            services=frozenset(self.services),
            fixed_nodes=self.fixed,
            taints_nodes=len(self.rooms) % 2 == 0,
            admission=self.admissions.get((job.namespace, job.name), Admission.FREE),
            waiting_cores=sum(pod.unschedulable_since is not None and pod.index == 0 for pod in others),
            template_hashes=dict.fromkeys(job.spec.replica_specs, self.hashes.get(name, "first")),
        )

    def reconcile(self, name: str, stop_after: int | None = None) -> Decision | None:
        """Decide about a job and carry it out, perhaps only in part; return the decision if there was one."""
        if name not in self.jobs:
            return None
        view = self.observe(name)
        decision = decide(view, self.now)
        if self.checked:
            promises.check(view, decision, self.now)
        try:
            self.carry_out(name, decision, stop_after)
        except Stopped:
            return decision
        if self.checked and name in self.jobs:
            promises.check_again(view, decision, decide(self.observe(name), self.now))
        return decision

    def carry_out(self, name: str, decision: Decision, stop_after: int | None = None) -> None:
        old, new = self.jobs[name].status, decision.status
        steps: list[Action | Status] = list(decision.actions)
        if status_comes_first(old, new):
            steps.insert(0, new)
        else:
            steps = [reserving(old, decision), *steps, new]
        for number, step in enumerate(steps):
            if number == stop_after:
                raise Stopped
            self.do(name, step)

    def do(self, name: str, step: Action | Status) -> None:
        self.pods.setdefault(name, {})
        match step:
            case Status():
                if name in self.jobs:
                    self.jobs[name] = replace(self.jobs[name], status=step)
            case CreateService():
                self.services.add(name)
            case CreatePod():
                self.create(name, step)
            case DeletePod(pod_name, uid, _, grace):
                self.delete(name, pod_name, uid, at_once=grace == 0)
            case TaintNode(node, _):
                self.nodes[node] = replace(self.nodes[node], tainted=True)
            case DeleteJob():
                del self.jobs[name], self.pods[name]
            case Emit():
                pass

    def create(self, name: str, which: CreatePod) -> None:
        job, given = self.jobs[name], self.given.setdefault(name, set())
        pod_name = job.pod_name(which.type, which.index)
        assert pod_name not in self.pods[name], f"{pod_name} exists"
        if job.spec.replica_specs[which.type].pod_names is PodNames.SUCCESSIVE:
            assert (which.type, which.index) not in given, f"{pod_name} is made twice"
        completed, failed = promises.recorded(job.status, which.type)
        number = which.index // job.spec.pods_each(which.type)
        assert number not in completed | failed, f"{pod_name} has ended for good"
        given.add((which.type, which.index))
        self.made += 1
        self.pods[name][pod_name] = PodView(
            name=pod_name,
            uid=f"{pod_name}.{self.made}",
            type=which.type,
            index=which.index,
            phase="Pending",
            core=which.core,
            job_restarts=which.job_restarts,
            created=self.now.replace(microsecond=0),
            template_hash=self.hashes.get(name, "first"),
        )

    def delete(self, job: str, name: str, uid: str | None = None, *, at_once: bool = False) -> None:
        pod = self.pods[job].get(name)
        if pod is None or uid not in (None, pod.uid):
            return
        if at_once or (pod.phase in ENDED and not pod.lingers) or pod.node is None:
            del self.pods[job][name]
        else:
            self.pods[job][name] = replace(pod, terminating=True)

    def every_pod(self) -> list[tuple[str, PodView]]:
        return [(job, pod) for job, pods in self.pods.items() for pod in pods.values()]

    def put(self, job: str, pod: PodView) -> None:
        self.pods[job][pod.name] = pod

    def reap(self) -> None:
        """End the pods that are being deleted, on nodes that still answer."""
        for job, pod in self.every_pod():
            node = self.nodes.get(pod.node or "")  # None: Kubernetes' garbage collector removes its pods
            if pod.terminating and (node is None or not node.lost):
                del self.pods[job][pod.name]

    def schedule(self) -> None:
        """Give waiting pods rooms, in the order in which they were created."""
        free = dict(self.rooms)
        for _, pod in self.every_pod():
            if pod.node in free and pod.phase not in ENDED:
                free[pod.node] -= 1
        for job, pod in self.every_pod():
            if pod.phase != "Pending" or pod.node is not None or pod.terminating:
                continue
            node = next((name for name, room in free.items() if room > 0 and not self.nodes[name].doomed), None)
            if node is not None:
                free[node] -= 1
                self.put(job, replace(pod, node=node, unschedulable_since=None))
            elif pod.unschedulable_since is None:
                self.put(job, replace(pod, unschedulable_since=self.now.replace(microsecond=0)))

    def start(self) -> None:
        """Start the containers of the pods that have a node."""
        for job, pod in self.every_pod():
            if pod.phase == "Pending" and pod.node in self.nodes and not (pod.terminating or self.nodes[pod.node].lost):
                self.put(job, replace(pod, phase="Running", started=self.now.replace(microsecond=0)))

    def end(
        self, job: str, pod: PodView, exit_code: int | None, disrupted: bool = False, lingers: bool = False
    ) -> None:
        """End the container that trains, and the others unless the pod `lingers`."""
        phase = "Succeeded" if exit_code == 0 else "Failed"
        time = self.now.replace(microsecond=0)
        self.device_failures[job, pod.node or ""] += exit_code == DEVICE_FAILED
        how = replace(pod, phase=phase, exit_code=exit_code, disrupted=disrupted, lingers=lingers)
        self.put(job, replace(how, finished=time))

    def lose(self, node: str) -> None:
        """Cut a node's power. Kubernetes deletes its pods, but no kubelet confirms it."""
        self.nodes[node] = NodeView(name=node, doomed=True, lost=True)
        for job, pod in self.every_pod():
            if pod.node == node:
                self.put(job, replace(pod, terminating=True))

    def pass_over(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def ask_queue(self) -> None:
        self.admissions = admit(self.jobs.values(), self.now, self.site() if self.fixed else None)

    def site(self) -> Site:
        """Return the nodes as the controller sees them; a pod takes nothing of them but its place."""
        nodes = {
            name: Node(not self.nodes[name].doomed, {"pods": room * 1000}, {}) for name, room in self.rooms.items()
        }
        held = (
            Held(
                pod.node,
                {"pods": 1000},
                self.jobs[name].uid if name in self.jobs else "",
                pod.type.lower(),
                0,
                ending=pod.terminating,
                fixed=False,
            )
            for name, pod in self.every_pod()
            if pod.node is not None and pod.phase not in ENDED
        )
        demands = {(job.namespace, job.name): demand(job) for job in self.jobs.values()}
        return Site(Room(nodes, tuple(held)), demands)

    def turn(self) -> list[datetime]:
        """Let everybody act once; return the times at which jobs are to be decided about again."""
        times = []
        for name in list(self.jobs):
            self.ask_queue()
            decision = self.reconcile(name)
            if decision is not None and decision.again is not None:
                times.append(decision.again)
        self.reap()
        self.schedule()
        self.start()
        return times

    def settle(self, horizon: timedelta = timedelta(hours=1), most: int = 400) -> None:
        """Let time pass without faults until nothing changes any more, or until the horizon."""
        end = self.now + horizon
        for _ in range(most):
            before = (dict(self.jobs), {job: dict(pods) for job, pods in self.pods.items()})
            times = self.turn()
            if before != (self.jobs, {job: dict(pods) for job, pods in self.pods.items()}):
                continue
            if not times or min(times) > end:
                return
            self.now = max(self.now, min(times))
        raise AssertionError(f"still changing after {most} turns: {self.jobs}")

    def unfinished(self) -> list[ElasticJob]:
        return [job for job in self.jobs.values() if not is_finished(job.status)]
