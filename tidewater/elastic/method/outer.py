"""The outer optimizer of ``--sync-every``, and the steps that a worker makes by itself before each of its steps.

    outer = Outer(model, lr=0.7, momentum=0.9)
    local = Local(model, optimizers, outer)
    local.begin()
    ...                                     # gradients of an inner step
    local.step(factor)                      # the script's optimizers; then the next inner step
    local.give(weight)                      # what they have changed, weighted, is in the gradients now
    ...                                     # starts the sums of these
    local.put_back()                        # nothing has changed until they are there
    lr = local.apply()                      # the outer step, with the sums in the gradients

This is DiLoCo (https://arxiv.org/abs/2311.08105). The sum over the ranks of the weighted differences, each from the
parameters before to those after a rank's inner steps, is the gradient of the outer step: SGD with Nesterov momentum.
With a learning rate of 1 and no momentum, the new parameters are the weighted mean of those of the ranks.

The moments of the script's optimizers belong to each rank: they follow its own gradients, and no one else has them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tidewater.elastic.compiled import plain
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.method.optimizers import Optimizers, Tree
from tidewater.elastic.peer.drift import words

_BUFFER = "momentum_buffer"
"""What torch's SGD calls it."""

Pace = Callable[[int, int], float]
"""Returns the factor on the learning rates of the inner step that begins when so many samples, of so many in all, have
been used. It may raise GroupBroken."""


def steady(done: int, whole: int) -> float:
    """Leave the learning rates as they are."""
    return 1.0


class Outer:
    """The outer optimizer over all parameters of ``model``."""

    def __init__(self, model: nn.Module, lr: float, momentum: float) -> None:
        self._parameters = {plain(name): parameter for name, parameter in model.named_parameters()}
        self._sgd = torch.optim.SGD(self._parameters.values(), lr=lr, momentum=momentum, nesterov=momentum > 0)

    def step(self) -> None:
        """Make the outer step. A parameter without a gradient, which no rank has trained, stays as it is."""
        self._sgd.step()

    def tree(self) -> Tree:
        """Return the momentum of each parameter by its name; it refers to the live tensors."""
        found = {name: self._sgd.state[each].get(_BUFFER) for name, each in self._parameters.items()}
        return {name: value for name, value in found.items() if value is not None}

    def load(self, tree: Tree) -> None:
        """Load exactly this momentum. Parameters that are not in ``tree`` have none."""
        self._sgd.state.clear()
        for name, value in tree.items():
            if name in self._parameters:
                self._sgd.state[self._parameters[name]] = {_BUFFER: value.to(self._parameters[name].device)}


class Local:
    """The inner steps of one rank, and the outer step."""

    def __init__(self, model: nn.Module, optimizers: Optimizers, outer: Outer) -> None:
        self._parameters = list(model.parameters())
        self._names = [plain(name) for name, _ in model.named_parameters()]
        self._optimizers, self._outer = optimizers, outer
        self._given: dict[int, Tensor] | None = None
        """Copies of the parameters before the inner steps, by their place, as long as the values may differ."""
        self._frozen: dict[int, Tensor] = {}
        """Of the other parameters a checksum: they must not change."""
        self._before: Tree = {}
        self._after: Tree = {}
        """The optimizers before and after the inner steps."""
        self._trained: set[int] = set()
        """The parameters that have had a gradient, by their place."""
        self._lr = 0.0
        """Of the last inner step."""

    def begin(self) -> None:
        """Begin the inner steps, from the parameters that all ranks have."""
        self._before, self._after, self._trained = {}, {}, set()  # first: there is memory for one copy
        self._before = copy.deepcopy(self._optimizers.tree())
        every = list(enumerate(self._parameters))
        self._frozen = {place: words(each) for place, each in every if not each.requires_grad}
        self._given = {place: each.detach().clone() for place, each in every if place not in self._frozen}

    def step(self, factor: float, correction: float = 1.0) -> None:
        """Make an inner step with ``factor`` on the learning rates. The gradients, with ``correction``, end with it.

        Raise ConfigError like ``Optimizers.step``.
        """
        gradients = {place: each.grad for place, each in enumerate(self._parameters) if each.grad is not None}
        if correction != 1.0 and gradients:
            torch._foreach_mul_(list(gradients.values()), correction)
        self._trained.update(gradients)
        self._lr = self._optimizers.step(factor)
        self._drop_gradients()

    def skip(self, factor: float) -> None:
        """Make no step, as a rank without samples in this inner step, but step the schedulers as the others do."""
        self._lr = self._optimizers.skip(factor)

    def give(self, weight: float) -> None:
        """Leave the differences in the gradients, multiplied by ``weight``. Then call ``put_back``.

        Each is computed in the memory of its parameter: the reducer copies it from there. Raise ConfigError if the
        inner steps have changed another parameter: each rank would have its own.
        """
        self._refuse_other_changes()
        given = self._given or {}
        for place in self._trained:
            values = self._parameters[place].detach()
            self._parameters[place].grad = values.sub_(given[place]).mul_(-weight)

    def put_back(self) -> None:
        """Give parameters and optimizers the values from before the inner steps. Then ``apply`` may follow."""
        self._after = self._optimizers.tree()
        self._restore()

    def abandon(self) -> None:
        """Do the same, but drop what the inner steps have made. Safe to call at any time."""
        self._restore()
        self._before = self._after = {}

    def apply(self) -> float:
        """Make the outer step, with the sums in the gradients. Return the learning rate of the last inner step."""
        self._optimizers.take_over(self._before, self._after)
        self._before = self._after = {}
        self._outer.step()
        return self._lr

    def _refuse_other_changes(self) -> None:
        if not self._frozen:
            return
        now = torch.stack([words(self._parameters[place]) for place in self._frozen])
        same = (now == torch.stack(list(self._frozen.values()))).tolist()
        for place in (place for place, is_same in zip(self._frozen, same, strict=True) if not is_same):
            raise ConfigError(
                f"the parameter {self._names[place]} did not require a gradient when the inner steps of --sync-every "
                "began, and these have changed it (in before_step or a forward pass, perhaps): each worker would have "
                "another one; change and unfreeze it in on_step, or leave --sync-every out"
            )

    def _restore(self) -> None:
        if self._given is None:
            return
        for place, values in self._given.items():
            self._parameters[place].detach().copy_(values)
        self._optimizers.load(self._before)
        self._given = None

    def _drop_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None


def of(model: nn.Module, optimizers: Optimizers, settings: tuple[float, float] | None) -> Outer | None:
    """Return the outer optimizer with this learning rate and momentum; None without ``--sync-every``.

    Raise ConfigError if an optimizer evaluates other values than it trains: each rank would evaluate its own.
    """
    if settings is None:
        return None
    for each in optimizers.averaging:
        raise ConfigError(
            f"the training's optimizer, {type(each).__name__}, evaluates an average of its own, and with --sync-every "
            "each worker would have another one: use an optimizer without train() and eval()"
        )
    return Outer(model, *settings)
