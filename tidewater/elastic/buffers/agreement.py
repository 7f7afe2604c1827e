"""Keeps the buffers of a model equal on all ranks, and sends those that passes have changed, and no others.

    buffers = Buffers(model, group)
    buffers.begin()                     # what the model has now is the agreed state
    ...                                 # a pass
    buffers.fold(0.5)                   # copies what it has changed; it had half of this rank's samples
    buffers.rewind()                    # the next pass begins with the agreed state, too
    ...                                 # the last pass
    buffers.take()                      # copies what it has changed, and combines it with that of the others
    more = buffers.send(share)          # starts the sum of those that were changed in the last step
    buffers.restore()                   # until the step is applied, the model has the agreed state
    values = buffers.sums(any_more)     # raises GroupBroken; ``any_more`` says whether ``more`` is true on any rank
    buffers.apply(values)

All ranks expect the same buffers to change: those that any of them has changed in the last step of this generation.
Their sum starts before the backward pass. If a rank has changed another one, all learn it from a number sent with the
gradients. Then they tell each other what they have changed, and make a second sum. A buffer that no rank has changed
keeps its bits. A group of one sends nothing, and what its passes have written stays bit for bit.

A rank without samples contributes nothing, and gets what the others have. ``combining`` has the rules.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tidewater.elastic.buffers.accumulation import Accumulation
from tidewater.elastic.buffers.combining import Part, Rule, decode, encode, rule_of
from tidewater.elastic.buffers.slots import Attributes, Empty, Slots, Value, differ
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.group.ballot import SEAL, numbers, seal
from tidewater.elastic.group.group import Group, await_all

_THOROUGH_STEPS = 2
"""In the first steps of a generation all bits are compared: see ``slots``."""

Spec = tuple[torch.dtype, torch.Size] | Empty
"""Type and shape of a tensor."""


class Buffers:
    """The buffers of ``model``, in the current generation of ``group``. For one thread."""

    def __init__(self, model: nn.Module, group: Group) -> None:
        self._group, self._slots = group, Slots(model)
        self._uuid = -1
        """Of the generation in which all of the following holds."""
        self._steps = 0
        self._usual: dict[str, tuple[torch.dtype, torch.Size]] = {}
        """What all ranks expect to be changed."""
        self._passes = Accumulation(self._part_known)
        """What the passes before the last one have changed."""
        self._fresh: set[str] = set()
        """What the last pass has given a new type or shape, made or removed."""
        self._taken: dict[str, Value] | None = None
        """What passes have changed."""
        self._undone: Attributes = {}
        """What these passes have set attributes to."""
        self._taking = False
        """Whether something was taken since the agreed state was put back."""
        self._share = 0.0
        self._sent: tuple[Any, Tensor, list[Part]] | None = None
        """The sum that is under way."""

    def begin(self) -> None:
        """Take what the model has now as the agreed state. What the script has changed since the last step is in it."""
        self._enter()
        self._slots.thorough = self._steps < _THOROUGH_STEPS
        self._steps += 1
        self._slots.note()
        self.forget()

    def fold(self, fraction: float) -> None:
        """Copy what a pass with this fraction of the rank's samples has changed, if another pass of the step follows.

        The sum of the fractions of all passes is 1.
        """
        self._passes.add(self._known(self._slots.changed()), fraction)

    def rewind(self) -> None:
        """Let the next pass begin with the agreed state.

        But what the pass before has given a new type or shape, such as a table that grows, it finds as it is now.
        """
        self._slots.restore(but=self._fresh)

    def take(self) -> None:
        """Copy what passes have changed since ``begin``."""
        self._taken, self._taking = self._slots.changed(), True
        if self._passes:
            self._passes.add(self._known(self._taken), 1 - self._passes.fraction)
            self._taken = {**self._passes.combined(), **{name: self._taken[name] for name in self._fresh}}

    @property
    def taken(self) -> tuple[str, ...]:
        """The names of what was taken."""
        return tuple(sorted(self._taken or {}))

    def restore(self) -> None:
        """Put the agreed state back."""
        undone = self._slots.restore()
        if self._taking:
            self._undone, self._taking = undone, False

    def resume(self) -> None:
        """Go on from what was taken last; ``begin`` if nothing was."""
        if self._taken is None:
            self.begin()
        else:
            self._slots.put(self._taken)
            self._slots.redo(self._undone)

    def forget(self) -> None:
        """Drop what was taken."""
        self._taken, self._undone, self._taking = None, {}, False
        self._passes, self._fresh = Accumulation(self._part_known), set()

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Undo what passes change that don't train."""
        self.begin()
        try:
            yield
        finally:
            self._slots.thorough = True
            self._slots.restore()

    def agreed(self) -> contextlib.AbstractContextManager[None]:
        """Let the model have the agreed state for a while, also where ``begin`` has not noticed a change."""
        return self._slots.bound_as_agreed()

    def send(self, share: float) -> float | Tensor:
        """Start the sum of what was taken. Return whether this rank has changed what is not expected.

        ``share`` is that of this rank in the step's samples.
        """
        self._enter()
        self._share, self._sent = share, None
        if self._group.size == 1 or not (self._taken or self._usual):
            return 0.0
        mine = self._mine()
        if self._usual:
            parts = [self._part(name, spec, mine) for name, spec in self._usual.items()]
            changed = [float(name in mine and self._spec(name) == spec) for name, spec in self._usual.items()]
            sums = self._encoded(changed, parts)
            self._sent = self._group.begin(sums), sums, parts
        unexpected = self._unexpected(mine)
        if not unexpected or self._group.device.type == "cpu":
            return float(any(map(bool, unexpected.values())))
        if True in unexpected.values():
            return 1.0
        return torch.stack([each for each in unexpected.values() if isinstance(each, Tensor)]).any()

    def sums(self, more: bool) -> Mapping[str, Value]:
        """Return the new values of the buffers that any rank has changed. A collective call.

        ``more`` says whether any rank has changed what was not expected. Raise GroupBroken; ConfigError, on all ranks,
        if a buffer has another shape or type on each.
        """
        if self._group.size == 1:
            return self._taken or {}
        if self._sent is None and not more:
            return {}
        values: dict[str, Value] = {}
        if self._sent is not None:
            work, sums, parts = self._sent
            self._group.complete([work])
            changed, results = self._decoded(sums, len(self._usual), parts)
            values = {name: value for name, many, value in zip(self._usual, changed, results, strict=True) if many}
        if more:
            values |= self._unexpected_sums()
        tensors = {name: value for name, value in sorted(values.items()) if isinstance(value, Tensor)}
        self._usual = {name: (value.dtype, value.shape) for name, value in tensors.items()}
        return values

    def apply(self, values: Mapping[str, Value]) -> None:
        """Give the model these values, and its modules the attributes that passes of this rank's samples have set."""
        if values:
            self._slots.put(values)
        if self._undone and self._share:
            self._slots.redo(self._undone)
        self.forget()

    def _enter(self) -> None:
        """Expect nothing if this is another generation than before."""
        if self._uuid != self._group.uuid:
            self._uuid, self._steps, self._usual = self._group.uuid, 0, {}
            self._slots.find()

    def _mine(self) -> dict[str, Value]:
        """Return what this rank contributes."""
        return dict(self._taken or {}) if self._share else {}

    def _spec(self, name: str) -> Spec:
        """Return that of the agreed value."""
        held = self._slots.held.get(name)
        return _spec(held.agreed if held else Empty.ABSENT)

    def _known(self, changed: Mapping[str, Value]) -> dict[str, Tensor]:
        """Return what has the type and shape of the agreed value, and remember the others."""
        known = {name: each for name, each in changed.items() if _spec(each) == self._spec(name)}
        self._fresh = changed.keys() - known.keys()
        return {name: each for name, each in known.items() if isinstance(each, Tensor)}

    def _part_known(self, name: str, changed: Mapping[str, Value]) -> Part:
        base = self._base(name)
        return self._part(name, (base.dtype, base.shape), changed)

    def _unexpected(self, mine: Mapping[str, Value]) -> dict[str, bool | Tensor]:
        """Return whether each value is a change that the other ranks don't expect."""
        found: dict[str, bool | Tensor] = {}
        for name, value in mine.items():
            spec = self._spec(name)
            if _spec(value) != spec or self._usual.get(name, spec) != spec:
                found[name] = True
            elif name not in self._usual and isinstance(value, Tensor):
                found[name] = differ(value, self._base(name).to(value.device))
        return found

    def _unexpected_sums(self) -> dict[str, Value]:
        """Find out what the ranks have changed that was not expected, and combine it. A collective call."""
        mine = self._mine()
        row = {name: _row(_spec(mine[name])) for name, changed in self._unexpected(mine).items() if changed}
        rows = [json.loads(each) for each in self._group.gather(json.dumps([self._share > 0, row]).encode())]
        first = next((rank for rank, (counts, _) in enumerate(rows) if counts), 0)
        values: dict[str, Value] = {}
        specs: dict[str, tuple[torch.dtype, torch.Size]] = {}
        for name in sorted({name for _, row in rows for name in row}):
            spec = self._common(name, [(rank, row.get(name)) for rank, (counts, row) in enumerate(rows) if counts])
            if isinstance(spec, Empty):
                values[name] = spec
            else:
                specs[name] = spec
        if specs:
            lead = self._group.rank == first
            parts = [self._part(name, spec, mine, lead=lead) for name, spec in specs.items()]
            sums = self._encoded([], parts)
            self._group.all_reduce(sums)
            values |= dict(zip(specs, self._decoded(sums, 0, parts)[1], strict=True))
        return values

    def _common(self, name: str, sent: list[tuple[int, list[Any] | None]]) -> Spec:
        """Return the type and shape that a buffer has on all ranks. Raise ConfigError, on all, if they differ."""
        old = self._spec(name)
        specs = {rank: old if each is None else _of_row(each) for rank, each in sent}
        (one, found), *_ = specs.items()
        for other, another in specs.items():
            if another != found:
                await_all(self._group)
                raise ConfigError(
                    f"after the same step the model's buffer {name} is {_words(found)} on rank {one} and "
                    f"{_words(another)} on rank {other}, so the workers can't be kept equal: give it the same shape "
                    "and type on all, or keep what belongs to one worker in an attribute that is no buffer"
                )
        return found

    def _part(
        self, name: str, spec: tuple[torch.dtype, torch.Size], mine: Mapping[str, Value], *, lead: bool = False
    ) -> Part:
        """Return this rank's part in a buffer that becomes a tensor of this type and shape.

        ``lead`` says whether this rank has the value if there was none of this type and shape before.
        """
        (dtype, shape), device = spec, self._group.device
        known = self._spec(name) == spec
        base = self._base(name).to(device) if known else torch.zeros(shape, dtype=dtype, device=device)
        now = mine.get(name, base)
        now = now.to(device) if isinstance(now, Tensor) and _spec(now) == spec else base
        rule = rule_of(self._slots.owner(name), name.rpartition(".")[2], dtype)
        if not known and rule is Rule.BATCHES:
            rule = Rule.SUM
        return Part(rule, now, base, counts=known or lead)

    def _base(self, name: str) -> Tensor:
        value = self._slots.held[name].agreed
        assert isinstance(value, Tensor)
        return value

    def _encoded(self, counts: list[float], parts: list[Part]) -> Tensor:
        head = numbers([*seal(self._group.uuid), *counts], self._group.device, torch.float64)
        return torch.cat([head, encode(parts, self._share)])

    def _decoded(self, sums: Tensor, counts: int, parts: list[Part]) -> tuple[list[float], list[Tensor]]:
        """Return the sums of the counts, and the values. Raise GroupBroken if these are not sums of all ranks."""
        head, rest = sums[: SEAL + counts], sums[SEAL + counts :]
        return list(self._group.opened(head.tolist())), decode(rest, parts)


def _spec(value: Value) -> Spec:
    return (value.dtype, value.shape) if isinstance(value, Tensor) else value


def _row(spec: Spec) -> list[Any]:
    """Return the form in which a spec is sent."""
    return [spec.value] if isinstance(spec, Empty) else [str(spec[0]).removeprefix("torch."), list(spec[1])]


def _of_row(row: list[Any]) -> Spec:
    return (getattr(torch, row[0]), torch.Size(row[1])) if len(row) > 1 else Empty(row[0])


def _words(spec: Spec) -> str:
    name, *shape = _row(spec)
    return f"{name} of shape {tuple(*shape)}" if shape else name
