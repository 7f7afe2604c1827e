"""Finds the buffers of a model, and what has changed in them since their values were the same in all workers.

    slots = Slots(model)
    slots.find(); slots.note()          # the present values are the agreed ones
    ...                                 # passes
    now = slots.changed()               # copies of the values that differ, by name
    slots.restore()                     # the agreed values are in the model again
    slots.put("norm.mean", value)

A buffer is a slot: a module and a name in it. A pass can write to the tensor there, or put another tensor there
(``self.center = ...``), also one of another shape, or None, or a new slot. So tensors are looked up each time.

Looking costs nothing for a buffer that is not changed: torch counts what is written to a tensor (``_version``). It does
not count what batch normalization writes to its running statistics, and writes with ``buffer.data.mul_(0.9)``. The
former are known here; the latter are found by comparing all bits, while ``thorough`` is set. From then on such a buffer
passes for changed.

Plain attributes of a module may say what its buffers contain, such as the length of a cached table. So where a buffer
is restored, the attributes of its module are, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tidewater.elastic.compiled import plain
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.modules import bindings, redo, undo


class Empty(Enum):
    """What a slot without a tensor has."""

    NONE = "none"
    ABSENT = "absent"


Value = Tensor | Empty
Attributes = dict[str, dict[str, Any]]
"""Plain attributes of modules, by the module's name and their own."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By size in bytes."""


@dataclass
class Held:
    """The agreed value of a slot."""

    value: Value
    """The tensor that the slot has; its content may have changed since."""
    version: int = 0
    copy: Tensor | None = None
    """The content."""

    @property
    def agreed(self) -> Value:
        """Return the agreed value, in a tensor that passes can't change."""
        return self.value if self.copy is None else self.copy


class Slots:
    """The buffers of ``model``. Their names are those that the model has without ``torch.compile``."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modules: dict[str, nn.Module] = {}
        self._places: list[tuple[str, nn.Module, dict[str, Tensor | None]]] = []
        self._buffers: list[dict[str, Tensor | None]] = []
        """The same modules with the buffers of each, and these alone: each step looks through them several times."""
        self.held: dict[str, Held] = {}
        self.thorough = False
        """Whether to compare all bits, and to note attributes also of modules without buffers and of torch's own."""
        self._uncounted: set[str] = set()
        """Buffers that are written to without torch's counting it. They pass for changed, because to compare them in
        every step a GPU would have to be waited for."""
        self._bindings: Attributes = {}
        """The attributes of the modules as they were with the agreed values."""

    def find(self) -> None:
        """Find the model's modules, and forget how their buffers are written to."""
        self._modules, self._uncounted = modules(self._model), set()
        self._places = [(prefix, module, module._buffers) for prefix, module in self._modules.items()]
        self._buffers = [buffers for _, _, buffers in self._places]

    def has_owner(self, name: str) -> bool:
        """Return whether the model has the module of this slot."""
        return _owner(name) in self._modules

    def owner(self, name: str) -> nn.Module:
        """Return the module that has this slot."""
        return self._modules[_owner(name)]

    def note(self) -> None:
        """Take the present values as the agreed ones. Raise ConfigError if one of them is sparse.

        After an error, those of the last time are still the agreed ones.
        """
        if self._has_none():
            self._bindings = {}
            return
        self._compare()
        noted: dict[str, Held] = {}
        fresh: dict[int, Held] = {}  # a tensor may be in two slots
        pairs: list[tuple[Tensor, Tensor]] = []
        for name, value in self.present():
            held = self.held.get(name)
            if held is None or self._differs(name, held, value):
                held = fresh.get(id(value)) or _hold(name, value, held, pairs)
                fresh[id(value)] = held
            noted[name] = held
        _copy(pairs)
        self.held = noted
        self._bindings = {
            name: bindings(module)
            for name, module in self._modules.items()
            if self.thorough or (module._buffers and not type(module).__module__.startswith(nn.modules.__name__))
        }

    def changed(self) -> dict[str, Value]:
        """Return copies of the values that may differ from the agreed ones."""
        return {} if self._has_none() else _copied_all(dict(self._different()))

    def restore(self, but: Collection[str] = ()) -> Attributes:
        """Put the agreed values back: the tensors that were there, with the content that they had.

        Put back the attributes of their modules, too. Return what they were, for ``redo``. The slots in ``but`` and the
        attributes of their modules stay as they are.
        """
        if self._has_none():
            return {}
        pairs: list[tuple[Tensor, Tensor]] = []
        again: list[Held] = []
        different = [(name, value) for name, value in self._different() if name not in but]
        for name, value in different:
            held = self.held.get(name) or Held(Empty.ABSENT)
            if value is not held.value:
                self._bind(name, held.value)
            if held.copy is not None and isinstance(held.value, Tensor) and self._is_written(name, held):
                pairs.append((held.value, held.copy))
                again.append(held)
        _copy(pairs)
        for held in again:
            held.version = _version(held.value)
        owners = {_owner(name) for name, _ in different} & self._bindings.keys() - {_owner(name) for name in but}
        return {owner: undo(self._modules[owner], self._bindings[owner]) for owner in owners}

    def redo(self, undone: Attributes) -> None:
        """Set attributes again that were undone, but not those that the script has set since."""
        for owner, values in undone.items():
            redo(self._modules[owner], values, self._bindings[owner])

    def put(self, values: Mapping[str, Value]) -> None:
        """Give the slots these values. A tensor of the same shape and type is kept, and written to.

        So a compiled model, a CUDA graph, and whatever else refers to the tensor stay valid.
        """
        pairs: list[tuple[Tensor, Tensor]] = []
        for name, value in values.items():
            present = self.owner(name)._buffers.get(name.rpartition(".")[2])
            if isinstance(present, Tensor) and isinstance(value, Tensor) and _fits(present, value):
                pairs.append((present, value))
            else:
                self._bind(name, _copied(value))
        _copy(pairs)

    @contextlib.contextmanager
    def bound_as_agreed(self) -> Iterator[None]:
        """Let the slots have their agreed values for a while, also where a change was not counted."""
        self.thorough, before = True, self.thorough
        late = dict(self._different())
        self.thorough = before
        for name in late:
            self._bind(name, self.held[name].agreed if name in self.held else Empty.ABSENT)
        try:
            yield
        finally:
            for name, value in late.items():
                self._bind(name, value)

    def present(self) -> Iterator[tuple[str, Value]]:
        """Yield the names of the slots, and what they have."""
        for prefix, module, buffers in self._places:
            if buffers:
                if isinstance(module, _NormBase) and module.training and module.track_running_stats:
                    self._uncounted |= {_joined(prefix, "running_mean"), _joined(prefix, "running_var")}
                for key, value in buffers.items():
                    yield _joined(prefix, key), Empty.NONE if value is None else value

    def _has_none(self) -> bool:
        """Return whether the model has no buffers, as most language models: then a step needs no time for them."""
        return not (self.thorough or self.held or any(self._buffers))

    def _different(self) -> Iterator[tuple[str, Value]]:
        """Yield the slots that may differ from what was agreed, with what they have now."""
        self._compare()
        present = dict(self.present())
        for name, value in present.items():
            held = self.held.get(name)
            if held is None or self._differs(name, held, value):
                yield name, value
        for name in self.held:
            if name not in present:
                yield name, Empty.ABSENT

    def _differs(self, name: str, held: Held, value: Value) -> bool:
        if value is not held.value:
            return True
        if not isinstance(value, Tensor) or held.copy is None:
            return False
        return _version(value) != held.version or name in self._uncounted

    def _compare(self) -> None:
        """Compare all bits of the buffers that seem not to be changed, if that is wanted."""
        found: dict[str, Tensor] = {}
        for name, value in self.present() if self.thorough else ():
            held = self.held.get(name)
            if held is not None and not self._differs(name, held, value) and isinstance(value, Tensor):
                found[name] = differ(value, value if held.copy is None else held.copy)
        if found:  # all at once: each answer waits for the device
            device = next(iter(found.values())).device
            answers = torch.stack([each.to(device) for each in found.values()]).tolist()
            self._uncounted |= {name for name, answer in zip(found, answers, strict=True) if answer}

    def _is_written(self, name: str, held: Held) -> bool:
        return _version(held.value) != held.version or self.thorough or name in self._uncounted

    def _bind(self, name: str, value: Value) -> None:
        slots: Any = self.owner(name)._buffers
        key = name.rpartition(".")[2]
        if value is Empty.ABSENT:
            slots.pop(key, None)
        else:
            slots[key] = None if value is Empty.NONE else value


def modules(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules by the names that they have without ``torch.compile``."""
    return {plain(f"{prefix}.").removesuffix("."): module for prefix, module in model.named_modules()}


def differ(one: Tensor, other: Tensor) -> Tensor:
    """Return whether any bit differs, as a scalar on their device. Shape and type are the same."""
    return (_bits(one) != _bits(other)).any()


def unsaved(model: nn.Module) -> dict[str, Tensor | None]:
    """Return the buffers that are not persistent, so not in ``state_dict``, by name."""
    found: dict[str, Tensor | None] = {}
    for prefix, module in modules(model).items():
        for key in sorted(module._non_persistent_buffers_set & module._buffers.keys()):
            found[_joined(prefix, key)] = module._buffers[key]
    return found


class Mark:
    """Remembers the buffers of a model that aren't persistent, as the script has built them."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._built = {name: (value, _version(value)) for name, value in unsaved(model).items()}

    def changed(self) -> dict[str, Tensor | None]:
        """Return those that were written to since, or have another tensor."""
        return {
            name: value
            for name, value in unsaved(self._model).items()
            if name not in self._built or self._built[name][0] is not value or self._built[name][1] != _version(value)
        }


def load(model: nn.Module, saved: Mapping[str, Any], others: Mapping[str, Tensor | None]) -> None:
    """Give the model the buffers of another process, so that ``load_state_dict`` finds the slots that it expects.

    Args:
        model: To be changed. A buffer that has the value already is not written to.
        saved: The state that ``load_state_dict`` gets next.
        others: The buffers that aren't persistent. Those of modules that this model lacks are left out.
    """
    slots = Slots(model)
    slots.find()
    present, known = dict(slots.present()), {plain(name) for name in model.state_dict()}
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    wanted: dict[str, Tensor | None] = dict.fromkeys(known & present.keys() - saved.keys())
    wanted |= {name: value for name, value in saved.items() if name in present or name not in known} | dict(others)
    for name, value in wanted.items():
        if not slots.has_owner(name):
            continue
        now, new = present.get(name, Empty.ABSENT), Empty.NONE if value is None else value.to(device)
        if name in others:
            slots.owner(name)._non_persistent_buffers_set.add(name.rpartition(".")[2])
        # load_state_dict can't write to an expanded tensor.
        if not _equal(now, new) or (name in saved and isinstance(now, Tensor) and not _fits(now, now)):
            slots.put({name: new})


def _equal(one: Value, other: Value) -> bool:
    if isinstance(one, Empty) or isinstance(other, Empty):
        return one is other
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and not differ(one, other.to(one.device))


def _bits(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor if tensor.dtype is torch.bool else tensor.view(_INTEGERS[tensor.element_size()])


def _owner(name: str) -> str:
    """Return the name of the module that has this slot."""
    return name.rpartition(".")[0]


def _joined(prefix: str, key: str) -> str:
    return f"{prefix}.{key}" if prefix else key


def _version(value: Value | None) -> int:
    """Return how many times the tensor was written to. Tensors made in inference mode can't be written to."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _copied(value: Value) -> Value:
    return _clone(value) if isinstance(value, Tensor) else value


def _clone(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return tensor.resolve_conj().resolve_neg().clone()


def _copied_all(values: dict[str, Value]) -> dict[str, Value]:
    """Return copies. One operation makes most of them: on a GPU each operation is a launch."""
    if not values:
        return {}
    plain = {name: value for name, value in values.items() if isinstance(value, Tensor) and _is_plain(value)}
    copies = {name: torch.empty_like(value) for name, value in plain.items()}
    _copy([(copies[name], value) for name, value in plain.items()])
    return {name: copies[name] if name in copies else _copied(value) for name, value in values.items()}


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg()


def _fits(target: Tensor, source: Tensor) -> bool:
    """Return whether the target can take the values of the source."""
    if target.shape != source.shape or target.dtype != source.dtype or target.is_inference():
        return False
    strides = target.stride()
    return 0 not in strides or not any(not one and size > 1 for one, size in zip(strides, target.shape, strict=True))


def _hold(name: str, value: Value, before: Held | None, pairs: list[tuple[Tensor, Tensor]]) -> Held:
    """Return a note of this value, in the memory of the last one of this tensor; then the pair has to be copied."""
    if isinstance(value, Empty):
        return Held(value)
    if value.layout is not torch.strided:
        raise ConfigError(f"the model's buffer {name} is a {value.layout} tensor: make it a dense one")
    if before is None or before.copy is None or before.value is not value or before.copy.shape != value.shape:
        return Held(value, _version(value), _clone(value))
    pairs.append((before.copy, value))
    return Held(value, _version(value), before.copy)


def _copy(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy the second tensor of each pair to the first."""
    if pairs:
        with torch.no_grad():
            torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])
