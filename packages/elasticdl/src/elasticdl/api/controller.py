"""Wraps the training function of a script, so that its workers train one model together.

    with create_elastic_controller(Data(len(data), epochs=3), model, optimizer) as controller:
        loader = DataLoader(data, batch_sampler=controller.batch_sampler)
        train = controller.elastic_run(train_one_batch)
        for images, labels in controller.batches(loader):
            loss = train(images, labels)

Each call computes the gradients of one minibatch. When all workers together have those of the global batch, the model
is updated, in all of them alike. If a worker is lost meanwhile, the others keep the gradients that they have, and
compute what is missing.
"""

from __future__ import annotations

import functools
import logging
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler

from elasticdl.api import environment
from elasticdl.api.agreement import Decision, Kind, Row, decide
from elasticdl.api.assembly import Content, open_crew
from elasticdl.api.crew import Contribution, Crew, Gradients, Left
from elasticdl.api.master import Master
from elasticdl.api.optimizer import FixedBatchOptimizer
from elasticdl.api.shards import Data, Minibatch, ShardService
from elasticdl.errors import ElasticDLError
from elasticdl.worker.loop import Losses
from elasticdl.worker.main import LOG_FORMAT
from elasticdl.worker.master import Identity
from tidewater.contract import exit_codes
from tidewater.elastic.errors import GroupBroken

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("elasticdl")

WAIT_SECONDS = 0.1
"""After which workers without records ask the master again."""


@contextmanager
def create_elastic_controller(
    data: Data,
    model: torch.nn.Module,
    optimizer: FixedBatchOptimizer,
    *,
    scheduler: LRScheduler | tuple[()] = (),
    stateful: Mapping[str, Any] | None = None,
) -> Iterator[ElasticController]:
    """Give the controller of a script that `elasticdl train --job_command` runs.

    Args:
        data: How many records there are, and how they are taken.
        model: On its device.
        optimizer: Around the one that updates the model.
        scheduler: Of the inner optimizer; it is stepped after every update, not by the script.
        stateful: Further objects with `state_dict` and `load_state_dict`, which newcomers get. They must change only in
            `on_update`.

    Raises:
        InputError: a variable of the environment is missing, or another worker's script has other data.
        ConfigError: this worker can't train with the others; says what differs.
        ElasticDLError: the job has failed, or the master stays away.

    After SIGTERM the worker leaves between two updates: its shards go to others, and the process ends with 143.
    """
    found = environment.read()
    logging.basicConfig(format=LOG_FORMAT, stream=sys.stdout, level=found.args.log_level.upper())
    content = Content(model, optimizer.inner, scheduler, stateful or {})
    me = Identity(found.worker, secrets.token_hex(8))
    patience = found.args.relaunch_timeout_worker
    try:
        with (
            Master(found.master, me, patience_seconds=patience, say=log.info) as master,
            open_crew(found, content) as crew,
        ):
            every = Every(found.args.num_workers, found.args.checkpoint_steps, found.args.log_loss_steps)
            yield ElasticController(crew, ShardService(master, data), model, optimizer, every)
    except Left:
        log.info("This worker leaves after SIGTERM; its shards go to others")
        raise SystemExit(exit_codes.LEFT) from None


@dataclass(frozen=True)
class Every:
    """After how much something is due."""

    minibatches: int
    """Of all workers, of an update."""
    checkpoint_steps: int = 0
    """Updates from one checkpoint to the next; 0: none."""
    log_loss_steps: int = 0
    """Minibatches of this worker for each line with the loss; 0: none."""


class ElasticController:
    """See the module."""

    def __init__(
        self, crew: Crew, service: ShardService, model: torch.nn.Module, optimizer: FixedBatchOptimizer, every: Every
    ) -> None:
        self.data_shard_service = service
        self.on_update: Callable[[int, int], None] = lambda step, records: None
        """Called in every worker after an update is final, with its number and the records in it."""
        self._crew, self._service, self._every = crew, service, every
        self._parameters = list(model.parameters())
        self._collected: Gradients = [None] * len(self._parameters)
        self._minibatches: list[Minibatch] = []
        """Those whose gradients are collected."""
        self._now: Minibatch | None = None
        self._quota = 0
        self._entered = 0
        """Records of the last update that this worker took part in."""
        self._pending = 0
        """Records of the last update, while it is not known to be final."""
        self._met = False
        self._finished = False
        self._losses = Losses(every.log_loss_steps, log.info)
        self.rank, self.world_size = 0, 1
        optimizer.on_step = self._collect

    @property
    def step(self) -> int:
        """Return the number of updates that the model has had."""
        return self._crew.step

    @property
    def batch_sampler(self) -> Sampler[Any]:
        """Return the minibatches, for a DataLoader."""
        return self._service.batch_sampler

    def batches(self, loader: Iterable[R]) -> Iterator[R]:
        """Yield what the loader makes of the minibatches, until the job has ended.

        The loader is iterated over again and again: it ends when there are no shards now, and others may come.
        """
        while True:
            self._until_there_is_something()
            if self._finished:
                return
            yield from loader

    def elastic_run(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that does the same with one minibatch, as a part of the global batch.

        The function computes gradients and calls the optimizer's `step` once. If a worker is lost, the function is not
        called again: its gradients count once.
        """

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            while self._quota == 0 and not self._finished:
                self._agree()
            self._now = self._service.begin()
            result = function(*args, **kwargs)
            if not self._is_collected():
                raise ElasticDLError(
                    f"{function.__name__} did not call the optimizer's step",
                    "Call optimizer.step() of the FixedBatchOptimizer that the controller was created with.",
                )
            if isinstance(result, torch.Tensor) and result.numel() == 1:
                self._losses.add(float(result.detach()), self.step)
            if self._quota == 0:
                self._agree()  # at once: if the others are as far, the model is updated before this returns
            return result

        return run

    def _until_there_is_something(self) -> None:
        """Take part in what the others do until this worker has records, or the job has ended."""
        while not self._finished:
            if self._met and self._quota and (self._service.ready or self._service.in_loader):
                return
            self._agree()

    def _is_collected(self) -> bool:
        """Return whether the gradients of the minibatch that was begun last are collected."""
        return self._now is None

    def _collect(self) -> None:
        """Add the gradients in the parameters to those that are collected."""
        minibatch, self._now = self._now, None
        if minibatch is None:
            raise ElasticDLError(
                "the optimizer's step was called outside of a function of elastic_run, or twice in it",
                "Call it once for each minibatch.",
            )
        share = len(minibatch.keys) / self._whole
        for index, parameter in enumerate(self._parameters):
            if parameter.grad is None:
                continue
            mine, before = parameter.grad.detach() * share, self._collected[index]
            self._collected[index] = mine if before is None else before.add_(mine)
            parameter.grad = None
        self._minibatches.append(minibatch)
        self._quota -= 1

    @property
    def _whole(self) -> int:
        """Return the number of records of a whole global batch."""
        return self._every.minibatches * self._service.minibatch_size

    def _agree(self) -> None:
        """Exchange what each worker has, and do what follows from it; in a new generation if this one has broken."""
        if self._crew.is_overdue or (self._crew.is_leaving and self.world_size == 1):
            self._leave()
        if not self._met:
            self._meet()
        self._service.fetch()
        try:
            rows = [_row(numbers) for numbers in self._crew.exchange(_numbers(self._row()))]
            self._report_final()
            self._do(decide(rows, batches=self._every.minibatches, turn=self.step), rows)
        except GroupBroken as error:
            self._crew.broken(error)
            self._met = False

    def _do(self, decision: Decision, rows: list[Row]) -> None:
        match decision.kind:
            case Kind.COMPUTE:
                self._quota = decision.quotas[self.rank]
                self._service.use_rest = decision.remains and self._quota > 0
            case Kind.UPDATE:
                self._update(sum(row.records for row in rows))
            case Kind.WAIT:
                self._crew.pause(WAIT_SECONDS)
            case Kind.MOVE:
                self._met = False
            case Kind.FINISH:
                self._finished = True
                self._losses.tell()

    def _row(self) -> Row:
        service = self._service
        asks = self.rank == 0 and not service.full
        return Row(
            passes=len(self._minibatches),
            records=sum(len(each.keys) for each in self._minibatches),
            full=service.full,
            remains=service.remains,
            held=service.held,
            outstanding=service.outstanding() if asks else -1,
            stopped=service.stopped,
            knows=self._crew.knows,
        )

    def _meet(self) -> None:
        """Join the newest generation, and find out what has become of the gradients that this worker has."""
        try:
            met = self._crew.meet()
        except Left:
            self._leave()
        self.rank, self.world_size = met.seat.rank, met.seat.size
        self._quota, self._met = 0, True
        if met.replaced:
            if met.included:
                self._applied(self._entered)
            else:
                # The others went on without this worker: its gradients are of an old model.
                self._minibatches.clear()
                self._collected = [None] * len(self._parameters)
                self._service.give_back()

    def _leave(self) -> NoReturn:
        """Give everything to other workers, and end."""
        self._service.give_back()
        self._losses.tell()
        raise Left

    def _update(self, total: int) -> None:
        records, self._entered = sum(len(each.keys) for each in self._minibatches), total
        self._crew.update(Contribution(self._collected, records, total, self._whole))
        self._applied(total)

    def _applied(self, records: int) -> None:
        """Take in that the model was updated with what was collected."""
        for minibatch in self._minibatches:
            self._service.end(minibatch)
        self._minibatches.clear()
        self._collected = [None] * len(self._parameters)
        self._pending, self._quota = records, 0
        self._service.use_rest = False

    def _report_final(self) -> None:
        """Take in that the last update is final: all workers of the generation have it."""
        if not self._pending:
            return
        records, self._pending = self._pending, 0
        for task in self._service.final():
            log.info("Shard %d is done", task)
        self._crew.save(self._every.checkpoint_steps)
        self.on_update(self.step, records)


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(float(value) for value in row)


def _row(numbers: list[float]) -> Row:
    passes, records, full, remains, held, outstanding, stopped, knows = map(round, numbers)
    return Row(passes, records, bool(full), bool(remains), held, outstanding, bool(stopped), bool(knows))
