"""Minibatches are of one size across shards, and a shard is done once all its records are in final updates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from elasticdl.api.shards import Data, Key, ShardService
from elasticdl.errors import ElasticDLError
from elasticdl.rpc import elasticdl_pb2 as pb


class Tasks:
    """In place of a master: tasks one after the other, and what is reported."""

    def __init__(self, *tasks: pb.Task, minibatch_size: int = 4) -> None:
        self.left, self.size = list(tasks), minibatch_size
        self.held: tuple[int, ...] = ()
        self.reported: list[tuple[int, int]] = []
        self.asked = 0
        self.tasks = 10
        """Of the job."""
        self.versions: list[int] = []
        """Of the model, with each task that was done."""
        self.begun_from: list[tuple[int, int]] = []
        """Updates, and the generation of the workers that have them."""
        self.newest = 1
        """Generation."""
        self.ends: list[bool] = []

    def job(self, request: pb.JobRequest) -> pb.Job:
        if request.HasField("version"):
            self.begun_from.append((request.version, request.generation))
        return pb.Job(
            records=12,
            minibatch_size=self.size,
            tasks=self.tasks,
            ended=len(self.reported),
            version=max([0, *self.versions]),
            generation=self.newest,
        )

    def task(self) -> pb.Task:
        self.asked += 1
        task = self.left.pop(0) if self.left else pb.Task(type=pb.WAIT)
        if task.id:
            self.held = (*self.held, task.id)
        return task

    def done(self, task: int, records: int, version: int) -> bool:
        self.versions.append(version)
        self.held = tuple(each for each in self.held if each != task)
        self.reported.append((task, records))
        return True

    def give_back(self) -> None:
        self.held = ()

    def ended(self, *, everyone: bool) -> None:
        assert self.held == ()
        self.ends.append(everyone)


def task(number: int, start: int, end: int, *, shard: str = "", indices: Sequence[int] = ()) -> pb.Task:
    return pb.Task(id=number, type=pb.TRAINING, shard=shard, start=start, end=end, indices=indices)


def opened(*tasks: pb.Task) -> tuple[ShardService, Tasks]:
    master = Tasks(*tasks)
    return ShardService(master, Data(100)), master


def given(service: ShardService) -> list[list[Key]]:
    return list(service.batch_sampler)


def trained(service: ShardService) -> None:
    service.end(service.begin())


def test_a_minibatch_continues_in_the_next_shard() -> None:
    service, _ = opened(task(1, 0, 6), task(2, 6, 12))
    assert given(service) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_shards_are_taken_when_their_records_are_needed() -> None:
    service, master = opened(task(1, 0, 8), task(2, 8, 16))
    service.fetch()
    service.fetch()
    assert (master.asked, service.full, service.held) == (1, True, 1)


def test_records_are_taken_in_the_order_that_the_master_says() -> None:
    service, _ = opened(task(1, 0, 4, indices=[2, 0, 3, 1]))
    assert given(service) == [[2, 0, 3, 1]]


def test_a_record_of_a_file_is_named_with_it() -> None:
    service, _ = opened(task(1, 5, 9, shard="a"))
    assert given(service) == [[("a", 5), ("a", 6), ("a", 7), ("a", 8)]]


def test_a_shard_is_reported_when_all_its_records_are_in_final_updates() -> None:
    service, master = opened(task(1, 0, 6), task(2, 6, 12))
    given(service)
    trained(service)
    assert service.final(1) == []
    trained(service)
    assert master.reported == []
    assert service.final(1) == [1]
    trained(service)
    assert service.final(1) == [2]
    assert master.reported == [(1, 6), (2, 6)]


def test_a_rest_is_kept_until_it_may_be_used() -> None:
    service, master = opened(task(1, 0, 6))
    assert given(service) == [[0, 1, 2, 3]]
    trained(service)
    service.fetch()
    assert (service.full, service.remains, service.ready) == (False, True, False)
    service.use_rest = True
    assert service.ready
    assert given(service) == [[4, 5]]
    trained(service)
    assert service.final(1) == [1]
    assert (service.remains, service.held, master.held) == (False, 0, ())


def test_a_rest_becomes_a_whole_minibatch_when_another_shard_comes() -> None:
    service, master = opened(task(1, 0, 2))
    assert given(service) == []
    master.left.append(task(2, 2, 4))
    assert given(service) == [[0, 1, 2, 3]]


def test_what_is_given_back_is_not_reported_even_if_a_loader_has_it_still() -> None:
    service, master = opened(task(1, 0, 4))
    given(service)
    service.give_back()
    assert service.in_loader
    trained(service)
    assert (service.final(1), master.reported) == ([], [])


def test_a_minibatch_that_was_never_given_is_refused() -> None:
    service, _ = opened(task(1, 0, 4))
    with pytest.raises(ElasticDLError, match="not of these shards"):
        service.begin()


def test_the_end_of_the_job_is_noted_and_its_failure_is_an_error() -> None:
    service, _ = opened(pb.Task(type=pb.STOP))
    assert given(service) == []
    assert service.stopped
    failed, _ = opened(pb.Task(type=pb.STOP, reason="task 3 failed"))
    with pytest.raises(ElasticDLError, match="task 3 failed"):
        failed.fetch()


def test_outstanding_shards_are_those_that_have_not_ended() -> None:
    service, _ = opened(task(1, 0, 4))
    given(service)
    assert service.outstanding() == 10
    trained(service)
    service.final(1)
    assert service.outstanding() == 9


def test_a_worker_that_was_cut_off_learns_from_the_others_that_the_model_is_newer() -> None:
    service, master = opened()
    master.versions, master.newest = [40], 2
    service.begin_from(30, generation=1)
    with pytest.raises(ElasticDLError, match="a model of 40 updates, and this worker begins with 30"):
        service.begin_from(30, generation=2)
