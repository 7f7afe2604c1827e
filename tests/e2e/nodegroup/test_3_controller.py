"""The controller is killed, frozen and cut off while jobs change: no pod is missing, made twice or ended for nothing.

This module uses the stack of the modules before it. Without them, it makes the stack.
"""

from __future__ import annotations

import pytest

from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.cluster_faults import frozen, kill, processes_of, restart_api_server
from tests.e2e.elasticjob import NAMESPACE, NODE_GROUP, Job, Object, apply, make_stack, shell_job
from tests.e2e.training import identities, is_running

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(900)]

MOST = 8


@pytest.fixture(scope="module")
def job(checkout: Checkout) -> Job:
    """Return a job with two workers that run."""
    make_stack(checkout, NODE_GROUP)
    apply(checkout, shell_job("steady", "sleep 1h", minReplicas=1, maxReplicas=MOST))
    found = Job(checkout.path, "steady")
    found.scale(2)
    found.await_active(2)
    return found


def controllers(checkout: Checkout) -> list[Object]:
    """Return the controller's pods that run."""
    pods = checkout.json("kubectl get pods -A -l app.kubernetes.io/component=controller -o json")["items"]
    return [pod for pod in pods if is_running(pod)]


def leader(checkout: Checkout) -> Object | None:
    """Return the controller's pod that holds the Lease; None while none of the running ones does."""
    leases = checkout.json("kubectl get leases -A -o json")["items"]
    holders = {str(lease["spec"].get("holderIdentity", "")).partition("_")[0] for lease in leases}
    return next((pod for pod in controllers(checkout) if pod["metadata"]["name"] in holders), None)


def assert_grows(job: Job, count: int, before: dict[str, tuple[str, int]]) -> None:
    """Assert that the job gets its workers, that those of before go on, and that there are no others."""
    wanted = {f"steady-worker-{index}" for index in range(count)}
    # First the pods: the status may still be that of before, with the same number.
    wait_until(f"{count} workers", lambda: set(identities(job)) == wanted)
    job.await_active(count)
    assert before.items() <= identities(job).items()
    assert {pod["metadata"]["name"] for pod in job.pods()} == wanted
    owners = {owner["uid"] for pod in job.pods() for owner in pod["metadata"]["ownerReferences"]}
    assert owners == {job.read()["metadata"]["uid"]}


def test_the_lease_is_short_enough_for_a_failover_within_fifteen_seconds(job: Job) -> None:
    holder = wait_until("a leader", lambda: leader(job))
    name, place = holder["metadata"]["name"], holder["metadata"]["namespace"]
    leases = [each["spec"] for each in job.json(f"kubectl get leases -n {place} -o json")["items"]]
    (held,) = (each for each in leases if each["holderIdentity"].startswith(name))
    assert held["leaseDurationSeconds"] <= 10


def test_a_frozen_leader_is_replaced_and_does_nothing_when_it_continues(job: Job) -> None:
    before = identities(job)
    old = wait_until("a leader", lambda: leader(job))
    with frozen(processes_of(old)):
        job.scale(4)
        assert_grows(job, 4, before)
        new = wait_until("another leader", lambda: leader(job))
        assert new["metadata"]["name"] != old["metadata"]["name"]
    grown = identities(job)
    wait_until("two controllers", lambda: len(controllers(job)) == 2)
    job.scale(5)
    assert_grows(job, 5, grown)


def test_killed_controllers_lose_nothing_of_what_was_asked_meanwhile(job: Job) -> None:
    before = identities(job)
    (place,) = {pod["metadata"]["namespace"] for pod in controllers(job)}
    job.run(
        f"kubectl delete pods -n {place} -l app.kubernetes.io/component=controller --grace-period=0 --force && "
        f"kubectl delete pod -n {NAMESPACE} steady-worker-1 --wait=false && "
        f"kubectl scale {job.named} --replicas={MOST}"
    )
    del before["steady-worker-1"]
    assert_grows(job, MOST, before)
    wait_until("a leader", lambda: leader(job))


def test_a_restarted_api_server_loses_nothing_and_repeats_nothing(job: Job) -> None:
    before = identities(job)
    job.run(f"kubectl delete pod -n {NAMESPACE} steady-worker-2 --wait=false")
    restart_api_server(job)
    del before["steady-worker-2"]
    assert_grows(job, MOST, before)
    after = identities(job)
    job.scale(2)
    job.await_active(2)
    wait_until("the others to go", lambda: len(job.pods()) == 2)
    assert identities(job).items() <= after.items()


def test_a_lost_scheduler_is_made_up_for(job: Job) -> None:
    before = identities(job)
    kill(job, "kube-scheduler")
    job.scale(3)
    assert_grows(job, 3, before)


def test_deleted_jobs_leave_nothing(job: Job) -> None:
    job.run(f"kubectl delete elasticjobs --all -n {NAMESPACE} --timeout=300s")
    wait_until("no pods", lambda: not job.pods())
    assert job.json(f"kubectl get services -n {NAMESPACE} -l group-name=elastic.pytorch.org -o json")["items"] == []
