"""This worker's part in the job: what is trained, the script's epochs and steps, and the end.

Each iteration over the training loader is an epoch of the script. It ends when the job has finished that epoch. In an
epoch that the job had finished before this worker came, there is no batch. The script's code for the end of an epoch
changes the state (a scheduler steps), so the state says after which epochs it has run (``Epochs``): a worker that gets
the state then runs it quietly (``is_passed``). The runtime has its turn whenever a batch is fetched.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tidewater import Config, ConfigError, session
from tidewater.contract import exit_codes
from tidewater.elastic.config import UNTIL_FINISHED
from tidewater.elastic.errors import TrainerError
from tidewater.elastic.script.entry import exit_code
from tidewater.elastic.script.own_loop import Pause, Run

_END = object()
_GROUP_SECONDS = 600.0
"""The workers evaluate and save on their own, so that one may wait for another."""


@dataclass
class Content:
    """What the script has prepared."""

    models: list[torch.nn.Module] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    """Of ``register_for_checkpointing``."""
    loader: Any = None

    def model(self) -> torch.nn.Module:
        """Return the model that the optimizers train; the others are constant. Raise ConfigError."""
        given = {id(each) for one in self.optimizers for group in one.param_groups for each in group["params"]}
        trained = [model for model in self.models if any(id(each) in given for each in model.parameters())]
        if len(trained) != 1:
            raise ConfigError(
                f"the script has prepared {len(trained)} models with a prepared optimizer, and a job trains one: "
                "prepare the model and its optimizer, and make several models one torch.nn.Module"
            )
        return trained[0]


class Epochs:
    """A part of the job's state: after how many epochs the script has run its code for the end of an epoch."""

    def __init__(self) -> None:
        self.ended = 0

    def state_dict(self) -> dict[str, int]:
        """Return the state."""
        return {"ended": self.ended}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Load the state of another worker or of a checkpoint."""
        self.ended = state["ended"]


class Job:
    """The part of this process in the job. One in a process."""

    def __init__(self, config: Config, *, accumulates: int, mixed_precision: str) -> None:
        self._config, self._accumulates, self._precision = config, accumulates, mixed_precision
        self.content, self.epochs = Content(), Epochs()
        self._run: Run | None = None
        self._stack = ExitStack()
        self._batches: Iterator[Any]
        self._kept: list[tuple[Any, Any]] = []
        """Registered objects that the end of an epoch must not change, since their states are from after it."""
        self._begun = 0
        """The number of epochs that the script has begun."""
        self._iterates = self._pauses = self._ends = False
        self.is_over = False
        self.is_passed = False
        """Whether the others have ended the script's epoch without this worker."""
        self.skipped = False
        """Whether neither optimizers nor schedulers are to step now."""
        self.syncs = True
        """Whether the batch is the last one of its step, and the step has not been discarded."""
        self._to_step: list[Any] = []
        """The optimizers that have the gradients of the step and have not stepped."""
        self._summed = False

    @property
    def is_open(self) -> bool:
        """Whether training has begun."""
        return self._run is not None

    @property
    def steps(self) -> int:
        """The number of steps that the job has made."""
        return self._run.steps if self._run else 0

    @property
    def writes(self) -> bool:
        """Whether this worker writes for the job. Before training begins every worker does."""
        return not self.is_passed and (self._run is None or self._run.rank == 0)

    def batches(self) -> Iterator[Any]:
        """Yield this worker's batches of the script's next epoch."""
        if self._run is None:
            self._open()
        assert self._run is not None
        self._refuse_break()
        index, self._begun, self._iterates = self._begun, self._begun + 1, True
        took_part = False
        self.epochs.ended = max(self.epochs.ended, index)
        for each, state in self._kept:
            each.load_state_dict(state)
        self._kept = []
        while not self.is_over and not (self._pauses and self._run.epoch > index):
            with self._ending():
                self._applied()
                batch = next(self._batches, _END)
            if batch is _END:
                self._end()
                break
            self._pauses = batch is Pause.PAUSE
            if self._pauses:
                self.skipped = False
                continue
            took_part = took_part or self._run.rank >= 0
            self.is_passed, self._summed = False, False
            self.syncs, self.skipped = self._run.is_last and self._run.rank >= 0, True
            yield batch
        has_ended = index < self.epochs.ended
        if has_ended:
            self._kept = [(each, deepcopy(each.state_dict())) for each in self.content.objects]
        self.is_passed = has_ended and not took_part
        self.skipped = not took_part if self.is_over else has_ended
        self.syncs, self._iterates = not self.skipped, False

    def backward(self, loss: Any) -> None:
        """Add the gradients of the batch; with the last batch of a step, sum them over the workers."""
        with self._ending():
            if self._run is None or not self._iterates:
                raise ConfigError(
                    "accelerator.backward() was called without a batch of the DataLoader that trains: iterate over "
                    "what accelerator.prepare() returns for it"
                )
            self._summed = self._run.sums(loss)
        self._to_step = list(self.content.optimizers) if self._summed else []
        self.skipped = not self._summed
        self.syncs = self._summed

    def step(self, optimizer: Any, closure: Any) -> None:
        """Step the optimizer if it has the gradients of the step."""
        with self._ending():
            if closure is not None:
                raise ConfigError(
                    "optimizer.step() has got a closure, which would compute the loss once more: call backward() first"
                )
            left = [each for each in self._to_step if each is not optimizer]
            if len(left) == len(self._to_step):
                return
            optimizer.step()
            self._to_step = left
            if not left:
                self._applied()

    def finish(self) -> None:
        """End training for all workers. Every worker calls it at the same place of the script."""
        if self._run is None or self.is_over:
            return
        with self._ending():
            self._applied()
            self._ends = True
            self._run.finish("the script has ended its loop")
            for _ in self._batches:
                pass
        self._end()

    @property
    def summed(self) -> bool:
        """Whether the parameters have the gradients of the whole step."""
        return self._summed and bool(self._to_step)

    def _applied(self) -> None:
        """Note that the optimizers have stepped."""
        if self._summed and self._run is not None:
            self._summed = False
            if self._to_step:
                raise ConfigError(
                    "the script has not called optimizer.step() for a step, or not for all optimizers: call it after "
                    "each accelerator.backward(), and set gradient_accumulation_steps instead of leaving steps out"
                )
            self._run.applied()

    def _refuse_break(self) -> None:
        if self._iterates and not self.is_over:
            with self._ending():
                raise ConfigError(
                    "the script has left its loop over the DataLoader that trains by break, and begins another epoch: "
                    "an epoch has all samples. To end training, leave the loop over the epochs too, after the same "
                    "step in all workers, and call accelerator.end_training()"
                )

    def _open(self) -> None:
        """Begin training: this worker tries the script's loop, and then joins the others."""
        loader, content = self.content.loader, self.content
        with self._ending():
            if loader is None:
                raise ConfigError("no DataLoader that trains was prepared")
            size, workers = loader.batch_size, loader.num_workers
            given = self._config
            given.user.mixed_precision = self._precision
            config = replace(
                given,
                epochs=UNTIL_FINISHED,
                batch_size=size * self._accumulates,
                micro_batch=given.micro_batch or size,
                data_workers=given.data_workers or workers,
                group_timeout_seconds=max(given.group_timeout_seconds, _GROUP_SECONDS),
            )
            own = {"epochs": self.epochs}
            named = [("scheduler", content.schedulers), ("object", content.objects)]
            self._run = self._stack.enter_context(
                session(
                    config,
                    model=content.model(),
                    optimizer=content.optimizers,
                    dataset=loader.dataset,
                    collate=loader.collate_fn,
                    stateful=own | {f"{name} {n}": each for name, found in named for n, each in enumerate(found)},
                )
            )
        self._batches = self._run.batches(pauses=True)
        atexit.register(self._close)

    def _end(self) -> None:
        """End this worker's part, when its batches have ended."""
        assert self._run is not None
        code, steps = self._run.exit_code, self._config.max_steps
        self.is_over, self.skipped = True, True
        atexit.unregister(self._close)
        self._stack.close()  # raises SystemExit if this worker has left
        if not self._ends and not 0 < steps <= self._run.steps:
            raise SystemExit(code)  # the others have finished the job, with a state that this worker lacks

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End the process with a sentence if the runtime can't go on."""
        try:
            yield
        except SystemExit:
            raise
        except BaseException as error:
            if isinstance(error, TrainerError) and not self.is_open:
                raise SystemExit(exit_code(error)) from error
            self.is_over = True
            atexit.unregister(self._close)
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise

    def _close(self) -> None:
        """Withdraw at the end of a script that has not finished the job."""
        fails = hasattr(sys, "last_value")
        error = RuntimeError("the script has ended")
        with suppress(RuntimeError):
            self._stack.__exit__(type(error), error, None)
        if not fails:
            print(
                "trainer: the script has ended and the job has not: make accelerator.end_training() its last line",
                file=sys.stderr,
                flush=True,
            )
            sys.stdout.flush()
            os._exit(exit_codes.USAGE)
