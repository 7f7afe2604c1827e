"""The number of workers aimed for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import (
    NOW,
    after,
    ago,
    condition,
    created,
    deleted,
    job,
    later,
    pod,
    running,
    view,
)
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, PodView
from tidewater.controller.decide.replica_groups import crews
from tidewater.controller.decide.sizes import above, floor
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import Status


def auto(replicas: int = 2, high: int = 8, status: Status | None = None, **spec: object) -> ElasticJob:
    settled = Status(desired=replicas, settled_replicas=replicas, observed_generation=1)
    return job(replicas, low=1, high=high, autoscale=True, status=status or settled, **spec)


@pytest.mark.parametrize(
    ("spec", "wanted", "down", "up"),
    [
        ({}, 5, 5, 6),
        ({}, 8, 8, 8),
        ({"sizes": (2, 4, 8)}, 5, 4, 8),
        ({"sizes": (2, 4, 8)}, 1, 1, 2),
        ({"sizes": (8, 2, 4)}, 8, 8, 8),
        ({"sizes": (20,)}, 8, 1, 1),
        ({"size_step": 3}, 3, 1, 4),
        ({"size_step": 3}, 8, 7, 7),
    ],
)
def test_only_allowed_sizes_are_used(spec: dict[str, object], wanted: int, down: int, up: int) -> None:
    made = job(wanted, low=1, high=8, **spec)
    worker = crews(view(made))[0]["Worker"]
    assert floor(made.spec, worker, wanted) == down
    assert above(made.spec, worker, down) == up


def test_without_autoscale_a_job_does_not_grow() -> None:
    decision = decide(view(job(2, low=1, high=8), running(0, 1)), NOW)
    assert (decision.status.desired, created(decision)) == (2, [])


def test_a_job_that_has_its_size_grows_by_as_many_workers_as_it_has() -> None:
    assert created(decide(view(auto(), running(0, 1)), NOW)) == [2, 3]
    assert created(decide(view(auto(high=3), running(0, 1)), NOW)) == [2]


def test_it_grows_to_the_next_allowed_size() -> None:
    assert created(decide(view(auto(sizes=(2, 7)), running(0, 1)), NOW)) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("pods", "waiting_cores"),
    [((pod(0), pod(1, "Pending")), 0), (running(0, 1), 1), ((pod(0), pod(1, "Succeeded")), 0)],
    ids=["not-all-run", "others-wait", "training-ends"],
)
def test_it_does_not_grow_while(pods: tuple[PodView, ...], waiting_cores: int) -> None:
    assert created(decide(view(auto(), pods, waiting_cores=waiting_cores), NOW)) == []


def test_it_does_not_grow_while_a_job_of_its_queue_waits() -> None:
    made = auto(policy={"queue": "q"}, status=Status(desired=2, settled_replicas=2, whole_since=ago(60)))
    assert created(decide(view(made, running(0, 1), admission=Admission.HOLD), NOW)) == []


def test_workers_that_find_no_room_are_given_up_and_growth_is_snoozed() -> None:
    grown = auto(status=Status(desired=4, settled_replicas=2, observed_generation=1))
    pods = (*running(0, 1, 2), pod(3, "Pending", unschedulable_since=ago(59)))
    waits = decide(view(grown, pods), NOW)
    assert (deleted(waits), waits.again) == ([], later(1))
    gives_up = decide(view(grown, pods), later(1))
    assert deleted(gives_up) == ["worker-3"]
    assert (gives_up.status.desired, gives_up.status.snoozed_until) == (3, later(61))
    rest = decide(view(replace(grown, status=gives_up.status), running(0, 1, 2)), later(30))
    assert (created(rest), rest.again) == ([], later(61))
    assert created(decide(view(replace(grown, status=gives_up.status), running(0, 1, 2)), later(61))) == [3, 4, 5]


def test_a_partial_step_is_given_back() -> None:
    grown = auto(sizes=(2, 5), status=Status(desired=5, settled_replicas=2, observed_generation=1))
    pods = (*running(0, 1, 2, 3), pod(4, "Pending", unschedulable_since=ago(60)))
    assert deleted(decide(view(grown, pods), NOW)) == ["worker-4", "worker-3", "worker-2"]


def test_workers_below_the_number_asked_for_wait_for_room() -> None:
    decision = decide(view(auto(3), (pod(0), pod(1), pod(2, "Pending", unschedulable_since=ago(900)))), NOW)
    assert (deleted(decision), decision.status.desired) == ([], 3)


def test_a_refused_pod_counts_as_no_room() -> None:
    grown = auto(status=Status(desired=4, settled_replicas=2, observed_generation=1))
    decision = decide(view(grown, running(0, 1, 2), refusal="exceeded quota"), NOW)
    assert (decision.status.desired, decision.status.snoozed_until) == (3, later(60))


def test_room_is_given_to_the_core_pods_of_others_and_taken_again_later() -> None:
    grown = auto(4, status=Status(desired=6, settled_replicas=4, observed_generation=1))
    gives = decide(view(grown, running(*range(6)), waiting_cores=2), NOW)
    assert deleted(gives) == ["worker-5", "worker-4"]
    given = replace(grown, status=gives.status)
    assert deleted(decide(view(given, running(*range(4)), waiting_cores=2), later(59))) == []
    more = decide(view(given, running(*range(4)), waiting_cores=2), later(60))
    assert deleted(more) == ["worker-3", "worker-2"]
    below = replace(grown, status=more.status)
    assert created(decide(view(below, running(0, 1)), later(119))) == []
    assert created(decide(view(below, running(0, 1)), later(120))) == [2, 3]


def test_no_room_is_given_below_the_minimum() -> None:
    decision = decide(view(job(2, low=2, high=4, autoscale=True), running(0, 1), waiting_cores=5), NOW)
    assert (deleted(decision), decision.status.desired) == ([], 2)


def test_an_edit_takes_effect_at_once_and_growth_waits() -> None:
    grown = auto(4, status=Status(desired=6, settled_replicas=4, observed_generation=1))
    worker = replace(grown.spec.worker, replicas=2)
    edited = replace(grown, generation=2, spec=replace(grown.spec, replica_specs={"Worker": worker}))
    shrinks = decide(view(edited, running(*range(6))), NOW)
    assert deleted(shrinks) == ["worker-5", "worker-4", "worker-3", "worker-2"]
    rests = decide(view(replace(edited, status=shrinks.status), running(0, 1)), NOW)
    assert (created(rests), rests.status.settled_replicas, rests.status.snoozed_until) == ([], 2, later(60))


def test_a_lost_status_does_not_shrink_a_grown_job() -> None:
    decision = decide(view(auto(2, high=5, status=Status()), running(*range(5))), NOW)
    assert (deleted(decision), decision.status.desired) == ([], 5)


def test_a_growth_that_was_interrupted_before_the_status_was_written_goes_on() -> None:
    begun = (*running(0, 1), pod(2, "Pending", unschedulable_since=None))
    decision = decide(view(auto(2, sizes=(2, 4)), begun), NOW)
    assert (deleted(decision), created(decision), decision.status.desired) == ([], [3], 4)


def test_the_number_asked_for_is_settled_when_all_workers_are_ready() -> None:
    starts = decide(view(job(2), (pod(0), pod(1, ready=False))), NOW).status
    assert (starts.state, starts.settled_replicas) == (State.RUNNING, None)
    assert condition(starts, "Running").message == "ElasticJob j is running. 1 of 2 workers run and is not ready yet."
    settles = decide(view(replace(job(2), status=starts), running(0, 1)), NOW).status
    assert (settles.settled_replicas, condition(settles, "Running").message) == (2, "ElasticJob j is running.")


def test_a_size_that_was_reached_stays_so_when_a_worker_is_not_ready_later() -> None:
    settled = after(job(2), *running(0, 1))
    status = decide(view(settled, (pod(0), pod(1, ready=False))), NOW).status
    assert (status.settled_replicas, condition(status, "Running").message) == (2, "ElasticJob j is running.")


def test_a_job_with_a_mistake_in_its_arguments_never_has_its_size() -> None:
    starts = after(job(2), pod(0, ready=False), pod(1, ready=False), at=NOW)
    fails = decide(view(starts, (pod(0, "Failed", exit_code=2), pod(1, ready=False))), later(20)).status
    assert (starts.status.settled_replicas, fails.state, fails.settled_replicas) == (None, State.FAILED, None)


def test_a_changed_number_of_a_job_that_grows_by_itself_is_settled_when_it_is_ready() -> None:
    edited = auto(4, status=Status(desired=2, settled_replicas=2, observed_generation=1))
    starts = decide(view(edited, (*running(0, 1, 2), pod(3, ready=False))), NOW)
    assert (created(starts), starts.status.settled_replicas) == ([], 2)
    assert decide(view(edited, running(0, 1, 2, 3)), NOW).status.settled_replicas == 4


def test_the_number_asked_for_is_settled_when_it_runs() -> None:
    starts = decide(view(job(2), (pod(0), pod(1, "Pending"))), NOW)
    assert starts.status.settled_replicas is None
    assert decide(view(job(2), running(0, 1)), NOW).status.settled_replicas == 2
    shrinks = decide(view(job(1, high=2), running(0, 1)), NOW)
    assert (deleted(shrinks), shrinks.status.settled_replicas) == (["worker-1"], 1)
