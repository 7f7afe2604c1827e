"""Random jobs, random states of their pods, and random disturbances of a simulated cluster, each from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.controller.decide.histories.simulation import ENDED, Simulation
from tests.controller.decide.world import ago
from tidewater.contract.exit_codes import DEVICE_FAILED
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, JobView, NodeView, PodView, is_finished
from tidewater.controller.sharing.shares import Share
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import CleanPodPolicy, Launcher, PodNames, RestartPolicy, RestartScope, SuccessPolicy
from tidewater.elasticjob.model import ElasticJob, JobSpec, ReplicaSpec, SchedulingPolicy
from tidewater.elasticjob.status import Status

EXIT_CODES = (1, 2, DEVICE_FAILED, 137, 138, 143, None)


def random_job(random: Random, name: str = "j", queue: str | None = None, each: int = 1) -> ElasticJob:
    """Return a job with replicas of `each` pods."""
    low = random.randint(1, 3)
    high = low + random.randint(0, 4)
    job = ElasticJob(
        name=name,
        namespace="n",
        uid=name,
        generation=1,
        created=ago(random.randint(0, 1000)),
        spec=JobSpec(
            rdzv_endpoint="etcd:2379",
            replica_specs=_replicas(random, random.randint(low, high)),
            min_replicas=low,
            max_replicas=high,
            success_policy=random.choice(list(SuccessPolicy)),
            restart_scope=random.choice((RestartScope.POD, RestartScope.POD, RestartScope.JOB)),
            clean_pod_policy=random.choice(list(CleanPodPolicy)),
            ttl_seconds_after_finished=random.choice((None, None, 0, 100)),
            active_deadline_seconds=random.choice((None, None, None, 5000)),
            backoff_limit=random.choice((0, 3, 20, 20)),
            scheduling_policy=SchedulingPolicy(queue=queue, priority=random.randint(0, 2)),
            **_scaling(random, low, high),
        ),
    )
    return job if each == 1 else in_parts(job, each)


def in_parts(job: ElasticJob, each: int) -> ElasticJob:
    """Return the job with so many pods in each replica."""
    types = {**job.spec.replica_specs, names.WORKER: replace(job.spec.worker, pod_names=PodNames.INDEXED)}
    spec = replace(job.spec, replica_specs=types, workers_per_replica=each, launcher=Launcher.TIDEWATER)
    return replace(job, spec=spec)


def _replicas(random: Random, replicas: int) -> dict[str, ReplicaSpec]:
    def spec(replicas: int, naming: PodNames, low: int | None = None) -> ReplicaSpec:
        policy = random.choice((RestartPolicy.EXIT_CODE, *RestartPolicy))
        return ReplicaSpec(replicas=replicas, min_replicas=low, restart_policy=policy, pod_names=naming, template={})

    several = (PodNames.INDEXED, PodNames.SUCCESSIVE)
    types = {names.WORKER: spec(replicas, random.choice(several))}
    if random.random() < 0.2:
        types[names.MASTER] = spec(1, random.choice(list(PodNames)))
    if random.random() < 0.2:
        types["PS"] = spec(2, random.choice(several), low=1)
    return types


def _scaling(random: Random, low: int, high: int) -> dict[str, Any]:
    sizes: dict[str, Any] = {"autoscale": random.random() < 0.3, "snooze_seconds": random.choice((10, 60))}
    kind = random.random()
    if kind < 0.2:
        sizes["sizes"] = tuple(size for size in range(low, high + 1) if random.random() < 0.5)
    elif kind < 0.4:
        sizes["size_step"] = random.randint(1, 3)
    return sizes


def random_view(random: Random, each: int = 1) -> JobView:
    """Return a job in a state that need not be the outcome of any history."""
    job = random_job(random, queue=random.choice((None, None, "q")), each=each)
    nodes = {name: random_node(random, name) for name in "abcd"[: random.randint(0, 4)]}
    view = JobView(
        job=job,
        pods=random_pods(random, job),
        nodes=nodes,
        services=frozenset({"j"} if random.random() < 0.5 else ()),
        admission=random.choice(list(Admission)) if job.spec.scheduling_policy.queue else Admission.FREE,
        waiting_cores=random.choice((0, 0, 0, 1, 3)),
        template_hashes=dict.fromkeys(job.spec.replica_specs, random.choice(("first", "first", "first", "second"))),
        refusal="exceeded quota" if random.random() < 0.1 else "",
        fixed_nodes=len(nodes) > 2,
        taints_nodes=len(nodes) % 2 == 0,
    )
    if random.random() < 0.6:  # a status of an earlier time, when the pods were others
        earlier = replace(view, pods=random_pods(random, job))
        view = replace(view, job=replace(job, status=decide(earlier, ago(random.randint(0, 1000))).status))
    if random.random() < 0.1:
        view = replace(view, job=replace(view.job, spec=replace(view.job.spec, suspend=True)))
    low, high = job.bounds(names.WORKER)
    share = random.choice((None, None, None, Share(0, "waits"), Share(random.randint(low, high), "may have fewer")))
    return replace(view, share=share)


def random_node(random: Random, name: str) -> NodeView:
    """Return a node that is sound, or will go in one of the ways that there are."""
    node = NodeView(name=name, elastic=random.random() < 0.5)
    if random.random() < 0.6:
        return node
    how: dict[str, Any] = random.choice(({}, {"lost": True}, {"cordoned": True}, {"ends": True}))
    return replace(node, doomed=True, **how)


def random_pods(random: Random, job: ElasticJob) -> tuple[PodView, ...]:
    pods = []
    for type in (*job.spec.replica_specs, *(["Gone"] if random.random() < 0.05 else [])):
        for index in random_indices(random, job, type):
            pods.append(random_pod(random, type, index))
            if type in job.spec.replica_specs:
                pods[-1] = replace(pods[-1], name=job.pod_name(type, index))
            if type == names.WORKER and job.spec.workers_per_replica > 1 and len(pods) > 1 and random.random() < 0.7:
                pods[-1] = _like(pods[-2], pods[-1])
    random.shuffle(pods)
    return tuple(pods)


def _like(mate: PodView, pod: PodView) -> PodView:
    """Return a pod in the state of another one, on a node of its own."""
    node = pod.node if mate.node is not None else None
    return replace(mate, name=pod.name, uid=pod.uid, index=pod.index, node=node or mate.node)


def random_indices(random: Random, job: ElasticJob, type: str) -> list[int]:
    """Return the indices of the pods of a type that there are."""
    if type not in job.spec.replica_specs:
        return [0, 1]
    naming, most = job.spec.replica_specs[type].pod_names, (job.bounds(type)[1] + 2) * job.spec.pods_each(type)
    first = random.choice((0, 0, 1, 4)) if naming is PodNames.SUCCESSIVE else 0
    indices = range(1) if naming is PodNames.SINGLE else range(first, first + most)
    if (each := job.spec.pods_each(type)) > 1:
        there = {number for number in range(most // each) if random.random() < 0.8}
        return [index for index in indices if index // each in there and random.random() < 0.9]
    return [index for index in indices if random.random() < 0.7]


def random_pod(random: Random, type: str, index: int) -> PodView:
    phase = random.choice(("Pending", "Running", "Running", "Running", "Succeeded", "Failed", "Unknown"))
    placed = phase != "Pending" or random.random() < 0.5
    name = names.pod_name("j", type, index)
    made = PodView(
        name=name,
        uid=f"{name}.{random.randint(0, 1)}",
        type=type,
        index=index,
        phase=phase,
        terminating=random.random() < 0.1,
        core=random.random() < 0.4,
        job_restarts=random.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
        node=random.choice("abcd") if placed else None,
        unschedulable_since=None if placed or random.random() < 0.2 else ago(random.randint(0, 200)),
        lingers=phase in ENDED and placed and random.random() < 0.2,
        disrupted=random.random() < 0.1,
        exit_code={"Succeeded": 0, "Failed": random.choice(EXIT_CODES)}.get(phase),
        oom_killed=random.random() < 0.05,
        restarts=random.choice((0, 0, 0, 0, 1, 3)),
        restarted_after=random.choice((None, 0, 1)),
        created=ago(random.choice((1, 100, 5000))),
        started=ago(random.choice((1, 100, 5000))) if placed else None,
        finished=ago(random.choice((0, 20, 400))) if phase in ("Succeeded", "Failed") else None,
        template_hash=random.choice(("", "first", "first", "first", "first", "second")),
        tolerant=random.random() < 0.05,
        patient=random.random() < 0.1,
        unschedulable_reason=random.choice(("", "", "Unauthorized", names.NODE_STARTING)),
        nominated=random.random() < 0.1,
    )
    return replace(made, ready=not made.nominated)  # without a draw of its own: what other seeds show stays


def simulate(view: JobView) -> Simulation:
    """Return a cluster in the state that a view shows."""
    simulation = Simulation.of([view.job], dict.fromkeys(view.nodes, 3))
    simulation.nodes = dict(view.nodes)
    simulation.services = set(view.services)
    simulation.hashes = {"j": view.template_hashes[names.WORKER]}
    simulation.pods = {"j": {pod.name: pod for pod in view.pods}}
    return simulation


def disturb(simulation: Simulation, random: Random) -> None:
    """Let one thing happen to the cluster that no decision asked for."""
    happens, weights = zip(*DISTURBANCES, strict=True)
    random.choices(happens, weights)[0](simulation, random)


def _reconcile(simulation: Simulation, random: Random) -> None:
    if simulation.jobs:
        if random.random() < 0.5:
            simulation.ask_queue()
        stop = random.randint(0, 4) if random.random() < 0.2 else None
        simulation.reconcile(random.choice(list(simulation.jobs)), stop)


def _kubelets(simulation: Simulation, random: Random) -> None:
    for step in random.sample((simulation.reap, simulation.schedule, simulation.start), 3):
        step()


def _end_pod(simulation: Simulation, random: Random) -> None:
    runs = [(job, pod) for job, pod in simulation.every_pod() if pod.phase == "Running"]
    if runs:
        job, pod = random.choice(runs)
        code, disrupted = random.choice(EXIT_CODES), random.random() < 0.2
        simulation.end(job, pod, code, disrupted=disrupted, lingers=random.random() < 0.2)


def _finish_pod(simulation: Simulation, random: Random) -> None:
    runs = [(job, pod) for job, pod in simulation.every_pod() if pod.phase == "Running"]
    if runs:
        simulation.end(*random.choice(runs), 0, lingers=random.random() < 0.2)


def _restart_container(simulation: Simulation, random: Random) -> None:
    runs = [(job, pod) for job, pod in simulation.every_pod() if pod.phase == "Running"]
    if runs:
        job, pod = random.choice(runs)
        simulation.put(job, replace(pod, restarts=pod.restarts + 1))


def _delete_pod(simulation: Simulation, random: Random) -> None:
    if pods := simulation.every_pod():
        job, pod = random.choice(pods)
        simulation.delete(job, pod.name)


def _node(simulation: Simulation, random: Random) -> None:
    node = random.choice(list(simulation.nodes))
    if random.random() < 0.3:
        simulation.lose(node)
    else:
        found = random_node(random, node)
        simulation.nodes[node] = replace(found, lost=False)


def _edit(simulation: Simulation, random: Random) -> None:
    if not simulation.jobs:
        return
    job = random.choice(list(simulation.jobs.values()))
    spec, kind = job.spec, random.random()
    if kind < 0.6:
        size = random.randint(spec.min_replicas or 1, spec.max_replicas or 1)
        worker = replace(spec.worker, replicas=size)
        spec = replace(spec, replica_specs={**spec.replica_specs, names.WORKER: worker})
    elif kind < 0.8:
        spec = replace(spec, suspend=not spec.suspend)
    elif not is_finished(job.status):
        simulation.hashes[job.name] = f"hash-{random.randint(0, 2)}"
    simulation.jobs[job.name] = replace(job, spec=spec, generation=job.generation + (spec is not job.spec))


def _lose_status(simulation: Simulation, random: Random) -> None:
    if simulation.jobs:
        job = random.choice(list(simulation.jobs.values()))
        simulation.jobs[job.name] = replace(job, status=Status())
        simulation.given.pop(job.name, None)  # who removes a status also removes the numbers that pods have had


def _time(simulation: Simulation, random: Random) -> None:
    simulation.pass_over(random.choice((0.3, 1, 12, 61, 400)))


DISTURBANCES: tuple[tuple[Callable[[Simulation, Random], None], float], ...] = (
    (_reconcile, 10),
    (_kubelets, 6),
    (_end_pod, 2),
    (_finish_pod, 0.4),
    (_restart_container, 0.4),
    (_delete_pod, 1),
    (_node, 1.5),
    (_edit, 2),
    (_lose_status, 0.2),
    (_time, 2),
)
