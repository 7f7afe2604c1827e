"""What is remembered of the queues of jobs, and which jobs become due when a queue changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from tests.controller.fakes import jobs, virtual
from tidewater.controller.admission.queues import FRESH, Queues
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.observed import Admission
from tidewater.controller.room.packing import Held, Room
from tidewater.controller.room.placement import Node
from tidewater.controller.room.watch import RoomWatch
from tidewater.elasticjob.model import ElasticJob

NOW = virtual.BEGINNING


def queued(name: str, queue: str | None = "research", **status: object) -> ElasticJob:
    """Return a job that arrived after those with names that come before its own."""
    job = jobs.job(name, schedulingPolicy={"queue": queue} if queue else {})
    created = NOW + timedelta(seconds=ord(name[0]))
    return replace(job, created=created, status=replace(job.status, **status))  # type: ignore[arg-type]


class Desk:
    """Queues, and the jobs that have become due."""

    def __init__(self, *names: str) -> None:
        self.due: list[str] = []
        self.queues = Queues(lambda key, seconds: self.due.append(key.name))
        for name in names:
            self.put(queued(name))

    def put(self, job: ElasticJob) -> None:
        self.queues.put(Key(job.namespace, job.name), job)

    def admission(self, name: str, seconds: float = 0.0) -> Admission:
        return self.queues.admission(Key(jobs.NAMESPACE, name), NOW + timedelta(hours=1, seconds=seconds))


def test_the_first_job_has_its_turn_and_the_others_wait() -> None:
    desk = Desk("b", "a")
    assert desk.admission("a") is Admission.HEAD
    assert desk.admission("b") is Admission.WAIT


def test_a_job_without_a_queue_is_free() -> None:
    desk = Desk("a")
    desk.put(queued("b", queue=None))
    assert desk.admission("b") is Admission.FREE


def test_queues_do_not_wait_for_each_other() -> None:
    desk = Desk("a")
    desk.put(queued("b", queue="production"))
    assert desk.admission("b") is Admission.HEAD


def test_jobs_whose_turn_comes_become_due() -> None:
    desk = Desk("a", "b", "c")
    desk.admission("a")
    desk.due.clear()
    desk.put(queued("a", whole_since=NOW))
    assert len(desk.due) == 1
    desk.due.clear()
    assert desk.admission("a") is Admission.HOLD
    assert desk.due == ["b"]
    assert desk.admission("b") is Admission.HEAD


def test_a_job_that_is_gone_makes_room_for_the_next() -> None:
    desk = Desk("a", "b")
    desk.admission("b")
    desk.due.clear()
    desk.queues.put(Key(jobs.NAMESPACE, "a"), None)
    assert desk.due == ["b"]
    assert desk.admission("b") is Admission.HEAD
    assert desk.admission("a") is Admission.FREE


def test_a_job_that_changes_its_queue_leaves_the_other() -> None:
    desk = Desk("a", "b")
    desk.put(queued("a", queue="production"))
    assert desk.admission("a") is Admission.HEAD
    assert desk.admission("b") is Admission.HEAD


def test_an_answer_is_used_again_until_something_changes_or_time_passes() -> None:
    desk = Desk("a", "b")
    desk.put(queued("a", turn_since=NOW + timedelta(hours=1) - timedelta(seconds=299)))
    assert desk.admission("a") is Admission.HEAD
    assert desk.admission("a", FRESH.total_seconds() / 2) is Admission.HEAD
    assert desk.admission("a", 2.0) is Admission.YIELD
    assert desk.admission("b", 2.0) is Admission.HEAD


def test_the_end_of_a_turn_is_noticed_although_another_job_has_asked_just_before() -> None:
    desk = Desk("a", "b")
    desk.put(queued("a", turn_since=NOW + timedelta(hours=1) - timedelta(seconds=299)))
    assert desk.admission("b", 0.9) is Admission.WAIT
    assert desk.admission("a", 0.99) is Admission.HEAD
    assert desk.admission("a", 1.0) is Admission.YIELD
    assert desk.admission("b", 1.0) is Admission.HEAD


def test_the_end_of_a_turn_of_which_nobody_else_has_use_is_not_asked_for_again_and_again() -> None:
    desk = Desk("a")
    desk.put(queued("a", turn_since=NOW))
    assert desk.admission("a") is Admission.HEAD
    desk.due.clear()
    assert desk.admission("a", 0.5) is Admission.HEAD
    assert desk.due == []


def test_a_job_that_may_have_no_pods_waits_and_stands_in_the_way_of_no_other() -> None:
    desk, barred = Desk(), {"a"}
    desk.queues = Queues(lambda key, seconds: desk.due.append(key.name), may=lambda key: key.name not in barred)
    for name in "ab":
        desk.put(queued(name))
    assert desk.admission("a") is Admission.WAIT
    assert desk.admission("b") is Admission.HEAD
    barred.clear()
    desk.put(queued("a"))
    assert desk.admission("a") is Admission.HEAD
    assert desk.admission("b") is Admission.WAIT


class Rooms(RoomWatch):
    """The room that a test says there is."""

    def __init__(self, pods: int, taken: int = 0) -> None:
        self.pods = pods
        self.taken = taken
        self.wanted: list[bool] = []

    def want(self, wanted: bool) -> None:
        self.wanted.append(wanted)

    def room(self) -> Room:
        held = Held("n", {"pods": 1000}, "someone", "", 0, ending=False, fixed=False)
        return Room({"n": Node(True, {"pods": self.pods * 1000}, {})}, (held,) * self.taken)


def test_on_fixed_nodes_a_job_waits_for_room_and_all_queues_are_asked_again_when_there_is_some() -> None:
    desk, rooms = Desk(), Rooms(pods=2, taken=1)
    desk.queues = Queues(lambda key, seconds: desk.due.append(key.name), rooms)
    small = replace(jobs.job("small", replicas=1, schedulingPolicy={"queue": "research"}), created=NOW)
    desk.put(replace(jobs.job("big", low=2, schedulingPolicy={"queue": "research", "priority": 1}), created=NOW))
    desk.put(small)
    assert desk.admission("big") is Admission.ROOM
    assert desk.admission("small") is Admission.BACKFILL
    rooms.taken = 0
    desk.due.clear()
    desk.queues.room_changed()
    assert desk.due == ["big"]
    assert desk.admission("big") is Admission.HEAD
    assert desk.due == ["big", "small"]


def test_heads_of_two_queues_do_not_get_the_same_room() -> None:
    desk, rooms = Desk(), Rooms(pods=3)
    desk.queues = Queues(lambda key, seconds: desk.due.append(key.name), rooms)
    for name in ("a", "b"):
        desk.put(replace(jobs.job(name, low=2, schedulingPolicy={"queue": f"queue-{name}"}), created=NOW))
    assert desk.admission("a") is Admission.HEAD
    assert desk.admission("b") is Admission.ROOM


def test_the_room_is_wanted_while_a_job_is_short() -> None:
    desk, rooms = Desk(), Rooms(pods=1)
    desk.queues = Queues(lambda key, seconds: None, rooms)
    for each in (queued("a", queue=None), queued("a"), queued("a", whole_since=NOW)):
        desk.put(each)
    assert rooms.wanted == [False, True, False]
