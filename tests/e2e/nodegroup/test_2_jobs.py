"""What becomes of jobs of every kind: failures, deadlines, success, suspension, queues, autoscalers.

The jobs are small shell scripts, applied together at the beginning, so that the tests wait for them at the same time.
This module uses the stack of the modules before it. Without them, it makes the stack.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import NAMESPACE, NODE_GROUP, Job, Object, apply, make_stack, shell_job, shell_pod
from tests.e2e.training import count, identities, is_running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SLEEP = "sleep 1h"
LEAVES_WHEN_TOLD = "trap 'exit 143' TERM; echo event=ready; while true; do sleep 0.2; done"
WAITS_FOR_OTHERS = "until getent hosts roles-ps-0 roles-ps-1 roles-worker-0 roles-worker-1; do sleep 0.5; done; sleep 3"
SLOTS = "example.com/slots"
"""A resource that nodes have as many of as a test gives them."""


def replicas(count: int, script: str, **container: Any) -> Object:
    """Return the specification of pods of one type that run a bash script."""
    return {"replicas": count, "template": {"spec": shell_pod(script, **container)}}


def rank_0(script: str) -> str:
    """Return a script that runs `script` in the pod with index 0 and sleeps in the others."""
    return f"if [ ${{HOSTNAME##*-}} = 0 ]; then {script}; else {SLEEP}; fi"


def queued(name: str, workers: int) -> Object:
    """Return a job of a queue with workers that need a slot each."""
    worker = replicas(workers, SLEEP, resources={"limits": {SLOTS: "1"}})
    return shell_job(name, replicaSpecs={"Worker": worker}, schedulingPolicy={"queue": "slots"})


def named(spec: Object, names: str, **more: Any) -> Object:
    """Return the specification of pods of one type that are named in another way than by their index."""
    return {**spec, "podNames": names, **more}


REPLICA_ID = "torchx.pytorch.org/replica-id"
RUN = {"name": "RUN", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['tidewater.dev/job-restarts']"}}}
FAILS_IN_THE_FIRST_RUN = f'[ -n "$RUN" ] && exit 0; [ ${{HOSTNAME##*-}} = 1 ] && {{ sleep 3; exit 138; }}; {SLEEP}'
UNKNOWN_CLASS = {"template": {"spec": {**shell_pod(SLEEP), "priorityClassName": "no-such-class"}}}
OLD_ARGUMENTS = ["--nproc_per_node=1", "main.py"]

JOBS = [
    shell_job("permanent", "exit 7"),
    shell_job("retried", "exit 138", backoffLimit=2),
    shell_job("told", LEAVES_WHEN_TOLD, backoffLimit=1),
    shell_job("late", SLEEP, activeDeadlineSeconds=2, cleanPodPolicy="Running"),
    shell_job("brief", "exit 0", ttlSecondsAfterFinished=1),
    shell_job("straggler", replicaSpecs={"Worker": replicas(3, rank_0("exit 0"))}, cleanPodPolicy="Running"),
    shell_job(
        "roles",
        replicaSpecs={"Master": replicas(1, WAITS_FOR_OTHERS), "PS": replicas(2, SLEEP), "Worker": replicas(2, SLEEP)},
    ),
    shell_job("paused", SLEEP, suspend=True),
    shell_job(
        "old",
        replicaSpecs={"Worker": replicas(1, 'echo "$0 $@"; sleep 1h', args=OLD_ARGUMENTS)},
        minReplicas=1,
        maxReplicas=3,
        launcher=None,
    ),
    shell_job("grown", SLEEP, minReplicas=1, maxReplicas=4),
    shell_job("classless", replicaSpecs={"Worker": UNKNOWN_CLASS}),
    shell_job(
        "numbered",
        replicaSpecs={
            "Master": named(replicas(1, SLEEP), "Single"),
            "Worker": named(replicas(2, SLEEP), "Successive", indexLabel=REPLICA_ID),
        },
        minReplicas=1,
    ),
    shell_job(
        "together",
        replicaSpecs={
            "Master": named(replicas(1, "exit 0"), "Single"),
            "Worker": replicas(2, FAILS_IN_THE_FIRST_RUN, env=[RUN]),
        },
        restartScope="Job",
        successPolicy="AllPods",
    ),
]


@pytest.fixture(scope="module")
def cluster(checkout: Checkout) -> Checkout:
    """Return the checkout after all jobs of this module are applied."""
    make_stack(checkout, NODE_GROUP)
    apply(checkout, *JOBS)
    return checkout


def warnings(job: Job) -> list[str]:
    """Return the messages of the warnings about a job."""
    events = job.json(f"kubectl get events -n {job.space} --field-selector involvedObject.name={job.name} -o json")
    return [each["message"] for each in events["items"] if each["type"] == "Warning"]


def await_warning(job: Job, part: str) -> None:
    """Wait for a warning that contains `part`: the controller sends events later than it writes conditions."""
    wait_until(f"a warning with {part!r}", lambda: any(part in each for each in warnings(job)))


def test_an_exit_code_that_is_not_retryable_fails_the_job(cluster: Checkout) -> None:
    job = Job(cluster.path, "permanent")
    assert "permanent-worker-0" in job.await_condition("Failed")["message"]
    await_warning(job, "with code 7")
    assert job.condition("Running").get("status", "False") == "False"
    (pod,) = job.pods()
    assert pod["status"]["phase"] == "Failed"
    assert job.status()["replicaStatuses"]["Worker"]["failed"] == 1


def test_a_retryable_exit_code_is_retried_up_to_the_back_off_limit(cluster: Checkout) -> None:
    job = Job(cluster.path, "retried")
    assert "backoffLimit" in job.await_condition("Failed")["message"]
    assert job.status()["restarts"] == 2


def test_a_worker_that_was_told_to_leave_is_replaced_and_does_not_count(cluster: Checkout) -> None:
    job = Job(cluster.path, "told")
    job.await_active(1)
    before = identities(job)
    wait_until("its trap to be set", lambda: count(job.logs("told-worker-0"), "ready"))
    # kubectl may report an error, because the signal also ends the container in which it runs the command.
    job.run(f"kubectl exec -n {NAMESPACE} told-worker-0 -- kill -TERM 1", expect=None)
    wait_until("another process", lambda: identities(job) not in ({}, before))
    assert identities(job)["told-worker-0"][0] != before["told-worker-0"][0]
    assert job.status().get("restarts", 0) == 0
    assert job.condition("Failed").get("status", "False") == "False"


def test_a_job_fails_at_its_deadline_and_its_workers_end(cluster: Checkout) -> None:
    job = Job(cluster.path, "late")
    assert "activeDeadlineSeconds" in job.await_condition("Failed")["message"]
    assert job.status()["startTime"] <= job.status()["completionTime"]
    wait_until("its worker to end", lambda: not any(map(is_running, job.pods())))


def test_a_finished_job_is_deleted_after_its_time_to_live(cluster: Checkout) -> None:
    cluster.run(f"kubectl wait -n {NAMESPACE} elasticjob/brief --for=delete --timeout=300s")


def test_a_job_has_succeeded_when_rank_0_has(cluster: Checkout) -> None:
    job = Job(cluster.path, "straggler")
    job.await_condition("Succeeded")
    assert job.status()["completionTime"]
    wait_until("the stragglers to go", lambda: len(job.pods()) == 1)  # cleanPodPolicy Running
    assert job.pods()[0]["status"]["phase"] == "Succeeded"


def test_other_replica_types_run_with_the_workers_and_the_master_decides(cluster: Checkout) -> None:
    job = Job(cluster.path, "roles")
    job.await_condition("Succeeded")
    names = {pod["metadata"]["name"] for pod in job.pods()}
    assert names == {"roles-master-0", "roles-ps-0", "roles-ps-1", "roles-worker-0", "roles-worker-1"}


def running_pods(job: Job) -> dict[str, Object]:
    """Return the metadata of the pods that run, by name."""
    return {pod["metadata"]["name"]: pod["metadata"] for pod in job.pods() if is_running(pod)}


def test_a_worker_has_a_successor_with_the_next_number_and_the_only_master_returns_under_its_name(
    cluster: Checkout,
) -> None:
    job = Job(cluster.path, "numbered")
    job.await_active(2)
    job.await_active(1, "Master")
    before = running_pods(job)
    assert sorted(before) == ["numbered-master", "numbered-worker-0", "numbered-worker-1"]
    job.run(f"kubectl delete pod -n {NAMESPACE} numbered-worker-0 numbered-master --wait=false")
    expected = {"numbered-master", "numbered-worker-1", "numbered-worker-2"}

    def replaced() -> dict[str, Object]:
        found = running_pods(job)
        anew = found.get("numbered-master", {}).get("uid") != before["numbered-master"]["uid"]
        return found if set(found) == expected and anew else {}

    after = wait_until("the successor and the master", replaced)
    assert after["numbered-worker-1"]["uid"] == before["numbered-worker-1"]["uid"]
    successor = after["numbered-worker-2"]["labels"]
    assert (successor[REPLICA_ID], successor["tidewater.dev/tier"]) == ("2", "core")
    assert job.status()["replicaStatuses"]["Worker"]["nextIndex"] == 3


def test_a_job_that_restarts_as_a_whole_has_succeeded_when_all_pods_of_one_run_have(cluster: Checkout) -> None:
    job = Job(cluster.path, "together")
    job.await_condition("Succeeded")
    status = job.status()
    assert (status["restarts"], status["jobRestarts"]) == (1, 1)
    pods = {pod["metadata"]["name"]: pod for pod in job.pods()}
    assert sorted(pods) == ["together-master", "together-worker-0", "together-worker-1"]
    for pod in pods.values():
        assert pod["status"]["phase"] == "Succeeded"
        assert pod["metadata"]["annotations"]["tidewater.dev/job-restarts"] == "1"


def test_a_job_that_is_created_suspended_starts_when_it_is_resumed(cluster: Checkout) -> None:
    job = Job(cluster.path, "paused")
    job.await_condition("Suspended")
    assert job.pods() == []
    job.change(suspend=False)
    job.await_condition("Running")
    assert job.condition("Suspended")["status"] == "False"
    job.await_active(1)


def test_the_old_launchers_flags_come_before_the_arguments(cluster: Checkout) -> None:
    job = Job(cluster.path, "old")
    job.await_active(1)
    flags = "--rdzv_backend=etcd --rdzv_endpoint=nowhere:1 --rdzv_id=old --nnodes=1:3"
    said = wait_until("its arguments", lambda: cluster.run(f"kubectl logs -n {NAMESPACE} old-worker-0").text)
    assert said.split() == [*flags.split(), *OLD_ARGUMENTS]


def test_what_only_the_controller_can_see_becomes_a_condition_and_an_event(cluster: Checkout) -> None:
    job = Job(cluster.path, "classless")

    def said() -> bool:
        return any("no-such-class" in each["message"] for each in job.status().get("conditions", []))

    wait_until("a condition with what the API server said", said)
    await_warning(job, "no-such-class")


def test_an_autoscaler_resizes_a_job_by_its_scale_subresource(cluster: Checkout) -> None:
    job = Job(cluster.path, "grown")
    target = {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "name": "grown"}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    # An autoscaler needs no metrics to bring a target to its minimum, and this cluster has none.
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "grown", "namespace": NAMESPACE},
        "spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4, "metrics": [cpu]},
    }
    apply(cluster, autoscaler)
    job.await_active(3)
    group = "/apis/elastic.pytorch.org/v1alpha1"
    shown = job.json(f"kubectl get --raw {group}/namespaces/{NAMESPACE}/elasticjobs/grown/scale")
    assert (shown["spec"]["replicas"], shown["status"]["replicas"]) == (3, 3)
    listed = job.json(f"kubectl get pods -n {NAMESPACE} -l '{shown['status']['selector']}' -o json")["items"]
    assert {pod["metadata"]["name"] for pod in listed} == {pod["metadata"]["name"] for pod in job.pods()}
    job.run(f"kubectl delete -n {NAMESPACE} hpa/grown")


def test_jobs_of_a_queue_start_whole_in_order_and_a_small_one_that_fits_goes_ahead(cluster: Checkout) -> None:
    node = cluster.json("kubectl get nodes -l tidewater.dev/node-role=system -o json")["items"][0]["metadata"]["name"]
    slots = json.dumps({"status": {"capacity": {SLOTS: "3"}}})
    cluster.run(f"kubectl patch node {node} --subresource=status --type=merge -p '{slots}'")
    sizes = {"first": 2, "second": 2, "third": 1}
    first, second, third = (Job(cluster.path, name) for name in sizes)
    apply(cluster, *(queued(name, workers) for name, workers in sizes.items()))
    wait_until("the first one to run whole", lambda: _running(first) == 2)
    # The nodes are fixed, so a job that has no room for all of its workers has none of them.
    wait_until("the second one to wait without pods", lambda: _state(second) == "Queued" and not second.pods())
    wait_until("the small one to go ahead", lambda: _running(third) == 1)
    assert (second.pods(), _running(first)) == ([], 2)
    first.run(f"kubectl delete {first.named} --timeout=300s")
    wait_until("the second one to run whole", lambda: [_running(second), _running(third)] == [2, 1])


def _state(job: Job) -> str:
    return str(job.status().get("state", ""))


def _running(job: Job) -> int:
    return sum(map(is_running, job.pods()))


def test_every_example_is_accepted(cluster: Checkout) -> None:
    for file in ("imagenet", "mnist", "queue", "torchrun"):
        cluster.run(f"kubectl apply --dry-run=server -f examples/elasticjob/{file}.yaml")


def test_the_controller_has_not_restarted(cluster: Checkout) -> None:
    pods = cluster.json("kubectl get pods -A -l app.kubernetes.io/component=controller -o json")["items"]
    assert [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]] == [0, 0]
    cluster.run(f"kubectl delete elasticjobs --all -n {NAMESPACE} --timeout=300s")
