"""One training step on one rank: the gradients, the values sent with them, and the optimizer's step.

    outcome = stepper.gradients(prepared)      # raises GroupBroken; then nothing has changed
    lr = stepper.apply(outcome, factor=0.5)

A loop of a script makes the forward passes itself, between the same pieces:

    stepper.begin(prepared)
    for micro in prepared.micro[:-1]:
        with stepper.passing():
            stepper.attempt(lambda: stepper.add(criterion(model(micro.batch))))
    outcome = stepper.sums(passes)             # which do the same with the last one
    with stepper.applying(outcome, factor=0.5) as lr:
        optimizer.step()

Each rank weights its loss by its share of the step's samples. So the sum of the gradients over ranks (and over the
micro-batches of a rank) is the gradient of the mean over the whole step, even if the ranks have different numbers of
samples. A loss that has a weight of its own is a sum, see ``losses``: ``apply`` divides by the total of the weights.

The last bucket of gradients also carries the ballot: whether a rank knows of the next generation, whether its script
wants training to end, whether it is time for a checkpoint, the loss and its weight, whether the rank has changed
buffers that the others don't expect to be changed (see ``buffers``), and for each rank the time that its part of the
step before took. At some steps it also carries a checksum of the rank's state (see ``peer.drift``); at the others these
numbers mean nothing. Buffers have their old values until ``apply``, so a discarded step does not change them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tidewater.elastic.buffers.agreement import Buffers
from tidewater.elastic.buffers.slots import Value
from tidewater.elastic.data.device import onto
from tidewater.elastic.data.seeds import seed_alike, seed_model
from tidewater.elastic.errors import Diverged, GroupBroken
from tidewater.elastic.group.ballot import numbers
from tidewater.elastic.group.group import Group, await_all
from tidewater.elastic.group.reducer import Reducer
from tidewater.elastic.method import losses
from tidewater.elastic.method.losses import Number, Part, Total
from tidewater.elastic.method.norms import lone_sample, refuse_synchronised
from tidewater.elastic.method.outer import Local, Pace, steady
from tidewater.elastic.peer import drift
from tidewater.elastic.session import memory
from tidewater.elastic.session.state import State
from tidewater.elastic.training import Training

if TYPE_CHECKING:
    from tidewater.elastic.data.loader import Micro, Prepared

_Result = TypeVar("_Result")
_BALLOT = 6
"""Number of values in a ballot besides those of the ranks."""
AMP_TYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}
SUM_TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_NOTHING = contextlib.nullcontext()


@dataclass(frozen=True)
class Vote:
    """What one rank says with its gradients."""

    knows: bool = False
    """Whether it knows of the next generation."""
    stops: bool = False
    """Whether it wants training to end with this step."""
    saves: bool = False
    """Whether it wants the state after this step to be saved."""
    work_seconds: float = 0.0
    """Time of its own part of the step before."""


@dataclass(frozen=True)
class Outcome:
    """The result of a step over all ranks. The gradients themselves are in the parameters."""

    loss: float
    """Mean over the samples of the step, or over their weights."""
    everyone_knows: bool
    """Whether all ranks know of the next generation."""
    buffers: Mapping[str, Value]
    """The new values of the model's buffers that have changed."""
    gradient_factor: float = 1.0
    """The gradients in the parameters are to be multiplied by it."""
    stops: bool = False
    """Whether training ends with this step."""
    saves: bool = False
    """Whether the state after this step is to be saved."""
    work_seconds: tuple[float, ...] = ()
    """For each rank the time of its own part of the step before; see ``peer.stragglers``."""


Voter = Callable[[], Vote]


@dataclass
class _Step:
    """A step between its beginning and its sums."""

    prepared: Prepared
    compare: bool
    """Whether the ranks also compare their states."""
    largest: int
    """Samples of the largest micro-batch."""
    total: Total = field(default_factory=Total)
    """The sum of this rank's losses."""
    index: int = 0
    """Of the next micro-batch."""


class Stepper:
    """Makes steps with the model of ``training``, in the current generation of ``group``.

    Raises ConfigError if the model synchronizes batch normalization. ``sum_dtype`` is a type of 16 bits in which the
    gradients are summed, or None. ``seed`` is that of the model's random numbers.
    """

    _divides = False  # whether this process has a part of the gradients also without samples of its own

    def __init__(
        self,
        training: Training,
        state: State,
        group: Group,
        *,
        amp: str,
        sum_dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        self._training, self._state, self._group = training, state, group
        self._seed, self._amp = seed, AMP_TYPES[amp]
        parameters, outer = training.model.named_parameters(), state.outer
        self._reducer = Reducer(group, parameters, self._load, sum_dtype, copies=outer is not None)
        self.rehearsal = self._reducer.rehearsal
        """Returns a context in which a rank that is alone makes its steps as one of several does."""
        self._buffers, self._parameters = Buffers(training.model, group), list(training.model.parameters())
        self._ballot, self._check = (torch.zeros(size, device=group.device) for size in (0, drift.SENT))
        self._step: _Step
        self._local = Local(training.model, state.optimizers, outer) if outer else None
        refuse_synchronised(training.model)

    def gradients(
        self,
        prepared: Prepared,
        vote: Voter = Vote,
        *,
        compare: bool = False,
        meanwhile: Callable[[], None] = lambda: None,
        pace: Pace = steady,
    ) -> Outcome:
        """Leave the gradients of the whole step, by the training's loss, in the parameters; a collective call.

        Raise like ``sums``. ``vote`` is asked for when the sums begin, and ``pace`` is that of inner steps.
        """
        self.begin(prepared, compare=compare)
        local = self._local
        passes = (lambda: self._step_locally(local, vote, pace)) if local else (lambda: self._accumulate(vote))
        return self.sums(passes, meanwhile)

    def begin(self, prepared: Prepared, *, compare: bool = False) -> None:
        """Begin a step: then come the passes of each micro-batch, and the sums.

        Note the values of the buffers, and with ``compare``, make the checksum of the state, which the ranks then
        compare. Raise OutOfMemory.
        """
        compare = compare and self._group.size > 1
        self._step = _Step(prepared, compare, max([micro.size for micro in prepared.micro]))
        with self.enough_memory(self._step.largest):
            self._buffers.begin()
            if compare:
                device = self._group.device
                with self._buffers.agreed():
                    self._check.copy_(drift.digits(drift.checksum(self._state.tensors(), device), device))
            self._reducer.reset(1 if self._local else len(prepared.micro))

    def attempt(self, passes: Callable[[], _Result]) -> _Result:
        """Return what passes return. After an error the buffers have the values again that they had before the step.

        Raise OutOfMemory if a smaller micro-batch may fit; ConfigError if one sample does not fit.
        """
        try:
            with self.enough_memory(self._step.largest):
                return passes()
        except BaseException:
            self._buffers.restore()
            if self._local:
                self._local.abandon()
            raise

    def passing(self) -> contextlib.AbstractContextManager[None]:
        """Seed the model's random numbers, and return the context of both passes of the next micro-batch."""
        index = self._step.index
        seed_model(self._seed, self._state.step + 1, self.place[0], index, self._group.device)
        # Also for the backward pass, which repeats forward passes if the model stores no activations.
        alone = self._step.prepared.micro[index].size == 1
        return lone_sample(self._training.model) if alone else _NOTHING

    def add(self, result: Any, vote: Voter = Vote) -> None:
        """Add the gradients of the next micro-batch, by what the loss has returned for it.

        The last one starts the sums over the ranks, and asks for this rank's ``vote``. Raise ConfigError if the result
        is neither a number nor a pair of numbers.
        """
        part, micro = self._part(result), self._step.prepared.micro
        if self._step.index < len(micro):
            self._buffers.fold(micro[self._step.index - 1].size / sum([each.size for each in micro]))
            self._backward(part)
            self._buffers.rewind()  # not before: the backward pass may need what is in them
            return
        has_gradient = self._announce(vote()) > 0 or self._divides
        if has_gradient:
            self._reducer.watch()
        self._backward(part)
        if not has_gradient:  # without samples of its own, a rank has no gradient
            self._reducer.reset()
        self._reducer.flush([self._ballot, self._check])

    def sums(self, passes: Callable[[], None], meanwhile: Callable[[], None] = lambda: None) -> Outcome:
        """Make the last passes, and wait for the sums over the ranks. They are the gradients in the parameters then; a
        collective call.

        ``meanwhile`` is called in between, when this rank has done its part.

        Raise GroupBroken on any failure of a peer, and on all ranks if their states differ; OutOfMemory if a smaller
        micro-batch may fit; Diverged, on all ranks, if the loss is not a number.
        """

        def summed() -> Sequence[torch.Tensor]:
            passes()
            meanwhile()
            return self._reducer.sums()

        return self._judged(*self.attempt(summed))

    def _judged(self, ballot: torch.Tensor, check: torch.Tensor) -> Outcome:
        """Return what the sums of ballot and checksum say, and the buffers. Raise like ``sums``."""
        step, prepared = self._step, self._step.prepared
        self._buffers.restore()
        differ = step.compare and not drift.agree(check.tolist(), self._group.size)
        (knowing, stopping, saving, loss, weight, more, *works), differ = self._totals(ballot.tolist(), differ)
        if differ:
            self._state.suspect = True
            raise GroupBroken("the states of the workers differ")
        if step.compare:
            self._state.repairs = 0
        factor = 1.0
        if step.total.weighted or weight:  # this rank's losses may all be constants without a weight
            loss, factor = losses.divided(loss, weight, len(prepared.step.samples))
        if not math.isfinite(loss):
            await_all(self._group)
            odd = step.total.odd_samples(prepared.step.share(*self.place))
            raise Diverged(losses.verdict(self._state.step + 1, loss, odd))
        buffers = self._buffers.sums(more > 0)
        factor = 1.0 if self._local else factor  # what inner steps have changed is divided already
        all_know = round(knowing) == self._group.size
        return Outcome(loss, all_know, buffers, factor, stopping > 0, saving > 0, tuple(works))

    @property
    def place(self) -> tuple[int, int]:
        """The rank of this process among those that share a step, and their number."""
        return self._group.rank, self._group.size

    def _totals(self, ballot: list[float], differ: bool) -> tuple[list[float], bool]:
        """Return the sums of the ballot and whether states differ, over all processes of this worker."""
        return ballot, differ

    def abandon(self) -> None:
        """Give the step up that was begun: the buffers have the values again that they had before it."""
        self._buffers.restore()

    def apply(self, outcome: Outcome, factor: float) -> float:
        """Update the buffers and step the optimizers with ``factor`` on their learning rates.

        Return the learning rate of the first parameter group.
        """
        self._ready(outcome)
        with memory.EnoughForTheOptimizer():
            if not self._local:
                return self._state.optimizers.step(factor)
            self._state.extra_steps += len(self._step.prepared.step.shares(0, 1)) - 1
            return self._local.apply()

    @contextlib.contextmanager
    def applying(self, outcome: Outcome, factor: float) -> Iterator[float]:
        """Update the buffers, and give a context in which every optimizer is to be stepped, with ``factor`` on the
        learning rates. Yield that of the first parameter group."""
        self._ready(outcome)
        with memory.EnoughForTheOptimizer(), self._state.optimizers.stepping(factor) as rate:
            yield rate

    def _ready(self, outcome: Outcome) -> None:
        """Update the buffers, and make the gradients those of the step."""
        self._buffers.apply(outcome.buffers)
        if outcome.gradient_factor != 1.0:
            gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
            if gradients:
                torch._foreach_mul_(gradients, outcome.gradient_factor)
        # Not restored afterwards, which takes longer: hooks and the next pass are seeded anyway.
        seed_alike(self._seed, "update", self._state.step + 1, self._group.device)

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return the autocast context for ``--amp``."""
        return torch.autocast(self._group.device.type, dtype=self._amp) if self._amp else _NOTHING

    def evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for passes that don't train: what they change in buffers is undone."""
        return self._buffers.unchanged()

    def _load(self) -> tuple[int, int]:
        """Return the lengths of what is sent with the gradients."""
        return _BALLOT + self._group.size, drift.SENT

    def enough_memory(self, samples: int) -> contextlib.AbstractContextManager[None]:
        """Return a context for passes with so many samples. It raises like ``attempt``."""
        return memory.EnoughMemory(self._state, self._group, samples=samples, release=self._reducer.reset)

    def _accumulate(self, vote: Voter) -> None:
        """Run both passes of all micro-batches, with the training's loss."""
        for micro in self._step.prepared.micro:
            with self.passing():
                self.add(self._forward(micro), vote)

    def _step_locally(self, local: Local, vote: Voter, pace: Pace) -> None:
        """Make the inner steps, start the sums of what they have changed, and put back what was there before."""
        step, micros, done = self._step.prepared.step, iter(self._step.prepared.micro), 0
        with memory.EnoughForTheOptimizer():
            local.begin()
        shares = step.shares(self._group.rank, self._group.size)
        for index, (share, samples) in enumerate(zip(shares, step.shares(0, 1), strict=True)):
            self._group.check()
            factor = pace(done, len(step.samples))
            done += len(samples)
            if share:
                correction = self._passes_of(len(share), micros)
                seed_alike(self._seed, f"update {index}", self._state.step + 1, self._group.device)
                with memory.EnoughForTheOptimizer():
                    local.step(factor, correction)
            else:
                local.skip(factor)
        local.give(self._announce(vote()))
        self._reducer.flush([self._ballot, self._check])
        local.put_back()

    def _passes_of(self, samples: int, micros: Iterator[Micro]) -> float:
        """Run the passes of an inner step with so many samples. Return the factor on its gradients."""
        total, done, whole = Total(), 0, len(self._step.prepared.step.samples)
        while done < samples:
            with self.passing():
                micro = next(micros)
                part = self._part(self._forward(micro))
                total.add(part, micro.size)
                self._backward(part._replace(seed=part.seed * whole / samples))
            done += micro.size
        return float(losses.divided(0.0, float(total.weight), samples)[1]) if total.weighted else 1.0

    def _part(self, result: Any) -> Part:
        """Return the part of the next micro-batch in the loss of the step, which has it from now on."""
        step, prepared = self._step, self._step.prepared
        micro = prepared.micro[step.index]
        part = losses.part_of(result, weight=micro.weight, samples=len(prepared.step.samples))
        step.total.add(part, micro.size)
        step.index += 1
        return part

    def _announce(self, vote: Vote) -> float:
        """Start the sum of the buffers, and fill in the ballot. Return this rank's share of the step's samples."""
        total, weight = self._step.total, sum([each.weight for each in self._step.prepared.micro])
        self._buffers.take()
        more = self._buffers.send(weight)
        works = [vote.work_seconds if rank == self._group.rank else 0.0 for rank in range(self._group.size)]
        self._fill_in(vote.knows, vote.stops, vote.saves, total.value, total.weight, more, *works)
        return weight

    def _fill_in(self, *values: Number) -> None:
        """Fill in the ballot with this rank's values."""
        if self._ballot.numel() != len(values):
            self._ballot = torch.zeros(len(values), device=self._group.device)
        if self._group.device.type == "cpu":  # without torch: each of its calls takes 20 us when caches are cold
            self._ballot.numpy()[:] = values
            return
        known = [0.0 if isinstance(each, torch.Tensor) else each for each in values]
        self._ballot.copy_(numbers(known, self._group.device))
        for place, each in enumerate(values):
            if isinstance(each, torch.Tensor):
                self._ballot[place] = each

    def _forward(self, micro: Micro) -> Any:
        with self.precision():
            return self._training.loss(self._training.model, onto(micro.batch, self._group.device))

    def _backward(self, part: Part) -> None:
        """Add the gradients of a part of the loss. It has none if it is a constant, as where no sample has a label."""
        if part.loss.requires_grad:
            torch.autograd.backward(part.loss, self._state.scaler.scale(torch.full_like(part.loss, part.seed)))
