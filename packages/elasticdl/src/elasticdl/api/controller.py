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
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Sampler

from elasticdl.api.agreement import Decision, Kind, Row, decide
from elasticdl.api.assembly import open_script, read
from elasticdl.api.master import ScriptMaster
from elasticdl.api.optimizer import FixedBatchOptimizer
from elasticdl.api.shards import Data, Minibatch, ShardService
from elasticdl.api.update import Contribution, Gradients, Updates
from elasticdl.errors import ElasticDLError, in_one_line
from elasticdl.job import LOG_FORMAT
from elasticdl.worker.ending import Ending
from elasticdl.worker.loop import Losses
from elasticdl.worker.master import Identity
from tidewater import Report
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.session.assembly import Ended
from tidewater.elastic.session.session import Session
from tidewater.elastic.training import Learner

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("elasticdl")

EPOCHS = "epoch scheduler"
"""Its name in the state of a worker."""
WAIT_SECONDS = 0.1
"""After which workers without records ask the master again."""


@contextmanager
def create_elastic_controller(
    data: Data,
    model: torch.nn.Module,
    optimizer: FixedBatchOptimizer,
    *,
    scheduler: LRScheduler | tuple[()] = (),
    epoch_scheduler: LRScheduler | None = None,
    stateful: Mapping[str, Any] | None = None,
) -> Iterator[ElasticController]:
    """Give the controller of a script that `elasticdl train --job_command` runs.

    Args:
        data: How many records there are, and how they are taken.
        model: On its device.
        optimizer: Around the one that updates the model.
        scheduler: Of the inner optimizer; it is stepped after every update, not by the script.
        epoch_scheduler: The same, stepped once after each epoch.
        stateful: Further objects with `state_dict` and `load_state_dict`, which newcomers get. They must change only in
            `on_update`.

    Raises:
        InputError: a variable of the environment is missing, or another worker's script has other data.
        ConfigError: this worker can't train with the others; says what differs.
        ElasticDLError: the job has failed, or the master stays away.

    After SIGTERM the worker leaves between two updates: its shards go to others, and the process ends with 143.
    """
    found = read(os.environ)
    logging.basicConfig(format=LOG_FORMAT, stream=sys.stdout, level=found.args.log_level.upper())

    def on_step(report: Report) -> None:
        controller.on_update(report.step, report.batch_size)
        if epoch_scheduler is not None:
            advance(epoch_scheduler, controller.get_current_epoch())

    kept = {**(stateful or {}), **({EPOCHS: epoch_scheduler} if epoch_scheduler is not None else {})}
    learner = Learner(model, optimizer.inner, scheduler=scheduler, stateful=kept, on_step=on_step)
    me = Identity(found.worker, secrets.token_hex(8))
    patience = found.args.relaunch_timeout_worker
    try:
        with (
            ScriptMaster(found.master, me, Ending(), log.info, patience) as master,
            open_script(found, learner) as session,
        ):
            every = Every(found.args.num_workers, found.args.log_loss_steps)
            controller = ElasticController(session, ShardService(master, data), optimizer, every)
            try:
                yield controller
            except SystemExit as ends:
                if ends.code in (0, None):  # of a loop that ends with sys.exit(0)
                    controller.end()
                raise
            controller.end()
    except Ended as ended:
        raise SystemExit(ended.code) from None


@dataclass(frozen=True)
class Every:
    """After how much something is due."""

    minibatches: int
    """Of all workers, of an update."""
    log_loss_steps: int = 0
    """Minibatches of this worker for each line with the loss; 0: none."""


class ElasticController:
    """See the module."""

    def __init__(self, session: Session, service: ShardService, optimizer: FixedBatchOptimizer, every: Every) -> None:
        self.data_shard_service = service
        self.on_update: Callable[[int, int], None] = lambda step, records: None
        """Called in every worker when an update is final, with its number and the records in it; also in a newcomer
        that has got the state after an update before that was final."""
        self._session, self._service, self._every = session, service, every
        self._updates = Updates(session)
        self._parameters = list(session.worker.training.model.parameters())
        self._collected: Gradients = [None] * len(self._parameters)
        self._minibatches: list[Minibatch] = []
        """The minibatches with collected gradients."""
        self._now: Minibatch | None = None
        self._quota = 0
        self._loss = 0.0
        """Of the collected minibatches, each by its share of a whole global batch."""
        self._contributing = False
        """Whether this worker has contributed what it has collected, without knowing whether all have."""
        self._met = False
        self._enough = False
        self._finished = False
        self._losses = Losses(every.log_loss_steps, log.info)
        self.rank, self.world_size = 0, 1
        optimizer.on_step = self._collect

    @property
    def step(self) -> int:
        """Return the number of updates that the model has had."""
        return self._session.worker.state.step

    def get_current_epoch(self) -> int:
        """Return how many times all data was used, by the number of updates: it is the same in all workers."""
        return self.step * self._whole // max(1, self._service.records)

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
            for given in loader:
                yield given
                if self._is_over():
                    return

    def stop(self) -> None:
        """End the training of all workers before all data is used.

        No further update is made. A worker may compute one more minibatch, which is dropped.
        """
        self._enough = True

    def end(self) -> None:
        """Tell the master if the script's loop has ended before the job: no other worker comes in place of this one."""
        if self._service.stopped or self._finished:
            return
        try:
            self._service.end_early(everyone=self._enough)
        except ElasticDLError as error:  # a failure now would lose what the script does next
            log.warning("The end of this worker's loop could not be reported: %s", in_one_line(error))

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
            with self._updates.passes():
                result = function(*args, **kwargs)
            if not self._is_collected():
                raise ElasticDLError(
                    f"{function.__name__} did not call the optimizer's step",
                    "Call optimizer.step() of the FixedBatchOptimizer that the controller was created with.",
                )
            if isinstance(result, torch.Tensor) and result.numel() == 1:
                loss = float(result.detach())
                self._losses.add(loss, self.step)
                self._loss += loss * len(self._minibatches[-1].keys) / self._whole
            if self._quota == 0:
                self._agree()  # at once: if the others are as far, the model is updated before this returns
            return result

        return run

    def _is_over(self) -> bool:
        return self._finished

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
        if self._session.is_overdue() or (self._session.is_leaving and self.world_size == 1):
            self._leave()
        if not self._met:
            self._meet()
        self._service.fetch()
        try:
            rows = [_row(numbers) for numbers in self._session.exchange(_numbers(self._row()))]
            self._report_final()
            self._do(decide(rows, batches=self._every.minibatches, turn=self.step), rows)
        except GroupBroken as error:
            self._session.give_up(error)
            self._met = False

    def _do(self, decision: Decision, rows: list[Row]) -> None:
        match decision.kind:
            case Kind.COMPUTE:
                self._quota = decision.quotas[self.rank]
                self._service.use_rest = decision.remains and self._quota > 0
            case Kind.UPDATE:
                self._update(sum(row.records for row in rows))
            case Kind.WAIT:
                self._session.pause(time.monotonic() + WAIT_SECONDS)
            case Kind.MOVE:
                self._met = False
            case Kind.FINISH:
                self._enough = self._enough or any(row.enough for row in rows)
                if self._enough:
                    self.end()  # now, since the script may take long to store its model
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
            knows=self._session.knows(),
            enough=self._enough,
        )

    def _meet(self) -> None:
        """Join the newest generation, and find out what has become of the gradients that this worker has."""
        met = self._session.meet(self._service.nothing_left)
        if met is None:
            self._leave()
        self.rank, self.world_size = met.rank, met.size
        self._quota, self._met = 0, True
        self._service.begin_from(self.step, met.generation)
        if met.replaced and met.included and self._contributing:
            self._applied()
        elif met.replaced:
            # The others went on without this worker: its gradients are of an old model.
            if met.included:
                self._report_final()
            self._forget()
            self._service.give_back()

    def _leave(self) -> NoReturn:
        """Give everything to other workers, and end."""
        self._service.give_back()
        self._losses.tell()
        log.info("This worker leaves; its shards go to others")
        raise Ended(self._session.leaves_with)

    def _update(self, total: int) -> None:
        records = sum(len(each.keys) for each in self._minibatches)
        self._contributing = True
        self._updates.make(Contribution(self._collected, self._loss, records, total, self._whole))
        self._applied()

    def _applied(self) -> None:
        """Take in that the model was updated with what was collected."""
        for minibatch in self._minibatches:
            self._service.end(minibatch)
        self._forget()

    def _forget(self) -> None:
        """Begin to collect anew."""
        self._minibatches.clear()
        self._updates.forget()
        self._collected, self._loss = [None] * len(self._parameters), 0.0
        self._contributing, self._quota = False, 0
        self._service.use_rest = False

    def _report_final(self) -> None:
        """Report each shard as done once all of its records are in final updates."""
        for task in self._service.final(self.step):
            log.info("Shard %d is done", task)


def advance(scheduler: LRScheduler, epoch: int) -> None:
    """Step a scheduler until it is as far as the epoch. A newcomer has its state from the others."""
    while scheduler.last_epoch < epoch:
        scheduler.step()


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(float(value) for value in row)


def _row(numbers: list[float]) -> Row:
    passes, records, full, remains, held, outstanding, *rest = map(round, numbers)
    return Row(passes, records, bool(full), bool(remains), held, outstanding, *map(bool, rest))
