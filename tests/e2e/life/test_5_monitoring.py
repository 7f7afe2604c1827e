"""Prometheus watches a training that loses workers: each query of the dashboard and each alert returns what happened.

The Prometheus is a real one, in a pod of the cluster. It is switched on as a user does it, on a stack that trains. Each
test uses the stack as the one before left it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pytest

from tests.e2e.checkout import UP, Checkout, wait_until
from tests.e2e.cluster_faults import frozen, processes_of
from tests.e2e.elasticjob import NAMESPACE, TOLERATION, WORKER_NODES, Job, apply, make_stack, shell_job, shell_pod
from tests.e2e.life.prometheus import picture
from tests.e2e.life.prometheus.server import Prometheus, Series, chosen, shown
from tests.e2e.nodes import WORKERS, no_capacity, nodes, wait_for_surge_count
from tests.e2e.training import count, identities, latest_step, running_workers, wait_for_world
from tidewater.controller.decide.exits import FREE_SIGNALS
from workloads.monitoring import alerts, dashboard
from workloads.monitoring.scrape import Parts

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

JOB = "watched"
SETTINGS = {
    "surgeNodes": "karpenter",
    "capacityType": "SPOT",
    "minWorkers": "1",
    "workers": "2",
    "sizeOwner": "cluster",
    "jobName": JOB,
    "trainerArgs": "--epochs 1500 --min-step-seconds 0.25 --report-every 1 --checkpoint-every 20",
}
PARTS = Parts(karpenter=True)
SURVIVOR, VICTIM = f"{JOB}-worker-0", f"{JOB}-worker-1"
EXPENSIVE_TYPE = "r5.large"
"""A type of the pool that Karpenter doesn't choose by itself, since others cost less."""

PICKY = {"name": "picky", "namespace": NAMESPACE}
"""A pod that only a node of that type has room for."""

FAILED_LAUNCHES = 'karpenter_cloudprovider_errors_total{method="Create",error!="NodeClaimNotFoundError"}'


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Checkout:
    """Return the checkout with two workers, and with monitoring, after the nodes of others have gone."""
    checkout.bring_up({**SETTINGS, "monitoring": "prometheus"})
    wait_for_world(checkout, 2)
    wait_for_surge_count(checkout, 1)
    wait_until("one core node", lambda: len(nodes(checkout, WORKERS)) == 2)
    return checkout


@pytest.fixture(scope="module")
def prometheus(stack: Checkout) -> Prometheus:
    return Prometheus(stack)


@pytest.fixture(scope="module")
def began(stack: Checkout) -> float:
    """Return when the stack was there."""
    assert stack
    return time.time()


def minutes_since(moment: float) -> float:
    return (time.time() - moment) / 60 + 1


def up(prometheus: Prometheus) -> dict[str, int]:
    """Return how many targets of each kind Prometheus reaches."""
    return {each.labels["job"]: int(each.values[0]) for each in prometheus.now("count by (job) (up == 1)")}


def processes(checkout: Checkout, name: str) -> list[int]:
    (pod,) = [each for each in checkout.worker_pods() if each["metadata"]["name"] == name]
    return processes_of(pod)


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended with its parent
            os.kill(pid, signal.SIGKILL)


def kill_worker(checkout: Checkout, name: str) -> None:
    """Kill the processes of a worker: it can't say that it leaves."""
    kill(processes(checkout, name))


def remove_worker(checkout: Checkout, name: str) -> None:
    """Kill the processes of a worker after its pod is gone, so that the controller sees no exit code.

    They are stopped first, because the kubelet sends SIGTERM to the processes of a pod that is gone.
    """
    pids = processes(checkout, name)
    with frozen(pids):
        checkout.run(f"kubectl delete pod -n {checkout.namespace} {name} --grace-period=0 --force")
        kill(pids)


LOSSES = (*[kill_worker] * (FREE_SIGNALS - 1), *[remove_worker] * 4)
"""How each worker is lost: one more than the alert TrainingKeepsLosingWorkers accepts.

After more exits by a signal the controller would wait before it replaces the pod.
"""


def of_cause(cause: str) -> str:
    return f'max(tidewater_recovery_seconds_count{{elasticjob="{JOB}",cause="{cause}"}})'


def test_prometheus_finds_workers_controller_etcd_karpenter_and_all_nodes(prometheus: Prometheus, began: float) -> None:
    expected = {"workers": 2, "controller": 2, "etcd": 1, "nodes": 3, "karpenter": 1}
    wait_until(f"{expected}", lambda: up(prometheus) == expected)
    wait_until("no target that is silent", lambda: prometheus.now("up == 0") == [])


def alerting(prometheus: Prometheus) -> dict[str, str]:
    """Return the state of each alert, by its name."""
    return {name: rule["state"] for name, rule in prometheus.alerts().items()}


def test_without_capacity_training_goes_on_the_job_says_what_it_waits_for_and_failed_launches_are_about_to_fire(
    stack: Checkout, prometheus: Prometheus
) -> None:
    make_stack(stack, SETTINGS)  # and the namespace of other pods
    job = Job(stack.path, JOB, stack.namespace)
    before, step = identities(stack), latest_step(stack)
    picky = shell_pod("sleep 1h") | {
        "nodeSelector": {**WORKER_NODES, "node.kubernetes.io/instance-type": EXPENSIVE_TYPE},
        "tolerations": [TOLERATION],
    }
    with no_capacity(stack, "*"):
        # Prometheus sees no increase in a counter that begins with 1, and Karpenter tries no offering again for three
        # minutes: the first failed launch is of one type, and the second of the others.
        apply(stack, {"apiVersion": "v1", "kind": "Pod", "metadata": PICKY, "spec": picky})
        wait_until("a failed launch", lambda: prometheus.now(FAILED_LAUNCHES))
        job.scale(3)
        reason = "InsufficientInstanceCapacity"
        wait_until(
            "kubectl to show that EC2 has no capacity",
            lambda: reason in stack.run(f"kubectl get ej -n {stack.namespace}").text,
        )
        wait_until("the condition to say it", lambda: reason in job.condition("Running")["message"])
        assert job.condition("Running")["status"] == "True"
        assert identities(stack) == before
        wait_until("more steps", lambda: latest_step(stack) > step + 10)
        wait_until("failed launches", lambda: alerting(prometheus)["NodesDoNotStart"] == "pending")
        job.scale(2)
        stack.run(f"kubectl delete pod -n {PICKY['namespace']} {PICKY['name']}")


def told(checkout: Checkout) -> Counter[str]:
    """Return how often each cause has changed the membership, as the survivor's own log says."""
    lines = checkout.logs(SURVIVOR)
    return Counter(line["cause"] for line in lines if line.get("event") in ("recovered", "resized"))


def test_every_lost_worker_is_counted_once_with_its_cause(stack: Checkout, prometheus: Prometheus) -> None:
    survivor, before = identities(stack)[SURVIVOR], told(stack)
    for lose in LOSSES:
        uid = identities(stack)[VICTIM]
        lose(stack, VICTIM)
        wait_until("another worker", lambda uid=uid: identities(stack).get(VICTIM, uid) != uid)  # type: ignore[misc]
        wait_for_world(stack, 2)
    assert identities(stack)[SURVIVOR] == survivor
    # On a busy machine a worker that stands still for seconds is lost too.
    assert told(stack)["lost"] - before["lost"] >= len(LOSSES)
    for cause in ("lost", "joined"):
        wait_until(
            f"what is told of {cause}",
            lambda cause=cause: prometheus.number(of_cause(cause)) == told(stack)[cause],  # type: ignore[misc]
        )


def test_a_worker_that_leaves_is_told_from_one_that_is_lost(stack: Checkout, prometheus: Prometheus) -> None:
    before = told(stack)
    stack.run(f"kubectl delete pod -n {stack.namespace} {VICTIM}")
    wait_until("one that left", lambda: told(stack)["left"] > before["left"])
    wait_until("its counter", lambda: prometheus.number(of_cause("left")) == told(stack)["left"])
    wait_for_world(stack, 2)
    wait_until("no other loss", lambda: prometheus.number(of_cause("lost")) == told(stack)["lost"])


Check = Callable[[Mapping[str, Series]], bool]


def _between(low: float, high: float, *names: str) -> Check:
    """Return a check of the last values: each of these series has one, between the limits."""
    return lambda found: all(name in found and low < found[name].values[-1] <= high for name in names)


def _reaches(low: float, *names: str) -> Check:
    """Return a check of all values: each of these series has been this high once."""
    return lambda found: all(name in found and max(found[name].values) >= low for name in names)


def _since_the_first_step(world_size: Series) -> list[float]:
    """Return the values without the first ones: a worker that Prometheus reaches before its first step says 0."""
    return list(itertools.dropwhile(lambda value: value == 0, world_size.values)) or [0]


def _each(number: int, low: float) -> Check:
    """Return a check of all series, of so many nodes: more if Karpenter has replaced one after its worker was lost."""
    return lambda found: len(found) >= number and all(max(each.values) > low for each in found.values())


WHAT_HAPPENED: dict[str, Check] = {
    "World size": _between(1, 2, ""),
    "Goodput": lambda found: all(
        name in ("", "goodput") and 0.3 < max(series.values) <= 1 for name, series in found.items()
    ),
    "Samples/s": lambda found: all(max(series.values) > 10 for series in found.values()),
    "Step": _reaches(50, ""),
    # A worker that was lost is reached until Prometheus notices, at the same time as its replacement.
    "Workers": lambda found: min(_since_the_first_step(found["world size"])) >= 1 and 2 in found["reached"].values,
    "Recoveries by cause": _reaches(1, "lost", "left", "joined"),
    "Loss": _between(0, 10, "loss"),
    "Time of a step": _reaches(0.001, "median", "95 %"),
    "Time of a recovery": _reaches(0.001, "lost", "joined"),
    "Checkpoints in the last hour": lambda found: found["written"].values[-1] > 0 == found["failed"].values[-1],
    "Steps given up, workers that drifted, GPUs left out": lambda found: (
        found["steps given up"].values[-1] > 0 and found["drifts"].values[-1] == 0
    ),
    "Time of waiting for others": lambda found: all(0 <= max(series.values) <= 1 for series in found.values()),
    # Both are 0 unless the machine was too busy: then a worker may have been slow.
    "Straggler": bool,
    "No step": lambda found: all(max(series.values) < 300 for series in found.values()),
    "Jobs by state": _reaches(1, "Running", "Failed"),
    "Alerts": _reaches(1, "TrainingKeepsLosingWorkers", "ElasticJobFailed"),
    "etcd: time of a write": _reaches(1e-6, "99 %"),
    "Nodes": lambda found: [found[role].values[-1] for role in ("system", "worker")] == [1, 2],
    "CPUs in use": _each(3, 0),
    "Memory in use": _each(3, 2**20),
    "Nodes that Karpenter has started and ended": _reaches(1, "started"),
}
"""What each panel shows after these tests, by its title."""

FIRING = {"TrainingKeepsLosingWorkers", "ElasticJobFailed"}
ANY = {"TrainingGoodputLow", "TrainingWorkerSilent", "ElasticJobWaits", "NodesDoNotStart"}
"""Whether these have begun depends on how long a worker needed to start, and on when Prometheus looked. The last one
has been pending, and ends ten minutes after the launches that failed."""


def test_what_lasts_too_long_is_about_to_fire_and_what_has_happened_fires(
    stack: Checkout, prometheus: Prometheus
) -> None:
    apply(stack, shell_job("broken", "exit 7"))
    Job(stack.path, "broken", NAMESPACE).await_condition("Failed")

    def lasting() -> dict[str, str]:
        found = alerting(prometheus)
        return {name: state for name, state in found.items() if state != "inactive" and name not in ANY}

    rules = prometheus.alerts()
    assert rules.keys() == {each.name for group in alerts.chosen(PARTS).values() for each in group}
    assert {name for name, rule in rules.items() if rule["health"] != "ok" or rule.get("lastError")} == set()
    # A target that was too busy to answer once is pending for a moment.
    expected = dict.fromkeys(FIRING, "firing")
    wait_until(f"{expected}", lambda: lasting() == expected)
    stack.run("kubectl scale -n tidewater-system deployment/tidewater-controller --replicas=0")
    wait_until("a missing controller", lambda: alerting(prometheus)["ElasticJobControllerGone"] == "pending")
    stack.run("kubectl scale -n tidewater-system deployment/tidewater-controller --replicas=2")


def test_every_panel_of_the_dashboard_shows_what_happened(
    stack: Checkout, prometheus: Prometheus, began: float
) -> None:
    panels = [panel for _, row in dashboard.rows(PARTS) for panel in row]
    assert {panel.title for panel in panels} == WHAT_HAPPENED.keys()
    choice = {"namespace": stack.namespace, "job": JOB}
    found = [(panel, shown(prometheus, panel, **choice, minutes=minutes_since(began))) for panel in panels]
    picture.draw(found, stack.path / "monitoring.png")
    wrong = {panel.title: series for panel, series in found if not series or not WHAT_HAPPENED[panel.title](series)}
    assert wrong == {}
    step = prometheus.number(chosen(f"max(tidewater_step{dashboard.SELECTED})", **choice))
    assert step is not None
    assert step <= latest_step(stack)


def test_a_person_can_choose_the_job(stack: Checkout, prometheus: Prometheus) -> None:
    match = {"match[]": f'tidewater_committed_steps_total{{namespace="{stack.namespace}"}}'}
    assert prometheus.ask("label/namespace/values", **{"match[]": "tidewater_committed_steps_total"}) == [
        stack.namespace
    ]
    assert prometheus.ask("label/elasticjob/values", **match) == [JOB]


def test_without_monitoring_prometheus_is_gone_and_training_goes_on(stack: Checkout) -> None:
    processes, step = identities(stack), latest_step(stack)
    stack.run(f"pulumi config set monitoring none && {UP}")
    assert stack.run("kubectl get namespace tidewater-monitoring", expect=None).status != 0
    assert identities(stack) == processes
    wait_until("another step", lambda: latest_step(stack) > step)
    assert count(stack.logs(SURVIVOR), "drifted") == 0
    assert len(running_workers(stack)) == 2
