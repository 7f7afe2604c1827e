"""The optimizers of a training, their schedulers and the hook before a step, as one.

    optimizers = Optimizers(training, scaler)
    with optimizers.evaluating(): ...                   # the parameters are those to evaluate
    lr = optimizers.step(factor=0.5)                    # the gradients are in the parameters
    optimizers.load(optimizers.tree())                  # exactly this state, from a peer
    optimizers.resume(tree, step=7000, fresh=False)     # hyperparameters of the script, moments of the tree

On resume a person may have changed the script: another learning rate, weight decay or schedule must take effect. So
hyperparameters come from the script then, and schedulers are stepped forward from their beginning to the step where
training continues. A ReduceLROnPlateau continues where it was. A learning rate that no other scheduler drives, and that
the script still begins with, is that of the checkpoint: ``on_step`` or a ReduceLROnPlateau may have lowered it. A
worker that joins running training gets everything from its peer instead, also what ``on_step`` has changed.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from tidewater.elastic.compiled import plain
from tidewater.elastic.errors import ConfigError, RecordError
from tidewater.elastic.sharding import divided, formed, is_divided, joined, local, refuse_state
from tidewater.elastic.training import AnyTraining, Training, constant

Tree = dict[str, Any]
Rates = list[tuple[dict[str, Any], Any]]
"""Parameter groups, and the learning rate of each."""

_COUNTED = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")
"""What a ReduceLROnPlateau counts. The rest of its state is of the script."""


class Optimizers:
    """The optimizers and schedulers of ``training``. Raise ConfigError, with the remedy, if they can't be used."""

    def __init__(self, training: AnyTraining, scaler: torch.amp.GradScaler) -> None:
        self._optimizers: tuple[Optimizer, ...] = several(training.optimizer)
        self._schedulers: tuple[LRScheduler, ...] = several(training.scheduler)
        self._plateaus = plateaus(self._schedulers)
        self._stepped = [each for each in self._schedulers if each not in self._plateaus]
        self._model, self._before_step, self._scaler = training.model, training.before_step, scaler
        _check_optimizers(training, self._optimizers)
        _check_schedulers(training, self._optimizers, self._schedulers)
        for each in self.averaging:
            each.train()  # else it refuses its first step
        self._divided = is_divided(training.model.parameters())
        self._names = {id(parameter): plain(name) for name, parameter in training.model.named_parameters()}
        self._initial = copy.deepcopy(
            (
                [optimizer.state_dict()["param_groups"] for optimizer in self._optimizers],
                [scheduler.state_dict() for scheduler in self._schedulers],
            )
        )
        """The parameter groups and the schedulers as the script has made them."""
        self._script_lr = [[float(settings["lr"]) for settings in groups] for groups in self._initial[0]]

    def groups(self) -> Iterator[dict[str, Any]]:
        """Yield the parameter groups of all optimizers."""
        for optimizer in self._optimizers:
            yield from optimizer.param_groups

    @property
    def averaging(self) -> tuple[Any, ...]:
        """Return the optimizers with train() and eval(): they evaluate other values than they train (ScheduleFree)."""
        return tuple(each for each in self._optimizers if hasattr(each, "train") and hasattr(each, "eval"))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Call eval() of such optimizers, and train() at the end. The parameters then have the bits that they had."""
        kept = [parameter.detach().clone() for parameter in self._model.parameters()] if self.averaging else []
        for each in self.averaging:
            each.eval()
        try:
            yield
        finally:
            for each in self.averaging:
                each.train()
            with torch.no_grad():
                for parameter, value in zip(self._model.parameters(), kept, strict=bool(kept)):
                    parameter.copy_(value)

    def step(self, factor: float) -> float:
        """Step every optimizer, then every scheduler. Return the first group's learning rate in this step.

        Args:
            factor: On the learning rates in the parameter groups, which are those of the script or of its schedulers.
                ``before_step`` sees them with the factor. What it sets is used in this step only.
        """
        used, given = self._begin(factor)
        self._step_optimizers()
        self._end(given)
        return used

    def skip(self, factor: float) -> float:
        """Step only the schedulers. Return the learning rate that the first group has had."""
        used = float(next(self.groups())["lr"]) * float(factor)
        self._step_schedulers_alone()
        return used

    @contextmanager
    def stepping(self, factor: float) -> Iterator[float]:
        """Do the same for a script that steps the optimizers itself, in this context. Yield the learning rate.

        An optimizer has its rates from before as soon as it has stepped: then the script may step its scheduler.
        """
        used, given = self._begin(factor)

        def restore(optimizer: Optimizer, *_: object) -> None:
            own = {id(settings) for settings in optimizer.param_groups}
            for settings, rate in given:
                if id(settings) in own:
                    settings["lr"] = rate
            given[:] = [each for each in given if id(each[0]) not in own]

        with ExitStack() as hooks:
            for each in (one for one in self._optimizers if isinstance(one, Optimizer)):  # others have no hooks
                hooks.callback(each.register_step_post_hook(restore).remove)
            yield used
        self._end(given)

    def _begin(self, factor: float) -> tuple[float, Rates]:
        """Set the learning rates for a step. Return that of the first group, and the ones before."""
        given = [(settings, settings["lr"]) for each in self._optimizers for settings in each.param_groups]
        for settings, rate in given:
            settings["lr"] = rate * float(factor)
        if self._before_step is not None:
            for optimizer in filter(_has_gradients, self._optimizers):
                self._scaler.unscale_(optimizer)
            self._before_step(self._model)
        return float(given[0][0]["lr"]), given

    def _end(self, given: Rates) -> None:
        """Set the learning rates from before the step, and step the schedulers: many derive the next from these."""
        for settings, rate in given:
            settings["lr"] = rate
        self._step_schedulers()

    def scored(self, score: float) -> None:
        """Step the schedulers that need a metric."""
        for plateau in self._plateaus:
            plateau.step(score)

    def tree(self, form: Callable[[Any], Any] = local) -> Tree:
        """Return the state; it refers to the live tensors. ``form`` is what is kept of tensors that are divided.

        Raise ConfigError if an optimizer keeps what can't be divided.
        """
        return {
            "optimizers": [self._tree_of(optimizer, form) for optimizer in self._optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self._schedulers],
            "script_lr": self._script_lr,
        }

    def load(self, tree: Tree) -> None:
        """Load exactly this state. Raise RecordError, and change nothing, if it is of other optimizers."""
        difference = self._difference(tree)
        if difference or len(tree["schedulers"]) != len(self._schedulers):
            raise RecordError(difference or "the state has another number of schedulers: start all with one script")
        for optimizer, stored in zip(self._optimizers, tree["optimizers"], strict=True):
            _load(optimizer, stored)
        for scheduler, state in zip(self._schedulers, tree["schedulers"], strict=True):
            scheduler.load_state_dict(state)

    def take_over(self, before: Tree, after: Tree) -> None:
        """Load ``after``, which came about from ``before``, but keep what has changed in the groups meanwhile.

        Groups that were added since are kept, too. Raise RecordError, and change nothing, if one was removed.
        """
        kept = self.tree()["optimizers"]
        for old, now, new in zip(before["optimizers"], kept, after["optimizers"], strict=True):
            # Fewer are refused below.
            for was, has, gets in zip(old["param_groups"], now["param_groups"], new["param_groups"], strict=False):
                gets.update({name: value for name, value in has.items() if name in was and _differs(value, was[name])})
            count = len(new["param_groups"])
            new["param_groups"] += now["param_groups"][count:]
            new["parameters"] += now["parameters"][count:]
        self.load(after)

    def resume(self, tree: Tree, *, step: int, fresh: bool) -> bool:
        """Continue at ``step`` with the moments of ``tree`` and the hyperparameters of the script.

        Return whether the moments were loaded. They are not if they are of other optimizers and ``fresh`` is set;
        without it, raise RecordError and change nothing.
        """
        difference = self._difference(tree)
        if difference and not fresh:
            raise RecordError(
                f"{difference}: go back to what the checkpoint was written with, or continue with fresh moments: "
                "--fresh-optimizer"
            )
        groups, schedulers = copy.deepcopy(self._initial)
        for index, optimizer in enumerate(self._optimizers):
            stored = {"state": {}} if difference else tree["optimizers"][index]
            if not difference:
                self._keep(optimizer, groups[index], stored["param_groups"], tree["script_lr"][index])
            _load(optimizer, {"state": divided(optimizer, stored["state"]), "param_groups": groups[index]})
        for scheduler, state in zip(self._schedulers, schedulers, strict=True):
            scheduler.load_state_dict(state)
        counted = [] if difference else [state for state in tree["schedulers"] if "num_bad_epochs" in state]
        for plateau, state in zip(self._plateaus, counted, strict=False):
            if state["mode"] == plateau.mode:
                rates = [each["lr"] for each in plateau.optimizer.param_groups]
                plateau.load_state_dict({name: state[name] for name in _COUNTED} | {"_last_lr": rates})
        self._step_schedulers_alone(step)
        return not difference

    def _keep(
        self, optimizer: Optimizer, groups: list[Tree], stored: Sequence[Tree], script_lr: Sequence[float]
    ) -> None:
        """Copy counters from the stored groups, and the learning rate if the script's is unchanged and unscheduled."""
        scheduled = any(scheduler.optimizer is optimizer for scheduler in self._stepped)
        for own, theirs, lr in zip(groups, stored, script_lr, strict=True):
            kept = {name for name in theirs if _is_counted(optimizer, name, own)}
            if not scheduled and float(own["lr"]) == lr:
                kept.add("lr")
            own.update({name: theirs[name] for name in kept})

    def _step_optimizers(self) -> None:
        """Step every optimizer. The scaler of fp16 accepts none without gradients, and no update if all are without."""
        if not self._scaler.is_enabled():
            for optimizer in self._optimizers:
                optimizer.step()
            return
        with_gradients = [each for each in self._optimizers if _has_gradients(each)]
        for optimizer in self._optimizers:
            if optimizer in with_gradients:
                self._scaler.step(optimizer)
            else:
                optimizer.step()
        if with_gradients:
            self._scaler.update()

    def _step_schedulers_alone(self, times: int = 1) -> None:
        with warnings.catch_warnings():  # torch warns of schedulers that are stepped before their optimizer
            warnings.simplefilter("ignore", UserWarning)
            for _ in range(times):
                self._step_schedulers()

    def _step_schedulers(self) -> None:
        for scheduler in self._stepped:
            try:
                scheduler.step()
            except ValueError as error:  # OneCycleLR after its total_steps
                raise ConfigError(f"the training's scheduler, {type(scheduler).__name__}: {error}") from error

    def _tree_of(self, optimizer: Optimizer, form: Callable[[Any], Any]) -> Tree:
        state = optimizer.state_dict()
        if self._divided:
            refuse_state(self._names, optimizer)
            state["state"] = {key: formed(value, form) for key, value in state["state"].items()}
        return {
            "class": type(optimizer).__name__,
            "parameters": self._parameters(optimizer),
            "state": state["state"],
            "param_groups": state["param_groups"],
        }

    def _parameters(self, optimizer: Optimizer) -> list[list[str]]:
        """Return the names of the parameters in each group."""
        return [[self._names[id(each)] for each in settings["params"]] for settings in optimizer.param_groups]

    def _difference(self, tree: Tree) -> str:
        """Return how the optimizers of ``tree`` differ from these, as the beginning of a sentence; "" if not."""
        theirs = [stored["class"] for stored in tree["optimizers"]]
        mine = [type(optimizer).__name__ for optimizer in self._optimizers]
        if theirs != mine:
            return f"the state is of {' and '.join(theirs)}, and the training's optimizer is {' and '.join(mine)}"
        for optimizer, stored in zip(self._optimizers, tree["optimizers"], strict=True):
            old, new = stored["parameters"], self._parameters(optimizer)
            name = type(optimizer).__name__
            if len(old) != len(new):
                return f"{name} has {len(new)} parameter groups, and {len(old)} in the state"
            for index, (before, now) in enumerate(zip(old, new, strict=True)):
                if before != now:
                    odd = sorted(set(before) ^ set(now))
                    which = f"for example {odd[0]}" if odd else "in another order"
                    return f"parameter group {index} of {name} has other parameters than in the state, {which}"
        return ""


def several(given: Any) -> tuple[Any, ...]:
    """Return what a training gives as one object or as a sequence."""
    return tuple(given) if isinstance(given, Sequence) else (given,)


def plateaus(schedulers: Sequence[LRScheduler]) -> list[ReduceLROnPlateau]:
    """Return the schedulers that are stepped with the score of each evaluation."""
    return [each for each in schedulers if isinstance(each, ReduceLROnPlateau)]


def _differs(one: Any, other: Any) -> bool:
    return one is not other and not bool(torch.as_tensor(one == other).all())


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(each.grad is not None for settings in optimizer.param_groups for each in settings["params"])


def _load(optimizer: Optimizer, stored: Tree) -> None:
    """Load a state exactly. A key is the index of a parameter, or a name of the optimizer's own.

    torch converts moments to the type of their parameter, and makes another container of every sequence.
    """
    values, before = stored["state"], dict(optimizer.state)
    optimizer.load_state_dict({"state": _plain_of(values), "param_groups": stored["param_groups"]})
    parameters = dict(enumerate(each for settings in optimizer.param_groups for each in settings["params"]))
    for key, value in values.items():
        parameter, old = parameters.get(key), before.get(key)
        if parameter is not None:
            optimizer.state[parameter] = joined(_exact(value, optimizer.state[parameter], parameter.device), parameter)
        else:
            device = old.device if isinstance(old, torch.Tensor) else torch.device("cpu")
            optimizer.state[key] = _exact(value, None, device)


def _plain_of(value: Any) -> Any:
    """Return the part of an optimizer's state that torch loads as it is: numbers, tensors, and dicts of them."""
    if isinstance(value, dict):
        return {key: _plain_of(each) for key, each in value.items()}
    return value if isinstance(value, torch.Tensor | int | float) else None


def _exact(value: Any, loaded: Any, device: torch.device) -> Any:
    """Return a stored value, with its tensors where torch has put them, or on ``device`` if it has not loaded them."""
    if isinstance(value, torch.Tensor):
        if not isinstance(loaded, torch.Tensor):
            return value.to(device)
        return loaded if loaded.dtype == value.dtype else value.to(loaded.device)
    if isinstance(value, dict):
        known, again = loaded if isinstance(loaded, dict) else {}, copy.copy(value)
        again |= {key: _exact(each, known.get(key), device) for key, each in value.items()}
        return again
    if isinstance(value, list | tuple | deque):
        moved = [_exact(each, None, device) for each in value]
        return deque(moved, value.maxlen) if isinstance(value, deque) else type(value)(moved)
    return value if loaded is None else loaded


def _is_counted(optimizer: Optimizer, name: str, settings: dict[str, Any]) -> bool:
    """Return whether an entry of a parameter group is not a hyperparameter but something that the optimizer counts.

    Some count steps there (apex's FusedAdam, ScheduleFree). A hyperparameter is an argument of the optimizer's class.
    """
    arguments = inspect.signature(type(optimizer)).parameters
    return name not in settings or (name in optimizer.defaults and name not in arguments)


def _check_optimizers(training: AnyTraining, optimizers: Sequence[Optimizer]) -> None:
    known = {id(parameter) for parameter in training.model.parameters()}
    given = [id(each) for one in optimizers for settings in one.param_groups for each in settings["params"]]
    if not given:
        raise ConfigError("the training has no optimizer: give it at least one")
    if not known.issuperset(given):  # their gradients aren't summed, so they would differ between ranks
        raise ConfigError(
            "the training's optimizer has a parameter that its model doesn't have: build it over the model's "
            "parameters, after what replaces those, and make others (a loss's own, say) part of the model"
        )
    if len(set(given)) < len(given):
        raise ConfigError("two of the training's optimizers have the same parameter: each needs its own")
    if any(isinstance(each, LBFGS) for each in optimizers):
        raise ConfigError(
            "the training's optimizer is LBFGS, which evaluates the loss several times in a step: a step "
            "has one pass here; use another optimizer"
        )


def _check_schedulers(
    training: AnyTraining, optimizers: Sequence[Optimizer], schedulers: Sequence[LRScheduler]
) -> None:
    metered = plateaus(schedulers)
    if len(schedulers) > len(metered) and training.schedule is not constant:
        raise ConfigError("the training has a schedule and a scheduler: give one of them")
    evaluated = isinstance(training, Training) and training.score is not None and training.validation is not None
    if metered and not evaluated:
        raise ConfigError(
            "the training's scheduler is a ReduceLROnPlateau, which is stepped with the score of each evaluation, and "
            "nothing is evaluated: give validation and score; or step it with a metric of your own in on_step, and put "
            "it into stateful"
        )
    for scheduler in schedulers:
        name = type(scheduler).__name__
        if not any(scheduler.optimizer is each for each in optimizers):
            raise ConfigError(f"the training's scheduler, {name}, is of another optimizer than the training's")
        if scheduler not in metered and any(scheduler.optimizer is each.optimizer for each in metered):
            raise ConfigError(
                f"the training has a ReduceLROnPlateau and a {name} for one optimizer: on a resume the {name} would "
                "undo what the ReduceLROnPlateau has lowered; use schedule for a warm-up"
            )
