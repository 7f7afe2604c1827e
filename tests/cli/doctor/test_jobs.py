"""Jobs that can't go on are found, with the reason; a surge worker that waits for room is no fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.doctor.places import Surroundings
from tests.cli.top.fakes import forbidden
from tests.cli.top.objects import job, pod, unschedulable
from tidewater.cli.doctor import jobs
from tidewater.cli.doctor.results import Outcome
from tidewater.contract import labels


def service(name: str = "etcd", namespace: str = "training", **own: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": own}
    return {"metadata": metadata, "spec": {"selector": {"app": "etcd"}}}


def endpoints(ready: bool | None, namespace: str = "training") -> dict[str, Any]:
    metadata = {"name": "etcd-1", "namespace": namespace, "labels": {"kubernetes.io/service-name": "etcd"}}
    return {"metadata": metadata, "endpoints": [{"conditions": {} if ready is None else {"ready": ready}}]}


def with_endpoint(endpoint: str, **spec: Any) -> dict[str, Any]:
    made = job()
    made["spec"] |= {"rdzvEndpoint": endpoint, **spec}
    return made


@pytest.mark.parametrize(
    "endpoint",
    [
        "etcd:2379",
        "http://etcd.training:2379",
        "etcd.training.svc.cluster.local:2379",
        "http://etcd.training.svc:2379,http://etcd.training.svc:2380",
    ],
)
def test_the_etcd_of_a_job_must_be_a_service_with_ready_pods(here: Surroundings, endpoint: str) -> None:
    here.cluster.objects["elasticjobs"] = [with_endpoint(endpoint)]
    missing = jobs.etcd(here.place)
    if endpoint != "http://etcd.training:2379":  # this could be a host outside the cluster
        assert (missing.outcome, "no Service training/etcd" in missing.text) == (Outcome.FIX, True)
    here.cluster.objects |= {"services": [service()], "endpointslices": [endpoints(ready=False)]}
    assert "no ready pod" in jobs.etcd(here.place).text
    here.cluster.objects["endpointslices"] = [endpoints(ready=None)]
    assert (jobs.etcd(here.place).outcome, jobs.etcd(here.place).text) == (
        Outcome.FINE,
        "training/etcd: 1 ready endpoint",
    )


@pytest.mark.parametrize(
    ("ready", "text"),
    [
        (2, "has 2 of 3 members ready: after the loss of 1 more no worker can join"),
        (1, "has 1 of 3 members ready, which is no majority: training goes on, but no worker can join"),
    ],
)
def test_members_of_etcd_that_are_down_must_be_fixed(here: Surroundings, ready: int, text: str) -> None:
    template = {"metadata": {"labels": {"app": "etcd", "version": "3"}}}
    members = {"metadata": {"name": "etcd", "namespace": "training"}, "spec": {"replicas": 3, "template": template}}
    here.cluster.objects |= {
        "elasticjobs": [with_endpoint("etcd:2379")],
        "services": [service()],
        "endpointslices": [endpoints(ready=True) for _ in range(ready)],
        "statefulsets": [members],
    }
    found = jobs.etcd(here.place)
    assert (found.outcome, found.text) == (Outcome.FIX, f"job training/digits: its etcd training/etcd {text}")
    here.cluster.refused["statefulsets"] = forbidden("statefulsets")
    here.cluster.objects["endpointslices"] += [endpoints(ready=False)] * (3 - ready)
    assert f"has {ready} of 3 members ready" in jobs.etcd(here.place).text


@pytest.mark.parametrize("endpoint", ["10.0.0.7:2379", "[fd00::7]:2379", "etcd.example.com:2379"])
def test_an_etcd_outside_the_cluster_is_not_checked(here: Surroundings, endpoint: str) -> None:
    here.cluster.objects["elasticjobs"] = [with_endpoint(endpoint)]
    assert jobs.etcd(here.place).outcome is Outcome.SKIPPED


@pytest.mark.parametrize(
    "needless",
    [
        pytest.param(with_endpoint("digits-worker-0:29400", launcher="torchrun", rdzvBackend="c10d"), id="c10d"),
        pytest.param(with_endpoint("nowhere:1", launcher="none"), id="none"),
        pytest.param({**job(state="Succeeded")}, id="ended"),
    ],
)
def test_jobs_that_need_no_etcd_any_more_are_not_asked_for_one(here: Surroundings, needless: dict[str, Any]) -> None:
    here.cluster.objects["elasticjobs"] = [needless]
    assert jobs.etcd(here.place).outcome is Outcome.SKIPPED


def test_without_jobs_the_stacks_own_etcd_is_checked(here: Surroundings) -> None:
    own = {labels.COMPONENT: labels.COMPONENT_ETCD}
    here.cluster.objects["services"] = [service(**own)]
    assert jobs.etcd(here.place).outcome is Outcome.FIX


CREATED = {"type": "Created", "status": "True", "reason": "ElasticJobCreated", "message": "ElasticJob j is created."}


def test_a_core_worker_without_room_stops_the_job_and_a_surge_worker_does_not(here: Surroundings) -> None:
    here.cluster.objects |= {"elasticjobs": [job()], "pods": [pod(0), unschedulable(1)]}
    surge = jobs.waiting(here.place)
    assert (surge.outcome, "1 Insufficient cpu" in surge.text) == (Outcome.NOTE, True)
    here.cluster.objects["pods"] = [unschedulable(0), unschedulable(1)]
    core = jobs.waiting(here.place)
    assert core.outcome is Outcome.FIX
    assert "tidewater job scale digits" in core.remedy


def test_a_worker_for_which_no_node_comes_is_told_in_karpenters_words_with_their_remedy(here: Surroundings) -> None:
    said = "1 of 2 workers run: 1 found no room (VcpuLimitExceeded). Karpenter: VcpuLimitExceeded: limit of 8."
    told = {"type": "Running", "status": "True", "lastTransitionTime": "2", "message": said}
    waits = job(waiting="VcpuLimitExceeded", conditions=[told])
    here.cluster.objects |= {"elasticjobs": [waits], "pods": [pod(0), unschedulable(1)]}
    found = jobs.waiting(here.place)
    assert found.text == (
        "job training/digits: digits-worker-1 VcpuLimitExceeded: Karpenter: VcpuLimitExceeded: limit of 8."
    )
    assert (found.outcome, "higher quota" in found.remedy) == (Outcome.NOTE, True)


def test_what_is_wrong_with_karpenters_set_up_is_not_to_be_fixed_in_the_job(here: Surroundings) -> None:
    said = "0 of 2 workers run: 2 found no room (AMINotFound). Karpenter: EC2NodeClass workers isn't ready: no AMI."
    told = {"type": "Running", "status": "False", "message": said}
    waits = job(waiting="AMINotFound", conditions=[CREATED, told])
    here.cluster.objects |= {"elasticjobs": [waits], "pods": [unschedulable(0), unschedulable(1)]}
    found = jobs.waiting(here.place)
    assert (found.outcome, "ec2nodeclasses" in found.remedy) == (Outcome.FIX, True)


def test_a_core_worker_whose_node_starts_has_nothing_to_be_fixed(here: Surroundings) -> None:
    here.cluster.objects |= {"elasticjobs": [job(waiting="NodeStarting")], "pods": [unschedulable(0)]}
    found = jobs.waiting(here.place)
    assert (found.outcome, "kubectl describe nodeclaims" in found.remedy) == (Outcome.NOTE, True)


def test_a_pod_that_was_made_just_now_may_wait(here: Surroundings) -> None:
    young = unschedulable(0)
    young["metadata"]["creationTimestamp"] = "2026-11-23T10:11:30Z"
    here.cluster.objects |= {"elasticjobs": [job()], "pods": [young]}
    assert jobs.waiting(here.place).outcome is Outcome.FINE


def test_an_image_that_cannot_be_pulled_is_told_with_the_words_of_the_kubelet(here: Surroundings) -> None:
    waits = {"name": "w", "state": {"waiting": {"reason": "ImagePullBackOff", "message": 'image "x" not found'}}}
    here.cluster.objects |= {
        "elasticjobs": [job()],
        "pods": [pod(0, phase="Pending", containerStatuses=[waits])],
    }
    found = jobs.waiting(here.place)
    assert (found.outcome, 'image "x" not found' in found.text) == (Outcome.FIX, True)
    assert "imagePullSecrets" in found.remedy


def test_a_queued_and_an_invalid_job_say_why(here: Surroundings) -> None:
    waits = {"type": "Running", "status": "False", "reason": "ElasticJobQueued", "message": "2 jobs are before it"}
    queued = job("queued", state="Queued", conditions=[CREATED, waits])
    unread = {"type": "Created", "status": "False", "reason": "ElasticJobInvalid", "message": "spec.sizes: 9 is wrong"}
    invalid = job("invalid", conditions=[unread])
    here.cluster.objects["elasticjobs"] = [queued]
    assert (jobs.waiting(here.place).outcome, "2 jobs are before it" in jobs.waiting(here.place).text) == (
        Outcome.NOTE,
        True,
    )
    here.cluster.objects["elasticjobs"] = [queued, invalid]
    assert jobs.waiting(here.place).outcome is Outcome.FIX
    assert "spec.sizes: 9" in jobs.waiting(here.place).text


@pytest.mark.parametrize(("state", "outcome"), [("Created", Outcome.FIX), ("Running", Outcome.NOTE)])
def test_a_job_with_pods_that_cannot_be_created_says_why(here: Surroundings, state: str, outcome: Outcome) -> None:
    message = "The API server refuses a pod: failed calling webhook pods.example.com"
    told = {"type": "Running", "status": "False", "reason": "ElasticJobCreated", "message": message}
    here.cluster.objects["elasticjobs"] = [job(state=state, waiting="FailedCreatePod", conditions=[CREATED, told])]
    found = jobs.waiting(here.place)
    assert (found.outcome, "failed calling webhook" in found.text) == (outcome, True)
    assert "kubectl describe quota -n training" in found.remedy


def test_who_may_not_read_all_namespaces_sees_the_jobs_of_the_own_one(here: Surroundings) -> None:
    here.cluster.objects["elasticjobs"] = [job(), job("far", namespace="prod")]
    assert jobs.waiting(here.place).text == "2 jobs in progress, no pod waits"
    here.cluster.refused["*/elasticjobs"] = forbidden("elasticjobs")
    assert jobs.waiting(here.place).text == "1 job in progress, no pod waits"


def test_a_node_on_which_devices_fail_is_to_be_replaced(here: Surroundings) -> None:
    failing = {"type": "DeviceFailing", "status": "True", "message": "Workers have ended …: 3 on node a."}
    here.cluster.objects |= {"elasticjobs": [job(conditions=[failing])], "pods": [pod(0), pod(1)]}
    found = jobs.waiting(here.place)
    assert (found.outcome, found.text) == (Outcome.FIX, f"job training/digits: {failing['message']}")
    assert "kubectl cordon" in found.remedy
    failing["status"] = "False"
    assert jobs.waiting(here.place).outcome is Outcome.FINE
