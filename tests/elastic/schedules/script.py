"""The training script of the forked workers: a tiny regression that keeps a ledger of its samples.

It has every kind of state: parameters, momentum, buffers that the forward pass changes, and an average of the weights
and an attribute of the model that change in ``on_step``.

    exit_code = main(Options(...), argv)

The dataset returns each sample's index as part of the sample, so that the loss function knows which samples it really
gets. Timing and randomness are controlled: steps take about a millisecond, and all workers compute the same.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import tidewater
from tests.elastic.group import faulty, kinds
from tests.elastic.regression import FEATURES, divisible, network
from tests.elastic.schedules import breakages
from tests.elastic.schedules.ledger import SUFFIX, Attempt, Final, Restored, Scribe, Validated, Written
from tests.elastic.schedules.points import MIDDLE, Points
from tests.elastic.session.evaluation.held_out import HELD_OUT, Keys, go_through, times
from tidewater.contract import env
from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.membership.rules import Generation
from tidewater.elastic.observe.tracker import Tracker, Write
from tidewater.elastic.script.epochs import Validation
from tidewater.elastic.script.own_loop import Run
from tidewater.elastic.session import handover
from tidewater.elastic.session.state import State
from tidewater.elastic.session.worker import Worker
from tidewater.elastic.training import Report, Training

TOTAL = 50
BATCH_SIZE = 7
"""50 is no multiple: an epoch's last step has one sample, so most ranks have none."""
STUCK = "stuck"
_STUCK_SECONDS = 0.02
_EPOCH_SEEDS = 20261121


@dataclass(frozen=True)
class Options:
    """A test's settings for one worker, in addition to its command line."""

    folder: Path
    """Of this worker: its log, and the files that arm its points."""
    ledgers: Path
    process: str
    breakage: str = ""
    """One of ``breakages.ALL``."""
    hidden: int = 4
    """Width of the model."""
    dropout: float = 0.0
    nan_at: int = 0
    """The loss of this step is not a number."""
    overflow_at: int = 0
    """The gradients of this step are infinite in this worker."""
    memory: int = 1000
    """Samples that fit in one pass."""
    flip_at: int = 0
    """A bit of a parameter is flipped after this step."""
    clock_skew_seconds: float = 0.0
    group: str = "reconfigured"
    """One of ``kinds.KINDS``."""
    stream: bool = False
    """The dataset is a stream."""
    sample_seconds: float = 0.0
    """How long this worker takes to read a sample, in addition."""
    stuck: bool = False
    """Reading a sample hangs in this worker while its folder has the file ``STUCK``."""
    fault: tuple[str, str] | None = None
    """What fails in this worker only, see ``faulty.install``."""
    own_loop: str = ""
    """How a loop of its own gives the loss: ``tensor``, ``function`` or ``sums``. It validates after each epoch.
    Otherwise the script gives a training to ``tidewater.run``, which does so with a score."""
    raises_at: int = 0
    """The body of the loop of its own raises an error in this step."""
    inner_steps: int = 0
    """The value of ``--sync-every``, if it is given."""
    part: tuple[int, int] = (0, 1)
    """The index of this process among those that divide the model, and their number."""
    meeting: str = ""
    """Where these meet."""
    whole: bool = False
    """Whether the model is the one that several processes divide, and isn't divided."""
    fails_alone: bool = False
    """Whether it fails also before this worker has joined others."""


class Numbers(Dataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """Samples of an input, a noisy function of it, and its index."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        """Called before a sample is read."""
        generator = torch.Generator().manual_seed(_EPOCH_SEEDS)
        self._inputs = torch.randn(TOTAL, FEATURES, generator=generator)
        weights = torch.randn(FEATURES, 1, generator=generator)
        self._targets = self._inputs @ weights + torch.randn(TOTAL, 1, generator=generator)

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        self._before()
        return self._inputs[index], self._targets[index], index


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor, int]]):
    """The same samples in their order, without an index."""

    def __init__(self) -> None:
        self._numbers, self._next = Numbers(), 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        while self._next < TOTAL:
            self._next += 1
            yield self._numbers[self._next - 1]
        self._next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]


def gain_after(step: int) -> float:
    """Return the factor on what the model returns that ``on_step`` of this step sets.

    A pass that sees that of another step than in an undisturbed run has another loss.
    """
    return 1 + 0.1 * (step % 3)


class Average:
    """An exponential average of a model's parameters, and the number of steps in it."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._values = [parameter.detach().clone() for parameter in model.parameters()]
        self._steps = 0

    def update(self) -> None:
        for mine, now in zip(self._values, self._model.parameters(), strict=True):
            mine.lerp_(now.detach(), 0.1)
        self._steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"values": self._values, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values, self._steps = list(state["values"]), state["steps"]


class Witness:
    """Records what this process does."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._scribe = Scribe(options.ledgers / f"{options.process}{SUFFIX}")
        self._points = Points(options.folder)
        self._state: State | None = None
        self._average: Average
        self._tracker = Tracker(self._board)
        self._generation: Generation | None = None
        self._rank = 0
        self._index, self._parts = options.part
        self._restored_from = 0
        """Generation that applied the last step of the checkpoint that was read; 0: there was none."""

    def install(self) -> None:
        """Record every generation at its start, and install the named moments."""
        synchronise, restore, load = handover.synchronise, handover._restore, Checkpoints.load

        @functools.wraps(synchronise)
        def witnessed(worker: Worker, generation: Generation, rank: int, *more: Any) -> Any:
            self._state, self._generation = worker.state, generation
            self._rank = rank * self._parts + self._index
            return synchronise(worker, generation, rank, *more)

        @functools.wraps(restore)
        def restored(worker: Worker, generation: Generation, *more: Any) -> None:
            state = worker.state
            applied_in, runs = state.applied_in, state.runs
            restore(worker, generation, *more)
            # Before the state is sent: this process, or its generation, may end during the transfer.
            base = applied_in if state.runs is runs else self._restored_from
            self._scribe.write(Restored(state.step, generation.number, base))

        @functools.wraps(load)
        def loaded(checkpoints: Checkpoints, *more: Any) -> Any:
            found = load(checkpoints, *more)
            self._restored_from = found.tree["applied_in"] if found else 0
            return found

        handover.synchronise = witnessed  # type: ignore[assignment]
        handover._restore = restored  # type: ignore[assignment]
        Checkpoints.load = loaded  # type: ignore[assignment, method-assign]
        self._points.install()

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the mean squared error; the ledger records its backward pass."""
        inputs, targets, samples = batch
        self._need_memory(len(samples))
        gain = getattr(model, "gain", 1.0)  # the modules of libraries have none
        loss = nn.functional.mse_loss(model(inputs) * gain, targets)
        if loss.requires_grad and self._state is not None:
            ids = tuple(int(sample) for sample in samples)
            # Called with the weight of this mean in the whole step, before any parameter has its gradient.
            hookable: Any = loss
            hookable.register_hook(lambda weight: self._attempted(ids, float(weight)))
            if self._state.step + 1 == self.options.nan_at:
                loss = loss * float("nan")
            if self._state.step + 1 == self.options.overflow_at:
                hookable.register_hook(lambda weight: weight * float("inf"))
        return loss

    def raise_if_asked(self) -> None:
        """Raise an error of the script's own in the step that the test has named."""
        if self._state is not None and self._state.step + 1 == self.options.raises_at:
            raise KeyError("label")

    def _read(self) -> None:
        if self.options.sample_seconds:
            time.sleep(self.options.sample_seconds)
        while self.options.stuck and (self.options.folder / STUCK).exists():
            time.sleep(_STUCK_SECONDS)

    def _need_memory(self, samples: int) -> None:
        if samples > self.options.memory:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def _attempted(self, samples: tuple[int, ...], weight: float) -> None:
        state, generation = self._state, self._generation
        assert state is not None
        assert generation is not None
        cursor, inner = state.cursor, self.options.inner_steps
        most = BATCH_SIZE * (inner or 1)
        if inner:  # the gradient is that of an inner step of this worker
            weight = weight and len(samples) / min(most, TOTAL - cursor.offset)
        self._scribe.write(
            Attempt(
                step=state.step + 1,
                generation=generation.number,
                rank=self._rank,
                size=len(generation.members) * self._parts,
                epoch=cursor.epoch,
                base=state.applied_in,
                weight=weight,
                samples=samples,
            )
        )
        self._points.reach("gradients")
        if cursor.offset + most >= TOTAL:
            self._points.reach("epoch-gradients")

    def score(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Return the sum of the keys."""
        keys, samples = batch
        self._validates(samples.tolist())
        self._need_memory(len(samples))
        return keys.sum().double()

    def validate(self, epoch: int, validation: Validation, model: nn.Module) -> None:
        """Go through a validation at the end of an epoch, and record its totals."""
        go_through(validation, model, FEATURES, self._validates)
        if validation.totals is not None:
            state, generation = self._state, self._generation
            assert state is not None
            assert generation is not None
            found = times(validation.totals)
            self._scribe.write(Validated(epoch, state.step, generation.number, found, validation.totals["outputs"]))

    def _validates(self, samples: list[int]) -> None:
        if self._state is None:  # in the warm-up
            return
        self._points.reach("score")
        if max(samples) >= HELD_OUT // 2:
            self._points.reach(MIDDLE)

    def on_step(self, report: Report) -> None:
        """Update the average and what the passes multiply, and record a final step."""
        state = self._state
        assert state is not None
        self._average.update()
        model: Any = state.model
        model.gain = gain_after(report.step)
        self._scribe.write(
            Final(
                step=report.step,
                generation=report.generation,
                rank=report.rank * self._parts + self._index if report.rank >= 0 else -1,
                size=report.world_size,
                loss=report.loss,
                digest=state.digest() if state.step == report.step else "",
                at=time.monotonic(),
                samples=report.samples,
                scale=state.scaler.get_scale(),
                part=self._index,
            )
        )
        if report.step == self.options.flip_at:
            next(state.model.parameters()).detach().view(torch.int32)[0, 0] ^= 1
        self._points.reach("final")
        self._tracker(report)
        if state.cursor.offset == 0:
            self._points.reach("epoch-final")

    @contextlib.contextmanager
    def _board(self, step: int) -> Iterator[Write]:
        opened = time.monotonic()
        yield lambda seen: self._scribe.write(Written(seen.step, step, opened))

    def training(self, config: tidewater.Config) -> Training:
        """Return the workers' training."""
        torch.manual_seed(_EPOCH_SEEDS)
        size = self.options.hidden, self.options.dropout
        divided = self._parts > 1
        plain = divided or self.options.whole
        model: Any = divisible(*size, config.mesh if divided else None) if plain else network(*size)
        model.gain = gain_after(0)
        self._average = Average(model)
        # Low enough that rounding errors vanish: at ten times this rate they grow, and runs differ.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9, weight_decay=1e-3)
        optimizer.register_step_pre_hook(lambda *_: self._points.reach("apply"))
        optimizer.register_step_post_hook(lambda *_: self._points.reach("applied"))
        return Training(
            model=model,
            optimizer=optimizer,
            dataset=Stream() if self.options.stream else Numbers(self._read),
            loss=self.loss,
            validation=Keys(),
            score=self.score,
            stateful={"average": self._average},
            on_step=self.on_step,
        )


def main(options: Options, argv: list[str]) -> int:
    """Train as one worker."""
    if options.clock_skew_seconds:
        real = time.time
        time.time = lambda: real() + options.clock_skew_seconds
    index, parts = options.part
    if parts > 1:  # as a launcher does
        meeting = {env.LOCAL_MEETING: options.meeting, env.LOCAL_LIMIT: f"{options.meeting}-limit"}
        os.environ |= {env.LOCAL_RANK: str(index), env.LOCAL_SIZE: str(parts), **meeting}
    kinds.use(options.group)
    witness = Witness(options)
    witness.install()
    if options.fault:
        faulty.install(*options.fault, alone=options.fails_alone)
    if options.breakage:
        breakages.ALL[options.breakage]()
    return own_loop(witness, argv) if options.own_loop else tidewater.run(witness.training, argv)


def own_loop(witness: Witness, argv: list[str]) -> int:
    """Train the same in a loop of the script's own, which also validates. Return the exit code."""
    config = tidewater.init(argv)
    training = witness.training(config)
    given = {each.name: getattr(training, each.name) for each in fields(training)}
    del given["loss"], given["score"]
    with tidewater.session(config, **given) as run:
        for epoch in run.epochs():
            for batch in run.batches():
                witness.raise_if_asked()
                _step(run, functools.partial(witness.loss, training.model, batch), training, witness.options.own_loop)
                for report in run.reports():
                    print(f"reported {report.step}", flush=True)
            witness.validate(epoch, run.validation(training.validation), training.model)
    return run.exit_code


def _step(run: Run, loss: Callable[[], torch.Tensor], training: Training, way: str) -> None:
    if way == "function":
        run.step(loss)
    elif way == "tensor":
        run.step(loss())
    elif run.sums(loss()):
        cast("torch.optim.Optimizer", training.optimizer).step()
        run.applied()
