"""What training changes in a model's modules, in addition to parameters and buffers.

    attributes = Attributes(model)                  # as the script has built the model
    attributes.load(attributes.changed())           # in another process
    with evaluating(model): ...                     # then every module has the mode that it had before

Part of the state is whether a parameter requires a gradient, the mode of each module (``train()`` or ``eval()``), and
its plain attributes, such as the ``p`` of a dropout. Only what has changed since the model was built is stored. So on
resume a changed script takes effect where training has changed nothing.

What ``on_step`` changes is the same in all workers. What a forward pass changes depends on the samples of a worker and
on how often it has repeated a step: ``moved`` names such attributes. Many say what a cache contains, such as the length
of a table in another attribute. They would be wrong in a process that has another table, so what the passes of the
warm-up change is no state (``rehearsal``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from tidewater.elastic.compiled import plain

_PLAIN = (bool, int, float, str, type(None))
_SIZED = (list, dict, set, deque)
_OWN = frozenset(vars(nn.Module())) - {"training"}
"""The attributes of torch's own."""
_MISSING = object()
_KEPT = object()
"""A value that can't be put back."""


class Attributes:
    """The attributes of one model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._built = dict(self._plain())
        self._seen = dict(self._all())
        self._passing: set[str] = set()
        """What passes change, which is no state."""

    def changed(self) -> dict[str, Any]:
        """Return the plain attributes that differ from those of the model as it was built, by name."""
        return {
            name: value
            for name, value in self._plain()
            if name not in self._passing and not _same(value, self._built.get(name, _MISSING))
        }

    def load(self, changed: Mapping[str, Any]) -> None:
        """Make all plain attributes those of a model in which these have changed."""
        owners = self._owners()
        for name, value in {**self._built, **changed}.items():
            path, _, attribute = name.rpartition(".")
            # A module before those that wrap it: they hand on the attributes that they lack, and would get copies.
            for owner in reversed(owners.get(path, ())) if name not in self._passing else ():
                if not _same(value, getattr(owner, attribute, _MISSING)):
                    setattr(owner, attribute, value)
        self._seen = dict(self._all())

    def moved(self) -> list[str]:
        """Return the names of the attributes that have changed since the last call, or since the state was loaded."""
        before, self._seen = self._seen, dict(self._all())
        return sorted(name for name, value in self._seen.items() if not _same(value, before.get(name, _MISSING)))

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Undo what passes change in attributes. From now on these attributes are no state."""
        before = [(name, module, bindings(module)) for name, module in self._model.named_modules()]
        yield
        for name, module, values in before:
            for attribute, value in undo(module, values).items():
                if not _same(value, values.get(attribute, _MISSING)):
                    self._passing.add(_prefix(name) + attribute)

    def _owners(self) -> dict[str, list[Any]]:
        owners: dict[str, list[Any]] = {}
        for name, parameter in self._model.named_parameters():
            owners[plain(name)] = [parameter]
        for name, module in self._model.named_modules():
            owners.setdefault(plain(f"{name}.")[:-1], []).append(module)
        return owners

    def _plain(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in self._all() if type(value) in _PLAIN)

    def _all(self) -> Iterator[tuple[str, Any]]:
        """Yield plain attributes, and of containers type and size."""
        for name, parameter in self._model.named_parameters():
            yield plain(f"{name}.requires_grad"), parameter.requires_grad
        for name, module in self._model.named_modules():
            prefix = _prefix(name)
            for attribute, value in vars(module).items():
                if attribute not in _OWN and type(value) in _PLAIN:
                    yield prefix + attribute, value
                elif attribute not in _OWN and type(value) in _SIZED:
                    yield prefix + attribute, (type(value), len(value))


def bindings(module: nn.Module) -> dict[str, Any]:
    """Return the values of the module's own attributes, for ``undo``: plain ones, and tensors without a graph."""
    return {
        name: value if type(value) in _PLAIN or (isinstance(value, Tensor) and value.grad_fn is None) else _KEPT
        for name, value in vars(module).items()
        if name not in _OWN and name != "training"
    }


def undo(module: nn.Module, values: Mapping[str, Any]) -> dict[str, Any]:
    """Give a module the attributes that ``bindings`` has returned. Return the values before, of those that differ.

    Attributes of other kinds, such as lists, stay as they are.
    """
    present = (name for name, value in bindings(module).items() if value is not _KEPT)
    return rebind(module, {**dict.fromkeys(present, _MISSING), **values})


def redo(module: nn.Module, undone: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Reverse an ``undo`` to ``values`` that has returned ``undone``, where nothing else was assigned since."""
    present = vars(module)
    unchanged = (name for name in undone if present.get(name, _MISSING) is values.get(name, _MISSING))
    rebind(module, {name: undone[name] for name in unchanged})


def rebind(module: nn.Module, values: Mapping[str, Any]) -> dict[str, Any]:
    """Give a module these attributes. Return the values before, of those that differ."""
    present = vars(module)
    registered = module._parameters.keys() | module._buffers.keys() | module._modules.keys()
    found: dict[str, Any] = {}
    for name, value in values.items():
        if value is not _KEPT and name not in registered and present.get(name, _MISSING) is not value:
            found[name] = present.pop(name, _MISSING)
            if value is not _MISSING:
                present[name] = value
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode; at the end every module gets the mode back that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        model.train(modes[0][1])  # first, because a module may do more in it than set its mode
        for module, mode in modes:
            module.training = mode


def _prefix(name: str) -> str:
    """Return what the names of a module's attributes begin with."""
    return plain(f"{name}.").lstrip(".")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) or type(one) is not type(other):
        return one is other
    return bool(one == other or (one != one and other != other))
