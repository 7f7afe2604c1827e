"""A training loop of the script's own, with every promise of the runtime: what ``tidewater.session`` gives.

    for batch in run.batches():                         # this worker's micro-batches, on its device
        loss = criterion(model(batch[0]), batch[1])     # a mean, or a pair: the sum and its weight
        run.step(loss)                                  # the last micro-batch of a step sums and applies it
        for report in run.reports():                    # of the steps that have become final
            print(report.step, report.loss)

All waiting, forming of groups, handing over and leaving happens before the next batch is yielded. What a step meets is
handled there as well: no error of the runtime unwinds the script's code. After a discarded step, the batches are
those of this worker's new share.

Between the yield and ``step`` the script's code runs as the loss of a ``Training`` does: with the random generators
seeded, under autocast as ``--amp`` says, and with layers of batch normalization that accept a single sample.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from torch.optim import Optimizer

from tidewater.contract import exit_codes
from tidewater.elastic.data.device import onto
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.machine_errors import ran_out_of_memory
from tidewater.elastic.method.checks import refuse_unmeasured
from tidewater.elastic.method.optimizers import several
from tidewater.elastic.script.epochs import OUT_OF_MEMORY, AutocastKept, Epochs, Event, Validation, samples_of
from tidewater.elastic.script.habits import Habits
from tidewater.elastic.session.assembly import Ended, Opened
from tidewater.elastic.session.loop import Loop, Pause
from tidewater.elastic.session.step import Outcome, Vote, Voter
from tidewater.elastic.training import Report

if TYPE_CHECKING:
    from tidewater.elastic.data.loader import Prepared
    from tidewater.elastic.session.worker import Material

__all__ = ["Pause", "Run"]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_NO_BATCH = "call it once for each batch of run.batches(), with the loss of that batch"
_OUT_OF_MEMORY = (
    "tidewater: the passes of a micro-batch don't fit in this worker's memory: give run.step a function that returns "
    "the loss (run.step(lambda: criterion(model(x), y))), so that smaller micro-batches are tried, or give "
    "--micro-batch"
)


class Stage(Enum):
    """Where the script's code is: between two micro-batches, with one, or where it is to step the optimizers."""

    BETWEEN = "between"
    GIVEN = "given"
    SUMMED = "summed"


def _noting_errors(method: Callable[Concatenate[Run, _Given], _Result]) -> Callable[Concatenate[Run, _Given], _Result]:
    """Note an error of this method, with which the step can't be continued. In each step: no context manager."""

    @functools.wraps(method)
    def noting(run: Run, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return method(run, *args, **kwargs)
        except BaseException as error:
            run._error = run._error or error
            raise

    return noting


class Run:
    """One worker's part in a job, for a loop of the script's own. For one thread."""

    def __init__(self, opened: Opened, material: Material, reports: deque[Report], validation: object = None) -> None:
        self._opened, self._session, self._reports = opened, opened.session, reports
        self._material, self._held_out = material, validation
        self._requests, self._stepper, self._begins = material.requests, material.stepper, material.begins
        self._device = opened.session.worker.group.device
        self._joined = False
        self._loop = Loop(opened.session, material, self._join)
        self._epochs = Epochs(self._session.worker.state, self._loop.evaluation, lambda: self._is_leaving)
        self._habits = Habits(material.training)
        self._iterated = self._leaves = False
        self.is_over = False
        """Whether ``batches`` has ended by itself."""
        self._begun = False
        """Whether a step has begun, and its sums have not been made."""
        self._stage = Stage.BETWEEN
        self._prepared: Prepared
        self._index = 0
        """Of the micro-batch."""
        self._autocast: AbstractContextManager[None] = nullcontext()
        if opened.session.config.amp != "off":  # otherwise a script's own autocast ends as it has begun
            self._autocast = AutocastKept(self._device.type)
        self._precision, self._passing, self._applying = ExitStack(), ExitStack(), ExitStack()
        self._may_step = False
        """Whether the optimizers are to be stepped now."""
        self._error: BaseException | None = None
        """What a step has raised: it can't be continued, whether the script has caught that or not."""
        self._hooks = [
            optimizer.register_step_pre_hook(self._refuse_stepping)
            for optimizer in several(material.training.optimizer)
            if isinstance(optimizer, Optimizer)
        ]
        self.exit_code = exit_codes.FAILED
        """The code to end the process with, once the loop has ended: 0 if the job is finished, 143 if this worker
        leaves; see ``contract.exit_codes``."""

    @property
    def rank(self) -> int:
        """This worker's rank in the step of the batch. That of rank 0 writes for the job; -1 before it has joined."""
        return self._loop.rank

    @property
    def epoch(self) -> int:
        """The number of finished epochs."""
        return self._session.worker.state.cursor.epoch

    @property
    def steps(self) -> int:
        """The number of steps that the job has made."""
        return self._session.worker.state.step

    @property
    def is_last(self) -> bool:
        """Whether the batch is the last one of its step for this worker."""
        return self._index == len(self._prepared.micro) - 1

    @property
    def has_final_state(self) -> bool:
        """Whether the job is finished and this worker has its final model. One that came too late has not."""
        return self._joined and self._session.ending.has_final_state()

    def batches(self, *, pauses: bool = False) -> Iterator[Any]:
        """Yield this worker's micro-batches, on its device, until training has ended or this worker leaves.

        Call ``step`` or ``sums`` for each before the next one. The first ones are a rehearsal, before the worker joins.

        With ``pauses``, also yield ``Pause.PAUSE`` before the first step that this worker makes in an epoch.

        Raise ConfigError, RecordError, Drifted or Diverged, with which this worker ends.
        """
        if self.is_over:
            return
        if not self._loop.validates:
            refuse_unmeasured(self._material.training)
        events = self._epochs.events() if self._loop.validates else self._events("batches")
        yield from self._batches(events, pauses=pauses)

    def epochs(self) -> Iterator[int]:
        """Yield the number of each epoch, from 0, for loops over ``batches`` and ``validation`` in it.

        An epoch comes again, without batches, if its validation was interrupted. The first turn is the rehearsal.
        """
        self._loop.validates = True
        return self._epochs.begin(self._events("epochs"))

    def validation(self, dataset: object) -> Validation:
        """Return a validation over ``dataset``, in a turn of ``epochs`` after the loop over ``batches``: see there.

        ``dataset`` is what the session has got as ``validation``, or one of several in a ``ConcatDataset``. Raise
        ConfigError if it is another one, or elsewhere. Where this worker has left in the epoch, it has no batches.
        """
        used: Any = self._material.training.validation
        samples = samples_of(dataset, self._held_out, 0 if used is None else len(used))
        here, most = self._epochs.to_validate(samples), self._session.config.step_size(1)
        return Validation(self._loop, self._session.worker, self._material, here, most=most)

    @_noting_errors
    def step(self, loss: Any) -> None:
        """Add the gradients of this batch. With the last batch of a step, sum them and step the optimizers.

        Nothing more is to be done if the step fails: ``batches`` yields what comes next.

        Args:
            loss: The mean over the batch, or a pair, the sum and its weight. Or a function that returns it: then
                smaller micro-batches are tried if the memory does not suffice for the forward pass.

        Raise ConfigError if it is no loss, if there is no batch that lacks a step, or if the script's code in between
        has done what the runtime does (``habits``). ``batches`` raises an error of this call again.
        """
        if self._sums("step", loss):
            self._may_step = True
            self._loop.apply()
            self._may_step = False

    @_noting_errors
    def sums(self, loss: Any) -> bool:
        """Do the same, but let the script step the optimizers. Return whether it is to do that now.

        Then the parameters have the gradients of the whole step, and the optimizers the learning rates for it. Call
        ``applied`` after it. Raise like ``step``; ConfigError with ``--amp fp16``.
        """
        if self._session.config.amp == "fp16":
            raise ConfigError(
                "run.sums() is used with --amp fp16, where a scaler must step the optimizers: use run.step(loss), or "
                "--amp bf16"
            )
        if not self._sums("sums", loss):
            return False
        self._applying.enter_context(self._loop.applying())
        self._stage, self._may_step = Stage.SUMMED, True
        return True

    @_noting_errors
    def applied(self) -> None:
        """Note that the script has stepped its optimizers. Raise ConfigError if ``sums`` has not returned True."""
        if self._stage is not Stage.SUMMED:
            raise ConfigError("run.applied() was called where run.sums() has not returned True: call it only then")
        self._stage, self._may_step = Stage.BETWEEN, False
        self._applying.close()

    def reports(self) -> Iterator[Report]:
        """Yield the reports of the steps that have become final since the last call, in order: the newest thousand.

        What concerns the training's own state belongs into ``on_step``, see ``Training.stateful``.
        """
        while self._reports:
            yield self._reports.popleft()

    def stop(self, reason: str) -> None:
        """End the training of all workers with the same state, a final evaluation and a checkpoint, as ``Stop`` does.

        Go on with the loop until it ends: at most two more steps are made.
        """
        if self._joined:
            self._requests.stop = self._requests.stop or reason or "no reason was given"

    def finish(self, reason: str) -> None:
        """End training with the present state. Unlike ``stop``: every worker must call it after the same step.

        Call it before the loop gets its next batch, and go on with the loop until it ends. Raise ConfigError elsewhere.
        """
        if self._stage is not Stage.BETWEEN or self._begun or not self._joined:
            raise ConfigError("run.finish() was called within a step: call it when the step has been applied")
        self._requests.stop = self._requests.stop or reason
        self._session.worker.state.stopped = True

    def leave(self) -> None:
        """Leave, as at a SIGTERM: the others go on. Go on with the loop until it ends, with the exit code 143.

        If the script ends its loop itself after that, the others discard one step.
        """
        self._leaves = True
        self._opened.leave()

    def close(self) -> None:
        """End after the script's loop. Raise ConfigError if it has ended before training and ``leave`` was not called.

        In that case, leave.
        """
        if self.is_over:
            return
        self._raise_error()
        if not self._is_leaving:
            raise ConfigError(
                "the script has left the with block of tidewater.session() before training was over (by break or "
                "return in the loop over run.batches(), or without one): to end training, call run.stop(reason) and go "
                "on with the loop until it ends, and for this worker alone, call run.leave()"
            )
        self._refuse_unfinished()
        self.exit_code = exit_codes.LEFT
        if self._begun:
            self._stepper.abandon()
        if self._joined:
            self._session.leave()
            self.exit_code = self._session.end()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Give a context for the script's code. At its end, put back what belongs to this loop."""
        try:
            yield
        except SystemExit as error:
            if self.is_over and not error.code:  # a worker that has left must not end as if the job were finished
                raise SystemExit(self.exit_code) from error
            raise
        except Exception as error:
            if ran_out_of_memory(error) and (self._stage is Stage.GIVEN or self._loop.evaluation.is_open):
                error.add_note(_OUT_OF_MEMORY if self._stage is Stage.GIVEN else OUT_OF_MEMORY)
            raise
        finally:
            self._leave_pass()
            for hook in self._hooks:
                hook.remove()

    def _join(self) -> None:
        self._opened.join()
        self._joined = True

    def _events(self, name: str) -> Iterator[Event]:
        """Yield what the loop yields; at its end, end the session."""
        if self._iterated:
            raise ConfigError(
                f"run.{name}() was called a second time before its loop had ended: it yields the {name} of the whole "
                "training, so one loop is enough; report.epoch says in which one a step was"
            )
        self._iterated = True
        try:
            yield from self._loop.steps_and_pauses()
            self.exit_code = self._session.end()
        except Ended as ended:
            self.exit_code = ended.code
        self.is_over = True

    def _batches(self, events: Iterator[Event], *, pauses: bool) -> Iterator[Any]:
        loop, stepper = self._loop, self._stepper
        for prepared in events:
            if isinstance(prepared, Pause):
                if pauses:
                    yield prepared
                continue
            self._prepared = prepared
            with loop.keeping_failures:
                stepper.begin(prepared, compare=loop.compares())
                self._begun = True
            for index, micro in enumerate(prepared.micro):
                if loop.has_failed:
                    break
                self._index = index
                batch = onto(micro.batch, self._device)
                with self._autocast:
                    self._enter_pass()
                    self._stage = Stage.GIVEN
                    self._habits.begin(rehearses=loop.rehearses)
                    yield batch
                self._refuse_unfinished()
                self._habits.end()

    def _sums(self, name: str, loss: Any) -> bool:
        """Make the passes of the batch. Return whether the sums of the step stand."""
        if self._stage is not Stage.GIVEN:
            raise ConfigError(f"run.{name}() was called without a batch, or twice for one: {_NO_BATCH}")
        self._stage, is_last, loop = Stage.BETWEEN, self.is_last, self._loop
        stands = False
        try:
            if is_last:
                stands = loop.sum(self._prepared, lambda vote: self._last(loss, vote))
            else:
                with loop.keeping_failures:
                    self._stepper.attempt(lambda: self._add(loss, Vote))
                    self._habits.added()
        finally:
            self._leave_pass()
        if loop.has_failed and self._begun:
            self._stepper.abandon()
        self._begun = not (is_last or loop.has_failed)
        return stands

    @property
    def _is_leaving(self) -> bool:
        return self._leaves or self._session.is_leaving

    def _last(self, loss: Any, vote: Voter) -> Outcome:
        self._begins()
        return self._stepper.sums(lambda: self._add(loss, vote), self._loop.meanwhile)

    def _add(self, loss: Any, vote: Voter) -> None:
        result = loss() if callable(loss) else loss
        self._precision.close()  # before the backward pass
        self._habits.check(self._index, len(self._prepared.micro))
        self._stepper.add(result, vote)
        self._passing.close()

    def _enter_pass(self) -> None:
        for stack, context in ((self._precision, self._stepper.precision()), (self._passing, self._stepper.passing())):
            if not isinstance(context, nullcontext):  # most are: not to enter them saves 10 us in each step
                stack.enter_context(context)

    def _leave_pass(self) -> None:
        self._precision.close()
        self._passing.close()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _refuse_stepping(self, *_: object) -> None:
        if not self._may_step:
            raise ConfigError(
                "the script has called optimizer.step() itself: leave it out, since run.step(loss) does it when the "
                "gradients of all workers are summed; or do it where run.sums(loss) has returned True"
            )

    def _refuse_unfinished(self) -> None:
        self._raise_error()
        if self._stage is Stage.GIVEN and not self._is_leaving:
            raise ConfigError(f"the loop has got no run.step(loss) for its batch (continue, perhaps?): {_NO_BATCH}")
        if self._stage is Stage.SUMMED:
            raise ConfigError("run.sums() has returned True, and run.applied() was not called: call it after the step")
