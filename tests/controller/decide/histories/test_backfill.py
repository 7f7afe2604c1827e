"""On fixed nodes a job gets pods when it has room for them, and small ones go ahead without delaying those before."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controller.decide.histories.simulation import ENDED, Simulation
from tests.controller.decide.world import NOW, ago, condition, created, deleted, events, job, later, pod, view
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import Admission
from tidewater.controller.decide.queue import Site, admit, demand
from tidewater.controller.room.packing import Held, Room
from tidewater.controller.room.placement import Node
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import ReplicaStatus, Status

HEAD, HOLD, WAIT, YIELD = Admission.HEAD, Admission.HOLD, Admission.WAIT, Admission.YIELD
ROOM, BACKFILL, GIVE_BACK, MISFIT = Admission.ROOM, Admission.BACKFILL, Admission.GIVE_BACK, Admission.MISFIT


def queued(name: str, low: int, high: int | None = None, age: float = 0, **policy: object) -> ElasticJob:
    made = job(high or low, low=low, high=high or low, policy={"queue": "q", **policy})
    return replace(made, name=name, uid=name, created=ago(1000 + age))


def whole(of: ElasticJob, **status: object) -> ElasticJob:
    return replace(of, status=Status(whole_since=ago(60), state=State.RUNNING, **status))  # type: ignore[arg-type]


def ahead(of: ElasticJob) -> ElasticJob:
    """Return the job as one that went ahead of its turn and became whole."""
    return whole(of, queued_since=ago(500))


def trying(of: ElasticJob, seconds: float = 10) -> ElasticJob:
    """Return the job as one with pods that has not become whole."""
    return replace(of, status=Status(queued_since=ago(500), turn_since=ago(seconds), state=State.QUEUED))


def admissions(
    rooms: int, held: dict[str, int], *jobs: ElasticJob, ending: int = 0, firm: int = 0
) -> dict[str, Admission]:
    """Return the answers on one node with so many rooms; `held` is how many of them which pods have."""
    pods = [held_by(name) for name, count in held.items() for _ in range(count)]
    pods += [replace(held_by("gone"), ending=True)] * ending
    other = replace(queued("other", firm or 1), status=Status(turn_since=NOW))
    site = Site(
        Room({"n": Node(True, {"pods": rooms * 1000}, {})}, tuple(pods)),
        {(each.namespace, each.name): demand(each) for each in (*jobs, other)},
        (other,) if firm else (),
    )
    return {name: admission for (_, name), admission in admit(jobs, NOW, site).items()}


def held_by(name: str) -> Held:
    return Held("n", {"pods": 1000}, name, "worker", 0, ending=False, fixed=False)


BIG, SMALL, TINY = queued("big", 4, age=9), queued("small", 2, age=5), queued("tiny", 1)


def test_the_head_has_its_turn_when_all_of_its_minimum_has_room() -> None:
    assert admissions(4, {}, BIG) == {"big": HEAD}
    assert admissions(4, {"someone": 1}, BIG) == {"big": ROOM}
    assert admissions(5, {"someone": 1}, BIG) == {"big": HEAD}


def test_room_that_another_queue_was_promised_is_not_free() -> None:
    assert admissions(8, {}, BIG, firm=4) == {"big": HEAD}
    assert admissions(7, {}, BIG, firm=4) == {"big": ROOM}
    assert admissions(7, {"other": 3}, BIG, firm=4) == {"big": ROOM}


def test_small_jobs_that_fit_go_ahead_in_order_while_the_head_waits() -> None:
    assert admissions(4, {"someone": 1}, BIG, SMALL, TINY) == {"big": ROOM, "small": BACKFILL, "tiny": BACKFILL}
    assert admissions(4, {"someone": 3}, BIG, SMALL, TINY) == {"big": ROOM, "small": WAIT, "tiny": BACKFILL}
    assert admissions(4, {}, BIG, SMALL, TINY) == {"big": HEAD, "small": WAIT, "tiny": WAIT}


def test_a_job_that_needs_the_room_of_a_whole_jobs_lost_pod_does_not_go_ahead() -> None:
    hurt = whole(queued("hurt", 2, age=20))
    assert admissions(5, {"hurt": 1, "someone": 1}, hurt, BIG, SMALL, TINY)["small"] is BACKFILL
    assert admissions(4, {"hurt": 1, "someone": 1}, hurt, BIG, SMALL, TINY)["small"] is WAIT


def test_a_job_ahead_keeps_its_pods_while_the_head_would_not_fit_without_them() -> None:
    assert admissions(5, {"someone": 2, "small": 2}, BIG, ahead(SMALL)) == {"big": ROOM, "small": BACKFILL}
    assert admissions(5, {"someone": 2, "small": 1}, BIG, trying(SMALL)) == {"big": ROOM, "small": BACKFILL}


def test_a_job_stays_ahead_while_the_head_would_not_fit_for_want_of_a_node() -> None:
    assert admissions(3, {"small": 2}, BIG, ahead(SMALL)) == {"big": HEAD, "small": BACKFILL}


def test_the_last_jobs_ahead_give_back_as_much_as_the_head_needs_and_no_other_one_starts() -> None:
    held = {"small": 2, "tiny": 1}
    jobs = (BIG, ahead(SMALL), ahead(TINY), queued("new", 1))
    assert admissions(6, held, *jobs) == {"big": ROOM, "small": BACKFILL, "tiny": GIVE_BACK, "new": WAIT}
    assert admissions(5, held, *jobs) == {"big": ROOM, "small": GIVE_BACK, "tiny": BACKFILL, "new": WAIT}
    assert admissions(4, held, *jobs) == {"big": ROOM, "small": GIVE_BACK, "tiny": GIVE_BACK, "new": WAIT}
    assert admissions(7, held, *jobs) == {"big": HEAD, "small": BACKFILL, "tiny": BACKFILL, "new": WAIT}


def test_while_enough_pods_end_no_other_one_gives_room_back_or_starts() -> None:
    jobs = (BIG, ahead(SMALL), TINY)
    assert admissions(6, {"small": 2}, *jobs, ending=1) == {"big": ROOM, "small": BACKFILL, "tiny": WAIT}
    returned = replace(TINY, status=Status(queued_since=ago(500)))  # its pods are not seen to end yet
    assert admissions(6, {"small": 2, "tiny": 1}, BIG, ahead(SMALL), returned)["small"] is BACKFILL


def test_a_job_ahead_that_lost_its_room_has_it_until_the_end_of_a_turn() -> None:
    assert admissions(4, {"someone": 3, "small": 1}, BIG, trying(SMALL))["small"] is BACKFILL
    assert admissions(4, {"someone": 3, "small": 1}, BIG, trying(SMALL, 300))["small"] is YIELD


def test_a_head_that_lost_its_room_gets_that_of_the_jobs_ahead() -> None:
    assert admissions(6, {"someone": 1, "big": 3, "small": 2}, trying(BIG), ahead(SMALL)) == {
        "big": HEAD,
        "small": GIVE_BACK,
    }
    assert admissions(7, {"someone": 1, "big": 3, "small": 2}, trying(BIG), ahead(SMALL)) == {
        "big": HEAD,
        "small": BACKFILL,
    }


def test_a_job_that_is_before_the_head_has_its_room_for_good() -> None:
    assert admissions(5, {"someone": 2, "big": 2}, ahead(queued("big", 2, age=9)), SMALL) == {
        "big": HOLD,
        "small": ROOM,
    }
    assert admissions(4, {"small": 2}, ahead(SMALL), ahead(TINY)) == {"small": Admission.FREE, "tiny": Admission.FREE}


def test_a_new_head_of_a_higher_priority_takes_over_what_it_needs() -> None:
    urgent = queued("urgent", 2, priority=5)
    assert admissions(6, {"someone": 1, "big": 1}, trying(BIG), urgent) == {"urgent": ROOM, "big": GIVE_BACK}
    assert admissions(7, {"someone": 1, "big": 4}, trying(BIG), urgent) == {"urgent": HEAD, "big": BACKFILL}


def test_a_job_that_never_fits_is_behind_the_others_and_tried_alone() -> None:
    huge = queued("huge", 9, age=99)
    assert admissions(4, {}, huge, BIG) == {"huge": MISFIT, "big": HEAD}
    assert admissions(4, {"someone": 1}, huge, BIG, TINY) == {"huge": MISFIT, "big": ROOM, "tiny": BACKFILL}
    assert admissions(4, {}, huge) == {"huge": HEAD}
    assert admissions(4, {"huge": 2}, trying(huge), BIG) == {"huge": HEAD, "big": WAIT}


def test_a_head_that_holds_pods_or_can_not_be_computed_is_tried_as_on_other_nodes() -> None:
    lost = replace(BIG, status=Status(replica_statuses={"Worker": ReplicaStatus(active=3)}))
    assert admissions(4, {"big": 3, "someone": 1}, lost, TINY) == {"big": HEAD, "tiny": WAIT}
    template = {"spec": {"schedulerName": "volcano"}}
    worker = replace(TINY.spec.worker, template=template)
    strange = replace(TINY, name="strange", spec=replace(TINY.spec, replica_specs={"Worker": worker}))
    assert admissions(0, {}, strange) == {"strange": HEAD}
    assert admissions(4, {"someone": 1}, BIG, strange) == {"big": ROOM, "strange": WAIT}


def test_no_job_starts_before_the_nodes_are_known() -> None:
    site = Site(Room(known=False), {("n", "big"): demand(BIG), ("n", "tiny"): demand(TINY)})
    assert admit([BIG, TINY], NOW, site) == {("n", "big"): WAIT, ("n", "tiny"): WAIT}
    assert admit([trying(BIG)], NOW, site) == {("n", "big"): HEAD}
    assert admit([BIG, ahead(TINY)], NOW, site) == {("n", "big"): WAIT, ("n", "tiny"): BACKFILL}


def test_a_head_without_room_gets_no_pods_and_says_what_it_waits_for() -> None:
    decision = decide(view(BIG, admission=ROOM), NOW)
    assert created(decision) == []
    assert (decision.status.state, decision.status.waiting) == (State.QUEUED, "Unschedulable")
    assert (decision.status.turn_since, decision.status.turns_missed, decision.again) == (None, 0, None)
    message = condition(decision.status, "Running").message
    assert (
        message
        == "ElasticJob big waits in queue q. It starts when all of its minimum has room at once: 4 of type Worker."
    )
    assert "Unschedulable" in events(decision)
    assert "Unschedulable" not in events(decide(view(replace(BIG, status=decision.status), admission=ROOM), later(9)))


def test_a_job_that_never_fits_says_so() -> None:
    decision = decide(view(BIG, admission=MISFIT), NOW)
    assert (created(decision), decision.status.waiting) == ([], "Unschedulable")
    assert "has no room even if the nodes are empty" in condition(decision.status, "Running").message


def test_a_job_ahead_gets_its_minimum_and_keeps_its_place() -> None:
    small = queued("j", 2, 4)
    start = decide(view(small, admission=BACKFILL), NOW)
    assert (created(start), start.status.turn_since) == ([0, 1], NOW)
    placed = [pod(0), pod(1)]
    runs = decide(view(replace(small, status=start.status), placed, admission=BACKFILL), later(5))
    assert (created(runs), runs.status.whole_since, runs.status.queued_since) == ([], later(5), NOW)
    assert "ahead of its turn" in condition(runs.status, "Running").message
    back = decide(view(replace(small, status=runs.status), placed, admission=GIVE_BACK), later(99))
    assert deleted(back) == ["worker-0", "worker-1"]
    assert (back.status.whole_since, back.status.queued_since, back.status.turns_missed) == (None, NOW, 0)
    for_good = decide(view(replace(small, status=runs.status), placed, admission=HOLD), later(99))
    assert (deleted(for_good), for_good.status.queued_since) == ([], None)


def check_queue(seed: int) -> None:
    """Random jobs come into one queue; each fits alone, and they end one after the other."""
    random = Random(seed)
    rooms = random.randint(3, 8)
    arriving = [random_job(random, number, rooms) for number in range(random.randint(2, 7))]
    never = queued("never", rooms + 1, priority=random.randint(0, 1), age=random.randint(0, 100))
    cluster = Simulation.of([never, arriving.pop()], {"a": 1, "b": rooms - 1})
    cluster.fixed = True
    waited, turns = 0, 0
    while arriving or any(each.name != "never" for each in cluster.unfinished()):
        turns += 1
        assert turns < 1000, f"blocked: {[(each.name, each.status.state) for each in cluster.unfinished()]}"
        if arriving and random.random() < 0.5:
            made = replace(arriving.pop(), created=cluster.now)
            cluster.jobs[made.name] = made
        cluster.turn()
        waited = check_room(cluster, waited)
        cluster.pass_over(random.choice((1, 100)))
        for each in cluster.unfinished():
            if each.status.state is State.RUNNING and random.random() < 0.15:
                for one in list(cluster.pods[each.name].values()):
                    cluster.end(each.name, one, 0)


def random_job(random: Random, number: int, rooms: int) -> ElasticJob:
    low = random.randint(1, rooms)
    return queued(f"job-{number}", low, low + random.randint(0, 2), priority=random.randint(0, 1))


def check_room(cluster: Simulation, waited: int) -> int:
    """Check one turn; return for how many turns the head has waited although it would fit without those ahead."""
    fitting = [each for each in cluster.unfinished() if each.name != "never"]
    short = [each.name for each in fitting if each.status.whole_since is None]
    for each in fitting:
        assert each.status.turns_missed == 0, f"{each.name} had pods without room"
    if fitting:
        lost = [one.name for name, one in cluster.every_pod() if name in short and one.unschedulable_since is not None]
        assert not lost, f"{lost} were created and have no room"
    cluster.ask_queue()
    heads = [name for (_, name), each in cluster.admissions.items() if each is ROOM]
    if not heads or heads[0] == "never":
        return 0
    firm = {each.name for each in fitting if each.status.whole_since is not None and each.status.queued_since is None}
    held = sum(one.phase not in ENDED and one.node is not None for name, one in cluster.every_pod() if name in firm)
    fits = sum(cluster.rooms.values()) - held >= cluster.jobs[heads[0]].bounds("Worker")[0]
    assert not fits or waited < 3, f"{heads[0]} waits although it would fit without those ahead of it"
    return waited + 1 if fits else 0


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_every_job_that_fits_runs_in_the_end_and_none_has_pods_without_room(seed: int) -> None:
    check_queue(seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_every_job_of_thousands_of_queues_on_fixed_nodes_comes_to_run(part: int) -> None:
    for seed in range(part * 300, (part + 1) * 300):
        check_queue(seed)


def test_a_stream_of_small_jobs_does_not_keep_a_large_one_waiting() -> None:
    cluster = Simulation.of([queued("first", 2, age=20), BIG], {"a": 4})
    cluster.fixed = True
    for number in range(30):
        made = replace(queued(f"tiny-{number}", 1), created=later(number))
        cluster.jobs[made.name] = made
        cluster.turn()
        cluster.pass_over(10)
        if number == 10:
            assert cluster.jobs["big"].status.state is State.QUEUED
            assert sum(each.status.state is State.RUNNING for each in cluster.jobs.values()) == 3
            for one in list(cluster.pods["first"].values()):
                cluster.end("first", one, 0)
    assert cluster.jobs["big"].status.state is State.RUNNING
    cluster.settle(timedelta(minutes=10))
