"""The workers that train together, with a loop that is the script's.

    crew = assembly.open_crew(…)
    seat = crew.meet()                       # in the newest generation, with the same state as all others
    table = crew.exchange((1, 32, 0))        # a row of numbers of each worker
    crew.update(gradients, seat)             # sums over the workers, and the optimizer's step
    crew.broken(error); seat = crew.meet()   # after a GroupBroken of any of these

It is the trainer's own loop (`tidewater.elastic.loop`) with its membership, its process group and its handover of the
state. Only what makes a step differs: here the script does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tidewater.elastic.config import Config
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.evaluation import Seat
from tidewater.elastic.group.reducer import Reducer
from tidewater.elastic.loop import Loop
from tidewater.elastic.membership.rules import Generation
from tidewater.elastic.observe.log import Log
from tidewater.elastic.parts import Parts
from tidewater.elastic.peer import handover
from tidewater.elastic.state import made_in

Gradients = list[torch.Tensor | None]


class Left(Exception):
    """This worker was asked to leave, and the others go on without it."""


@dataclass(frozen=True)
class Met:
    """How a worker came into a generation."""

    seat: Seat
    replaced: bool
    """Whether another worker's state took the place of this worker's."""
    included: bool
    """Whether the update that this worker last took part in is in the present state."""


@dataclass(frozen=True)
class Contribution:
    """What one worker adds to an update."""

    gradients: Gradients
    """By parameter: the sum over its minibatches, each by its share of a whole global batch; None: there is none."""
    records: int
    """Of this worker."""
    total: int
    """Of all workers."""
    whole: int
    """Records of a whole global batch."""


class Crew(Loop):
    """One worker's part. One thread uses it, but any thread may call `leave`."""

    def __init__(self, config: Config, parts: Parts, log: Log) -> None:
        super().__init__(config, parts, log)
        model = parts.training.model
        self._parameters = list(model.parameters())
        self._floats = [each for each in model.buffers() if each.is_floating_point()]
        self._counts = [each for each in model.buffers() if not each.is_floating_point()]
        self._reducer = Reducer(parts.group, model.named_parameters())
        self._entered = (0, 0)
        """Step and generation of the last update that this worker took part in."""

    @property
    def step(self) -> int:
        """Return the number of updates that the model has had."""
        return self._parts.state.step

    @property
    def knows(self) -> bool:
        """Return whether this worker knows of a newer generation."""
        return self._parts.coordinator.view.number > self._current().number

    def meet(self) -> Met:
        """Enter the next generation, and return when all its workers have the same state.

        Raise Left when this worker was asked to leave and is in no generation any more.
        """
        while True:
            generation = self._next_generation()
            if generation is None:
                raise Left
            self._enter(generation)
            try:
                if len(generation.members) < self._config.least_members:
                    self._hold(generation)
                else:
                    return self._met(generation)
            except GroupBroken as error:
                self.broken(error)

    def exchange(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of all workers, by rank. Collective. Raise GroupBroken."""
        generation = self._current()
        rank, width = self._parts.group.rank, len(row)
        table = [0.0] * width * len(generation.members)
        table[rank * width : (rank + 1) * width] = map(float, row)
        self.waiting_since = time.monotonic()
        sums = list(self._parts.group.tally(table))
        self.waiting_since = None
        self._touch.stay(generation)
        return [sums[first : first + width] for first in range(0, len(sums), width)]

    def update(self, mine: Contribution) -> None:
        """Update the model with the gradients of all workers. Collective.

        Raise GroupBroken on any failure of a peer: then nothing has changed here.
        """
        group, state, generation = self._parts.group, self._parts.state, self._current()
        self._entered = state.step + 1, generation.number
        self._reducer.reset()
        for parameter, gradient in zip(self._parameters, mine.gradients, strict=True):
            # A copy, because the sums are made in place, and a failure must not spoil what is collected.
            parameter.grad = None if gradient is None else gradient.clone()
        self.waiting_since = time.monotonic()
        share = mine.records / mine.total
        averages = [each.detach().flatten().float() * share for each in self._floats]
        first = [each.detach().flatten().float() * (group.rank == 0) for each in self._counts]
        self._reducer.flush([*averages, *first])
        sums = self._reducer.sums()
        self.waiting_since = None
        self._touch.stay(generation)
        if mine.total != mine.whole:
            summed = [each.grad for each in self._parameters if each.grad is not None]
            torch._foreach_mul_(summed, mine.whole / mine.total)
        with torch.no_grad():
            for buffer, value in zip([*self._floats, *self._counts], sums, strict=True):
                buffer.copy_(value.view_as(buffer))
        state.optimizers.step(1.0)
        state.advance(Cursor(0, state.step + 1), generation.number)
        self._reducer.reset()

    def save(self, every: int) -> None:
        """Save a checkpoint if one is due after the last update, which is final, and this worker has rank 0."""
        state = self._parts.state
        if every and state.step % every == 0 and self._parts.group.rank == 0:
            self._parts.checkpoints.save(state.history, state.tree())

    def broken(self, error: GroupBroken) -> None:
        """Give up the generation."""
        self.waiting_since = None
        self._reducer.reset()
        self._log.event("step_discarded", generation=self._current().number, reason=str(error))
        self._parts.heartbeat.tense(True)
        self._parts.coordinator.ready_after(self._current().number)

    def pause(self, seconds: float) -> None:
        """Wait until the membership changes, but not for long."""
        generation = self._current()
        self._parts.coordinator.wait(lambda view: view.number != generation.number, time.monotonic() + seconds)

    @property
    def is_leaving(self) -> bool:
        """Return whether this worker was asked to leave."""
        return self._leaving_since is not None

    @property
    def is_overdue(self) -> bool:
        """Return whether this worker has waited long enough for the others to let it leave."""
        return self._overdue()

    def _met(self, generation: Generation) -> Met:
        rank, size, state = generation.rank(self._parts.member_id) or 0, len(generation.members), self._parts.state
        before = (state.step, state.applied_in) if state.present else (-1, 0)
        self._parts.heartbeat.tense(True)
        self._form(generation, rank)
        adopted: list[int] = []

        def adopt(tree: object, load: object) -> object:
            adopted.append(1)
            return load(tree)  # type: ignore[operator]

        exchange = handover.Exchange(self._still_wanted(generation), adopt, "mend", compare_every=0)
        handover.synchronise(self._parts, generation, rank, exchange, self._log)
        self._touch.stay(generation)
        self._parts.coordinator.synced(generation.number)
        self._parts.heartbeat.tense(False)
        step, number = self._entered
        included = bool(step) and made_in(state.runs, step, state.step) == number
        replaced = bool(adopted) and before[0] >= 0 and before != (state.step, state.applied_in)
        return Met(Seat(rank, size), replaced, included)

    def _current(self) -> Generation:
        generation = self._generation
        if generation is None:
            raise GroupBroken("this worker is in no generation yet")
        return generation
