"""Which records come next, and which shards are done.

    service = ShardService(master, Data(60000, epochs=3), args)
    for keys in service.batch_sampler: ...        # the keys of a minibatch, for torch's DataLoader
    batch = service.begin(); …; service.end(batch)
    service.final(version=17)                     # the update with these records can't be undone: report whole shards

A minibatch continues in the next shard, so all have the same size; only when the master has no more shards, a rest may
be left, which is kept until nothing else is left in any worker. A key is the number of a record. Of data that the
flags name (--training_data) it is a pair, the name of the file and the number in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils.data import Sampler

from elasticdl.errors import ElasticDLError, in_one_line
from elasticdl.rpc import elasticdl_pb2 as pb

Key = int | tuple[str, int]
"""Of a record."""


@dataclass(frozen=True)
class Data:
    """The data of a script that finds it by itself. Fields that are 0 are those of the job's flags."""

    records: int = 0
    """Number of records; 0: they are those of --training_data."""
    epochs: int = 0
    minibatch_size: int = 0
    minibatches_per_task: int = 0
    shuffle: bool = False
    """Whether the records of a shard are taken in random order. The order of the shards is random in any case."""


@dataclass(frozen=True)
class Minibatch:
    """Records that are used together."""

    keys: tuple[Key, ...]
    tasks: tuple[tuple[int, int], ...]
    """Each task that they belong to, with its number of records."""


class Tasks(Protocol):
    """Where shards come from: `elasticdl.api.master.ScriptMaster`."""

    held: tuple[int, ...]
    """Tasks that were taken and are neither done nor given back."""

    def job(self, request: pb.JobRequest) -> pb.Job:
        """Say what the data is, and return what the job is."""
        ...

    def task(self) -> pb.Task:
        """Return another task, or what to do without one."""
        ...

    def done(self, task: int, records: int, version: int) -> bool:
        """Report a task as done, with the update of the model; return whether it was counted as this worker's."""
        ...

    def ended(self, *, everyone: bool) -> None:
        """Say that this worker's loop has ended before the job, and whether the training is to end for all workers."""
        ...

    def give_back(self) -> None:
        """Give all tasks that are held to others."""
        ...


class ShardService:
    """Takes shards from the master when records are needed. For one thread.

    Raise InputError if another worker's script has said that the data is different.
    """

    def __init__(self, master: Tasks, data: Data) -> None:
        self._master = master
        self._request = pb.JobRequest(
            records=data.records,
            epochs=data.epochs,
            minibatch_size=data.minibatch_size,
            minibatches_per_task=data.minibatches_per_task,
            shuffle_records=data.shuffle,
        )
        job = master.job(self._request)
        self.minibatch_size: int = job.minibatch_size
        self.records: int = job.records
        """Of one epoch."""
        self.stopped = False
        """Whether the master has said that the job has ended."""
        self.use_rest = False
        """Whether the rest of the last shards is used now, though it is no whole minibatch."""
        self._rest: deque[tuple[int, Key]] = deque()
        self._planned: deque[Minibatch] = deque()
        self._given: deque[Minibatch] = deque()
        self._sizes: dict[int, int] = {}
        self._used: Counter[int] = Counter()
        """Records of each task in updates that are not final yet, or final."""

    @property
    def batch_sampler(self) -> Sampler[list[Key]]:
        """Return the minibatches that there are now, for `DataLoader(…, batch_sampler=…)`."""
        return _BatchSampler(self)

    @property
    def held(self) -> int:
        """Return the number of shards that are not reported as done."""
        return len(self._master.held)

    @property
    def full(self) -> bool:
        """Return whether another whole minibatch is there."""
        head = self._given[0] if self._given else self._planned[0] if self._planned else None
        return head is not None and len(head.keys) == self.minibatch_size

    @property
    def remains(self) -> bool:
        """Return whether records are left, but no whole minibatch."""
        return not self.full and bool(self._rest or self._planned or self._given)

    @property
    def ready(self) -> bool:
        """Return whether a loader gets a minibatch now."""
        return bool(self._planned or (self.use_rest and self._rest))

    @property
    def in_loader(self) -> bool:
        """Return whether a loader has minibatches that were not begun."""
        return bool(self._given)

    def outstanding(self) -> int:
        """Return the number of tasks that are not done, as the master says; of all workers."""
        job = self._master.job(self._request)
        return int(job.tasks - job.ended)

    def nothing_left(self) -> bool:
        """Return whether all shards are done, as the master says."""
        return self.stopped or self.outstanding() == 0

    def begin_from(self, version: int, generation: int) -> None:
        """Say how many updates the model has had: the tasks that it has not seen are then to be done again.

        If the others are already in a newer generation, this worker finds that out in its next exchange. Raise
        ElasticDLError if the job has ended with another model.
        """
        if self.stopped:
            return  # the master may have ended, too
        job = self._master.job(pb.JobRequest(version=version, generation=generation))
        if job.version > version and job.generation <= generation:
            raise ElasticDLError(
                f"the job has ended with a model of {job.version} updates, and this worker begins with {version}",
                "Nothing is left to train. If the workers with this model were lost before they stored it, submit the "
                "job again.",
            )

    def end_early(self, *, everyone: bool) -> None:
        """Give everything to other workers, and say that this worker's loop has ended before the job."""
        self.give_back()
        self._master.ended(everyone=everyone)

    def fetch(self) -> None:
        """Take shards until there is a whole minibatch, or the master has no shard now.

        Raise ElasticDLError if the job has failed.
        """
        while not self._planned and not self.stopped:
            if len(self._rest) >= self.minibatch_size:
                self._planned.append(self._minibatch(self.minibatch_size))
                return
            task = self._master.task()
            if task.type == pb.STOP:
                self.stopped = True
                if task.reason:
                    raise ElasticDLError(f"the job has failed: {in_one_line(task.reason)}")
            if not task.id:
                return
            keys = list(task.indices) or range(task.start, task.end)
            self._sizes[task.id] = len(keys)
            self._rest.extend((task.id, (task.shard, key) if task.shard else key) for key in keys)

    def give(self) -> list[Key] | None:
        """Return the keys of the next minibatch for a loader; None if there is none now."""
        self.fetch()
        if not self._planned and self.use_rest and self._rest:
            self._planned.append(self._minibatch(len(self._rest)))
        if not self._planned:
            return None
        minibatch = self._planned.popleft()
        self._given.append(minibatch)
        return list(minibatch.keys)

    def begin(self) -> Minibatch:
        """Return the minibatch that a loader gives now: the oldest one that it was given.

        Raise ElasticDLError if there is none.
        """
        if not self._given:
            raise ElasticDLError(
                "a minibatch is trained that is not of these shards",
                "Take all minibatches from a DataLoader with the controller's batch_sampler, and train each once.",
            )
        return self._given.popleft()

    def end(self, minibatch: Minibatch) -> None:
        """Take in that a minibatch is part of an update."""
        for task, records in minibatch.tasks:
            if task in self._sizes:  # otherwise it was given back while a loader had this minibatch
                self._used[task] += records

    def final(self, version: int) -> list[int]:
        """Report each task as done once all of its records are in final updates; return the tasks that were counted.

        Args:
            version: Number of final updates.
        """
        whole = [task for task, used in self._used.items() if used == self._sizes[task]]
        for task in whole:
            del self._used[task]
        return [task for task in whole if self._master.done(task, self._sizes.pop(task), version)]

    def give_back(self) -> None:
        """Give everything that is not done to other workers, and forget it."""
        self._master.give_back()
        self._sizes.clear()
        self._used.clear()
        for each in (self._rest, self._planned):
            each.clear()

    def _minibatch(self, size: int) -> Minibatch:
        chosen = [self._rest.popleft() for _ in range(size)]
        tasks = Counter(task for task, _ in chosen)
        return Minibatch(tuple(key for _, key in chosen), tuple(tasks.items()))


class _BatchSampler(Sampler[list[Any]]):
    """Gives what there is now; the controller begins it again until the job has ended."""

    def __init__(self, service: ShardService) -> None:
        self._service = service

    def __iter__(self) -> Iterator[list[Key]]:
        while (keys := self._service.give()) is not None:
            yield keys
