"""Jobs of a queue start whole, in order, and two that are short never block each other for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decide.histories.simulation import Simulation
from tests.controller.decide.world import NOW, ago, created, deleted, job, later, pod, running, view
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission, PodView
from tidewater.controller.decide.queue import admit
from tidewater.elasticjob.choices import PodNames, State, SuccessPolicy
from tidewater.elasticjob.model import ElasticJob, ReplicaSpec, SchedulingPolicy
from tidewater.elasticjob.status import Status

HEAD, HOLD, WAIT, YIELD = Admission.HEAD, Admission.HOLD, Admission.WAIT, Admission.YIELD


def queued(name: str, low: int, replicas: int | None = None, **policy: object) -> ElasticJob:
    made = job(replicas or low, low=low, high=replicas or low, policy={"queue": "q", **policy})
    return replace(made, name=name)


def whole(of: ElasticJob) -> ElasticJob:
    return replace(of, status=Status(whole_since=ago(60), state=State.RUNNING))


def admissions(*jobs: ElasticJob) -> dict[str, Admission]:
    return {name: admission for (_, name), admission in admit(jobs, NOW).items()}


def test_only_the_first_short_job_may_have_pods() -> None:
    assert admissions(queued("b", 2), queued("a", 2), queued("c", 2)) == {"a": HEAD, "b": WAIT, "c": WAIT}


def test_priority_comes_before_age() -> None:
    old, urgent = replace(queued("old", 2), created=ago(9000)), queued("urgent", 2, priority=5)
    assert admissions(old, urgent) == {"old": WAIT, "urgent": HEAD}


def test_age_decides_between_equal_priorities() -> None:
    assert admissions(queued("a", 2), replace(queued("z", 2), created=ago(9000))) == {"a": WAIT, "z": HEAD}


def test_whole_jobs_are_free_until_another_one_is_short() -> None:
    assert admissions(whole(queued("a", 2)), whole(queued("b", 2))) == {"a": Admission.FREE, "b": Admission.FREE}
    assert admissions(whole(queued("a", 2)), queued("b", 2)) == {"a": HOLD, "b": HEAD}


def test_queues_do_not_wait_for_each_other() -> None:
    other = replace(queued("b", 2), spec=replace(queued("b", 2).spec, scheduling_policy=SchedulingPolicy(queue="r")))
    assert admissions(queued("a", 2), other) == {"a": HEAD, "b": HEAD}


@pytest.mark.parametrize("away", ["suspended", "deleting"])
def test_a_job_that_wants_no_pods_is_not_waited_for(away: str) -> None:
    first = queued("a", 2)
    gone = (
        replace(first, deleting=True) if away == "deleting" else replace(first, spec=replace(first.spec, suspend=True))
    )
    assert admissions(gone, queued("b", 2))["b"] is HEAD


def test_a_head_that_found_no_room_goes_behind_the_next() -> None:
    tried = replace(queued("a", 2, priority=9), status=Status(queued_since=ago(400), turn_since=ago(300)))
    assert admissions(tried, queued("b", 2)) == {"a": YIELD, "b": HEAD}
    decision = decide(view(tried, [pod(0), pod(1, "Pending")], admission=YIELD), NOW)
    assert deleted(decision) == ["worker-0", "worker-1"]
    assert (decision.status.turns_missed, decision.status.turn_since, decision.status.queued_since) == (1, None, NOW)
    assert admissions(replace(tried, status=decision.status), queued("b", 2)) == {"a": WAIT, "b": HEAD}


def test_a_head_without_competitors_keeps_its_turn() -> None:
    tried = replace(queued("a", 2), status=Status(turn_since=ago(3000)))
    assert admissions(tried) == {"a": HEAD}


def test_a_later_arrival_does_not_pass_a_job_that_missed_a_turn() -> None:
    missed = replace(queued("a", 2), status=Status(queued_since=ago(100), turns_missed=1))
    arrived = replace(queued("b", 2), created=ago(50))
    assert admissions(missed, arrived) == {"a": HEAD, "b": WAIT}
    assert admissions(missed, replace(arrived, created=ago(150))) == {"a": WAIT, "b": HEAD}


def test_the_head_creates_all_of_its_minimum_and_nothing_above_it() -> None:
    others = {"Master": ReplicaSpec(replicas=1, template={})}
    head = job(4, low=2, high=4, others=others, policy={"queue": "q"})
    decision = decide(view(head, admission=HEAD), NOW)
    assert created(decision) == [0, 1, 0]
    assert (decision.status.state, decision.status.turn_since) == (State.QUEUED, NOW)
    assert decision.again == later(300)


@pytest.mark.parametrize(
    ("available", "least"),
    [
        pytest.param(None, 2, id="not-set"),
        pytest.param(0, 2, id="zero"),
        pytest.param(1, 2, id="below-the-minimum"),
        pytest.param(3, 3, id="between"),
        pytest.param(5, 4, id="above-what-is-wanted"),
        pytest.param(9, 4, id="above-the-maximum"),
    ],
)
def test_min_available_raises_what_must_have_room_up_to_the_wanted_size(available: int | None, least: int) -> None:
    head = job(4, low=2, high=6, policy={"queue": "q", "min_available": available})
    assert created(decide(view(head, admission=HEAD), NOW)) == list(range(least))
    before = decide(view(head, running(*range(least - 1)), admission=HEAD), NOW)
    after = decide(view(head, running(*range(least)), admission=HEAD), NOW)
    assert (before.status.whole_since, after.status.whole_since) == (None, NOW)


def test_a_job_whose_minimum_has_room_is_whole_and_grows_when_nobody_waits() -> None:
    placed = [pod(0, "Pending", node="n"), pod(1)]
    held = decide(view(queued("j", 2, 4), placed, admission=HEAD), NOW)
    assert (created(held), held.status.whole_since) == ([], NOW)
    free = decide(view(replace(queued("j", 2, 4), status=held.status), placed, admission=Admission.FREE), NOW)
    assert created(free) == [2, 3]


def test_a_whole_job_lets_nothing_wait_while_there_is_a_head() -> None:
    held = decide(view(whole(queued("j", 1, 3)), [pod(0), pod(1), pod(2, "Pending")], admission=HOLD), NOW)
    assert deleted(held) == ["worker-2"]


def test_a_whole_job_replaces_a_lost_core_worker_while_there_is_a_head() -> None:
    assert created(decide(view(whole(queued("j", 2)), [pod(0)], admission=HOLD), NOW)) == [1]


def test_a_whole_job_is_short_only_after_a_core_worker_found_no_room_for_a_while() -> None:
    roomless = pod(1, "Pending", unschedulable_since=ago(20))
    waits = decide(view(whole(queued("j", 2)), [pod(0), roomless], admission=HOLD), NOW)
    assert (waits.status.whole_since, waits.again) == (ago(60), later(10))
    short = decide(view(whole(queued("j", 2)), [pod(0), roomless], admission=HOLD), later(10))
    assert short.status.whole_since is None
    assert deleted(short) == []


def test_a_short_job_that_is_not_the_head_gives_up_its_rooms() -> None:
    decision = decide(view(queued("j", 2), [pod(0), pod(1, "Pending")], admission=WAIT), NOW)
    assert deleted(decision) == ["worker-0", "worker-1"]
    assert decision.status.state is State.QUEUED


def test_a_short_job_gives_up_the_pods_beyond_its_size_too_and_stays_short() -> None:
    made = job(3, low=2, high=6, success_policy=SuccessPolicy.ALL_WORKERS, policy={"queue": "q"})
    done = pod(0, "Succeeded")
    waits = decide(
        view(whole(made), [done, pod(1, "Pending"), pod(4, "Pending"), pod(5, "Succeeded")], admission=WAIT), NOW
    )
    assert sorted(deleted(waits)) == ["worker-1", "worker-4", "worker-5"]
    again = decide(view(replace(made, status=waits.status), [done], admission=WAIT), NOW)
    assert (again.status, again.actions) == (waits.status, ())


def test_a_worker_that_gives_its_room_to_another_job_does_not_hide_for_a_turn_that_training_is_over() -> None:
    made = job(2, low=1, high=2, worker={"pod_names": PodNames.SUCCESSIVE}, policy={"queue": "q"})
    decision = decide(view(whole(made), [pod(3, "Pending"), pod(4, "Succeeded")], admission=HOLD), NOW)
    assert (deleted(decision), decision.status.state) == (["worker-3"], State.SUCCEEDED)


@pytest.mark.parametrize(
    "worker",
    [pod(1, "Pending"), pod(1, "Failed", exit_code=137), pod(1, "Failed", exit_code=137, lingers=True)],
    ids=["pending", "failed", "failed, its sidecar runs"],
)
def test_nothing_changes_until_the_queue_was_asked(worker: PodView) -> None:
    decision = decide(view(queued("j", 2), [pod(0), worker], admission=Admission.FREE), NOW)
    assert (created(decision), deleted(decision)) == ([], [])


def check_queue(seed: int) -> None:
    """Random jobs in one queue; each fits alone. All of them run and finish, one after the other."""
    random = Random(seed)
    rooms = random.randint(3, 8)
    jobs = []
    for number in range(random.randint(2, 5)):
        low = random.randint(1, rooms)
        made = queued(f"job-{number}", low, low + random.randint(0, 2), priority=random.randint(0, 1))
        jobs.append(replace(made, created=ago(random.randint(0, 100))))
    never = replace(queued("never", rooms + 1, priority=random.randint(0, 1)), created=ago(random.randint(0, 100)))
    cluster = Simulation.of([*jobs, never], {"a": 1, "b": rooms - 1})
    turns = 0
    while any(each.name != "never" for each in cluster.unfinished()):
        turns += 1
        assert turns < 1000, f"blocked: {[(each.name, each.status.state) for each in cluster.unfinished()]}"
        cluster.turn()
        cluster.pass_over(100)
        check_one_short_job_has_pods(cluster)
        for each in cluster.unfinished():
            if each.status.state is State.RUNNING and random.random() < 0.3:
                for one in list(cluster.pods[each.name].values()):
                    cluster.end(each.name, one, 0)
    assert cluster.jobs["never"].status.state is State.QUEUED


def check_one_short_job_has_pods(cluster: Simulation) -> None:
    short = [each.name for each in cluster.unfinished() if each.status.whole_since is None]
    holding = {name for name, pod in cluster.every_pod() if name in short and not pod.terminating}
    assert len(holding) <= 1, f"{holding} hold rooms, and none of them is whole"


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_every_job_of_a_queue_that_fits_comes_to_run(seed: int) -> None:
    check_queue(seed)


@pytest.mark.soak
def test_every_job_of_thousands_of_queues_comes_to_run() -> None:
    for seed in range(2000):
        check_queue(seed)


def test_two_jobs_that_are_both_short_do_not_block_each_other_for_ever() -> None:
    """One room is taken by another user's pod, so that only the smaller job fits."""
    big, small = replace(queued("big", 4), created=ago(100)), queued("small", 3)
    cluster = Simulation.of([big, small], {"a": 3})
    for _ in range(40):
        cluster.turn()
        cluster.pass_over(20)
    assert states(cluster) == {"big": State.QUEUED, "small": State.RUNNING}
    cluster.rooms["a"] = 7
    cluster.settle(timedelta(minutes=10))
    assert states(cluster) == {"big": State.RUNNING, "small": State.RUNNING}


def states(cluster: Simulation) -> dict[str, State | None]:
    return {name: each.status.state for name, each in cluster.jobs.items()}
