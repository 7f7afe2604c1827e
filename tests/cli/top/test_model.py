"""What `top` shows follows the job from sample to sample, through the loss and the replacement of its workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.top.objects import PORT, Trainer, event, job, pod, unschedulable
from tidewater.cli.top.model import HISTORY, Curve, Followed, Model, advance, throughput
from tidewater.cli.top.recoveries import recovered
from tidewater.cli.top.samples import Sample, job_sample
from tidewater.cli.top.scrape import Reading, Recoveries, Scraped, reading

BEGAN = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)


class Story:
    """One job, looked at every two seconds."""

    def __init__(self) -> None:
        self.model: Model | None = None
        self._seconds = itertools.count(0, 2)

    def look(
        self, pods: Iterable[dict[str, Any]], trainers: dict[str, Trainer], *, events: Any = (), **status: Any
    ) -> Followed:
        """Look once more; `trainers` are the processes that answer, by the uid of their pod."""
        seconds = next(self._seconds)
        metrics = {
            ("training", each["metadata"]["name"]): Scraped(
                {PORT: reading(trainers[each["metadata"]["uid"]].page, at=float(seconds))}
            )
            for each in pods
            if each["metadata"]["uid"] in trainers
        }
        sample = Sample(BEGAN + timedelta(seconds=seconds), (job_sample(job(**status), pods, events, metrics),))
        self.model = advance(self.model, sample)
        (followed,) = self.model.jobs
        return followed

    @property
    def changed(self) -> bool:
        assert self.model
        return self.model.changed


def two() -> tuple[list[dict[str, Any]], dict[str, Trainer]]:
    """Return two workers that have trained ten steps, and their pods."""
    pods = [pod(0, uid="a"), pod(1, uid="b", node="node-2")]
    trainers = {"a": Trainer(0), "b": Trainer(1)}
    for trainer in trainers.values():
        trainer.trains(10)
    return pods, trainers


def texts(followed: Followed) -> list[str]:
    return [line.text for line in followed.lines]


def test_throughput_is_the_sum_of_the_workers_shares() -> None:
    story = Story()
    pods, trainers = two()
    assert story.look(pods, trainers).throughput.last is None
    for trainer in trainers.values():
        trainer.trains(4)
    assert story.look(pods, trainers).throughput.last == pytest.approx(2 * 4 * 30 / 2)
    assert story.look(pods, trainers).throughput.last == 0


def test_the_loss_gets_a_point_for_a_new_step_only() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    story.look(pods, trainers)
    for trainer in trainers.values():
        trainer.trains(1, loss=0.25)
    assert story.look(pods, trainers).loss.points == (0.5, 0.25)


def test_a_worker_that_is_killed_and_replaced_is_told_with_the_time_that_training_stood_still() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    trainers["a"].recovers("lost", 0.12)
    trainers["a"].trains(3, generation=2, world_size=1)
    alone = story.look(pods[:1], trainers)
    assert texts(alone) == [
        "Worker 1 is gone",
        "training went on after 0.12 s: a worker was lost",
    ]
    assert alone.lead is not None
    assert (alone.lead.world_size, alone.lead.generation) == (1, 2)
    assert story.changed
    replaced = story.look([pods[0], pod(1, uid="c", phase="Pending")], trainers)
    assert texts(replaced)[-1] == "Worker 1 is new: Pending"
    trainers["c"] = Trainer(1)
    trainers["a"].recovers("joined", 0.06)
    trainers["c"].recovers("joined", 0.05)
    for name in ("a", "c"):
        trainers[name].trains(2, generation=3)
    joined = story.look([pods[0], pod(1, uid="c")], trainers)
    assert texts(joined)[-2:] == [
        "Worker 1: Pending → Running on node-1",
        "training went on after 0.06 s: a worker joined",
    ]
    assert joined.recoveries == {"lost": Recoveries(1, 0.12), "joined": Recoveries(1, 0.06)}


def test_recoveries_are_not_forgotten_with_the_worker_that_counted_them() -> None:
    story = Story()
    pods, trainers = two()
    for trainer in trainers.values():
        trainer.recovers("lost", 0.5)
    assert story.look(pods, trainers).recoveries == {"lost": Recoveries(1, 0.5)}
    trainers["b"].recovers("lost", 0.25)
    trainers["b"].trains(1, generation=2)
    assert story.look(pods[1:], trainers).recoveries == {"lost": Recoveries(2, 0.75)}
    new = [pods[1], pod(0, uid="c")]
    trainers["c"] = Trainer()
    trainers["b"].recovers("joined", 0.1)
    story.look(new, trainers)
    del trainers["b"]
    trainers["c"].recovers("lost", 0.25)
    trainers["c"].trains(1, generation=3)
    last = story.look(new[1:], trainers).recoveries
    assert last["lost"] == Recoveries(3, 1.0)


def test_after_all_workers_were_replaced_the_newcomers_counts_are_taken() -> None:
    old = {("a", PORT): Reading(at=1.0, steps=5, recoveries={"lost": Recoveries(4, 4.0)})}
    new = {("b", PORT): Reading(at=2.0, steps=1, recoveries={"start": Recoveries(1, 3.0)})}
    assert recovered(old, new, {}) == {"start": Recoveries(1, 3.0)}


def test_a_process_that_was_started_again_in_its_pod_counts_from_zero() -> None:
    before = {("a", PORT): Reading(at=0.0, steps=100, samples=3000, recoveries={"lost": Recoveries(2, 2.0)})}
    now = {("a", PORT): Reading(at=2.0, steps=2, samples=60, recoveries={"start": Recoveries(1, 1.0)})}
    assert throughput(before, now) == 30
    assert recovered(before, now, {}) == {"start": Recoveries(1, 1.0)}


def test_a_worker_that_does_not_answer_once_neither_loses_nor_doubles_its_samples() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    trainers["a"].trains(2)
    quiet = trainers.pop("b")
    quiet.trains(4)
    assert story.look(pods, trainers).throughput.last == pytest.approx(2 * 30 / 2)
    trainers["b"] = quiet
    assert story.look(pods, trainers).throughput.last == pytest.approx(4 * 30 / 4)


def test_the_numbers_are_those_of_the_worker_that_is_furthest() -> None:
    story = Story()
    pods, trainers = two()
    trainers["b"].trains(5, generation=4, loss=0.125, world_size=1)
    lead = story.look(pods, trainers).lead
    assert lead is not None
    assert (lead.rank, lead.generation, lead.loss) == (1, 4, 0.125)


def test_progress_alone_is_no_change() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    assert story.changed
    trainers["a"].trains(5)
    story.look(pods, trainers)
    assert not story.changed


def test_a_resize_and_a_worker_without_room_are_told() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    story.look([*pods, unschedulable(2)], trainers, desired=3)
    assert story.model
    assert texts(story.model.jobs[0]) == ["Worker 2 is new: Unschedulable", "desired size: 2 → 3"]


def test_an_event_is_told_once_and_those_that_repeat_what_pods_show_never() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    events = [
        event("SuccessfulCreatePod", "Created pod digits-worker-2"),
        event("ExitedWithCode", "digits-worker-1 exited with code 1", kind="Warning"),
    ]
    for _ in range(2):
        found = story.look(pods, trainers, events=events)
    assert texts(found) == ["ExitedWithCode: digits-worker-1 exited with code 1"]


def test_a_job_of_the_same_name_that_was_submitted_again_begins_anew() -> None:
    story = Story()
    pods, trainers = two()
    story.look(pods, trainers)
    assert story.model
    again = job()
    again["metadata"]["uid"] = "another"
    sample = Sample(BEGAN + timedelta(minutes=1), (job_sample(again, [], [], {}),))
    (followed,) = advance(story.model, sample).jobs
    assert (followed.loss, followed.lines, followed.recoveries) == (Curve(), (), {})


def test_a_curve_keeps_the_newest_points() -> None:
    curve = Curve()
    for value in range(HISTORY + 10):
        curve = curve.then(float(value))
    assert (len(curve.points), curve.points[0], curve.last) == (HISTORY, 10.0, HISTORY + 9)
    assert curve.then(None) == curve
