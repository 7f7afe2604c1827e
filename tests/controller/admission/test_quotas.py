"""What jobs ask for and have under the quotas of teams, and which jobs become due when that changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.controller.decide.world import pod
from tests.controller.fakes import jobs, virtual
from tidewater.contract import labels
from tidewater.contract.controller_program import Quota
from tidewater.controller.admission.quotas import Quotas
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.observed import PodView
from tidewater.controller.sharing.shares import Share
from tidewater.elasticjob import names
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import ReplicaStatus

TWO = {"vision": Quota(2, 4), "speech": Quota(2, 4)}
SIZE = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
NOW = virtual.BEGINNING


def job(team: str, low: int, replicas: int, name: str = "j", **spec: Any) -> ElasticJob:
    """Return a job of a team; of `spec`, `status` are fields of its status."""
    status = spec.pop("status", {})
    made = jobs.job(name, replicas=replicas, low=low, **{"high": max(low, replicas), **spec})
    return replace(made, namespace=team, uid=f"{team}/{name}", status=replace(made.status, **status))


def asking(**requests: str) -> dict[str, Any]:
    """Return workers that request this."""
    named = {{"gpu": "nvidia.com/gpu"}.get(name, name): quantity for name, quantity in requests.items()}
    template = jobs.template()
    template["spec"]["containers"][0]["resources"] = {"requests": named}
    return template


class Desk:
    """The quotas, the pods of jobs, and which jobs have become due."""

    def __init__(self, quotas: dict[str, Quota], *made: ElasticJob, size: dict[str, str] | None = None) -> None:
        self.pods: dict[str, list[PodView]] = {}
        self.due: list[Key] = []
        self.quotas = Quotas(
            quotas,
            size or {},
            lambda uid: self.pods.get(uid, []),
            lambda key, seconds: self.due.append(key),
        )
        for each in made:
            self.put(each)

    def put(self, made: ElasticJob) -> None:
        self.quotas.put(Key(made.namespace, made.name), made)

    def has(self, team: str, *pods: PodView, name: str = "j") -> None:
        self.pods[f"{team}/{name}"] = list(pods)
        self.quotas.pods_changed()

    def workers(self, team: str, name: str = "j") -> int:
        share = self.quotas.share(Key(team, name))
        assert share is not None
        return share.workers


def running(team: str, low: int, replicas: int, desired: int, **spec: Any) -> ElasticJob:
    return job(team, low, replicas, status={"start_time": NOW, "desired": desired}, **spec)


def test_jobs_without_a_quota_and_those_that_want_no_pods_have_no_share() -> None:
    desk = Desk(TWO, job("vision", 1, 1, "suspended", suspend=True))
    assert not desk.quotas.concern(Key("training", "j"))
    assert desk.quotas.share(Key("training", "j")) is None
    assert desk.quotas.share(Key("vision", "suspended")) is None
    assert desk.quotas.may(Key("vision", "suspended"))


def test_a_job_in_a_pool_has_no_share_and_takes_none_of_what_teams_lend_each_other() -> None:
    template = asking(gpu="8")
    template["spec"]["nodeSelector"] = {labels.POOL: "big"}
    large = job("vision", 4, 4, "large", replicaSpecs=jobs.workers(4, template=template))
    desk = Desk(TWO, job("vision", 2, 4), large, size=SIZE)
    desk.has("vision", *(pod(each) for each in range(4)), name="large")
    assert desk.quotas.may(Key("vision", "large"))
    assert desk.quotas.share(Key("vision", "large")) is None
    assert desk.workers("vision") == 4


def test_a_job_may_have_what_it_wants_or_with_autoscale_its_most() -> None:
    assert Desk(TWO, job("vision", 1, 3)).workers("vision") == 3
    assert Desk(TWO, job("vision", 1, 2, high=9)).workers("vision") == 2
    assert Desk(TWO, job("vision", 1, 2, high=9, autoscale=True)).workers("vision") == 4


def test_a_job_of_a_queue_starts_with_min_available_and_keeps_its_minimum() -> None:
    policy = {"minAvailable": 3, "queue": "q"}
    desk = Desk(TWO, job("vision", 1, 4, schedulingPolicy=policy), running("speech", 2, 2, 2))
    assert desk.workers("vision") == 0
    desk.put(running("vision", 1, 4, 3, schedulingPolicy=policy))
    assert desk.workers("vision") == 2


@pytest.mark.parametrize(
    ("requests", "counts"),
    [
        ({}, 1),
        ({"cpu": "50m"}, 1),
        ({"cpu": "2", "memory": "8Gi", "gpu": "1"}, 1),
        ({"cpu": "2", "gpu": "4"}, 4),
        ({"cpu": "2100m"}, 2),
        ({"memory": "20Gi"}, 3),
        ({"cpu": "many"}, 1),
    ],
)
def test_a_worker_counts_by_the_resource_that_it_needs_the_most_of(requests: dict[str, str], counts: int) -> None:
    replicas = jobs.workers(8, template=asking(**requests))
    desk = Desk({"vision": Quota(8, 8)}, job("vision", 1, 8, replicaSpecs=replicas), size=SIZE)
    assert desk.workers("vision") == 8 // counts


def test_pods_of_other_types_count_together() -> None:
    others = {"replicas": 3, "template": asking(cpu="1")}
    master = {"podNames": "Single", "template": asking(memory="1Gi")}
    replicas = {**jobs.workers(9, template=asking(gpu="1")), "PS": others, names.MASTER: master}
    desk = Desk({"vision": Quota(8, 8)}, job("vision", 1, 9, replicaSpecs=replicas), size=SIZE)
    assert desk.workers("vision") == 6


def test_workers_that_have_done_their_work_count_for_nothing() -> None:
    done = {names.WORKER: ReplicaStatus(succeeded=2)}
    assert Desk({"vision": Quota(2, 2)}, job("vision", 1, 9, status={"replica_statuses": done})).workers("vision") == 4


def test_allowed_sizes_are_kept() -> None:
    assert Desk({"vision": Quota(3, 3)}, job("vision", 1, 8, sizes=[1, 2, 4, 8])).workers("vision") == 2
    assert Desk({"vision": Quota(6, 6)}, job("vision", 1, 8, sizeStep=3)).workers("vision") == 4


def test_pods_count_until_they_are_gone_but_not_after_they_have_ended() -> None:
    desk = Desk(TWO, running("vision", 1, 4, 2), job("speech", 2, 2))
    desk.has("vision", *(pod(index, terminating=index > 1) for index in range(4)))
    assert desk.workers("speech") == 0
    assert desk.quotas.share(Key("vision", "j")) == Share(2, "gives back 2 workers to team speech")
    desk.has("vision", *(pod(index, "Failed" if index > 1 else "Running") for index in range(4)))
    assert desk.workers("speech") == 2


def test_what_a_job_was_allowed_counts_before_its_pods_are_made() -> None:
    desk = Desk(TWO, running("vision", 1, 4, 4), job("speech", 2, 2))
    assert (desk.workers("vision"), desk.workers("speech")) == (2, 0)
    desk.put(running("vision", 1, 4, 2))
    assert (desk.workers("vision"), desk.workers("speech")) == (2, 2)


def test_jobs_with_another_share_become_due_and_others_do_not() -> None:
    desk = Desk(TWO, running("vision", 1, 4, 4), running("speech", 1, 1, 1, name="small"))
    desk.workers("vision")
    desk.due.clear()
    desk.put(job("speech", 1, 1))
    assert desk.due == [Key("vision", "j")]
    assert desk.workers("speech") == 0
    assert desk.due[1:] == [Key("vision", "j")]


def test_a_status_that_changes_nothing_makes_no_job_due() -> None:
    desk = Desk(TWO, running("vision", 1, 4, 4))
    desk.workers("vision")
    desk.due.clear()
    desk.put(replace(running("vision", 1, 4, 4), resource_version="2"))
    assert desk.due == []


def test_a_job_that_is_gone_leaves_its_share_to_others() -> None:
    desk = Desk(TWO, running("vision", 1, 4, 2), running("speech", 2, 2, 2))
    assert desk.workers("vision") == 2
    desk.due.clear()
    desk.quotas.put(Key("speech", "j"), None)
    assert desk.due == [Key("vision", "j")]
    assert desk.workers("vision") == 4
    assert desk.quotas.share(Key("speech", "j")) is None


def test_a_replica_of_several_pods_counts_as_many_workers_and_shares_are_whole_replicas() -> None:
    pairs: dict[str, Any] = {"launcher": "tidewater", "workersPerReplica": 2}
    desk = Desk({"vision": Quota(5, 5)}, job("vision", 1, 4, **pairs))
    assert desk.quotas.share(Key("vision", "j")) == Share(
        2, "may have 2 of 4 replicas: too few are left of the 5 of team vision, and other teams lend no more"
    )
    desk.put(running("vision", 1, 4, 2, **pairs))
    desk.has("vision", *(pod(index) for index in range(4)))
    assert desk.workers("vision") == 2
    asking_two = job("vision", 1, 2, replicaSpecs=jobs.workers(2, template=asking(gpu="2")), **pairs)
    one_each = Desk({"vision": Quota(4, 4)}, asking_two, size={"nvidia.com/gpu": "1"})
    assert one_each.workers("vision") == 1


def test_a_replica_that_no_quota_of_its_team_has_room_for_is_named_with_its_size() -> None:
    desk = Desk({"vision": Quota(3, 3)}, job("vision", 1, 1, launcher="tidewater", workersPerReplica=4))
    assert desk.quotas.share(Key("vision", "j")) == Share(0, "needs 4 workers, and team vision may have 3")
