"""Everything that training changes, as one tree of plain values and tensors.

    tree = state.tree()         # refers to the live tensors: use it before the next step, or copy
    state.resume(tree)          # from a checkpoint: hyperparameters of the optimizers stay those of the script
    state.load(state.whole())   # exactly this state, from a peer

The stateful objects of the script change in ``on_step``, which is called when a step is final: one step later than the
rest. A tree is whole at any time because it has both: the stateful objects as they are, and the report of the last step
while they have not seen it (``pending``). See ``reports``.

It contains no random state: everything random in training is a function of the seed and the place in training (see
``seeds`` and ``sampler``).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import nn

from tidewater.elastic.buffers import slots
from tidewater.elastic.checkpoint.lineage import History, begun
from tidewater.elastic.checkpoint.manifest import Score
from tidewater.elastic.compiled import plain
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import ConfigError, Diverged, RecordError
from tidewater.elastic.machine_errors import is_of_the_machine
from tidewater.elastic.method import outer as outer_optimizer
from tidewater.elastic.method.finite import finite
from tidewater.elastic.method.modules import Attributes, evaluating
from tidewater.elastic.method.optimizers import Optimizers
from tidewater.elastic.sharding import copied, fill, is_divided, local, part_of, placed, shaped, unshaped, whole
from tidewater.elastic.training import AnyTraining, Report, Training
from tidewater.elastic.tree import leaves, split

_VERSION = 7
_OWN = ("rank", "samples", "wait_seconds", "writes")
"""What a report says about one worker; the rest is the same for all."""
_NOT_DIGESTED = ("pending", "applied_in", "history", "micro_batch")
"""The report is in the digest once the stateful objects have seen it. A state that is taken up again after all others
are lost gets another generation and history, and is still the same: ``runs`` says which generation made its last step.
The limit of a micro-batch is no result of training."""
_EXTRA = "_extra_state"
"""What torch calls the result of a module's ``get_extra_state``, which may be anything, of any size."""
_MOST_RUNS = 1000
"""Generations that a state remembers. A worker that was away for more drops its pending report."""


class Position(NamedTuple):
    """How far a state has come. Of two states of one job, the one with the greater position counts."""

    current: int = 0
    """1 if it is of the lineage that etcd knows. When etcd has lost its data, a worker that was cut off may return with
    the state of the old lineage, although others have continued in a new one."""
    applied_in: int = 0
    """Number of the generation that applied the last step."""
    steps: int = 0
    """Number of applied steps plus one; 0 without a state."""
    trusted: int = 0
    """1 if the other workers cannot have continued without this state, otherwise 0."""
    evaluated: int = 0
    """Steps at the last evaluation. If a rank missed the end of an evaluation, the ranks would act differently after
    it."""
    stopped: int = 0
    """1 if training is to end with this state."""

    @property
    def state(self) -> tuple[int, int, int]:
        """Which state it is: ranks with an equal value must have equal models and optimizers, bit for bit."""
        return self.current, self.applied_in, self.steps


class State:
    """The training state of one process.

    ``step`` counts the applied steps, ``applied_in`` is the generation that applied the last of them. Two workers with
    the same step and generation have the same state, bit for bit. Of two states of one job, the one with the higher
    generation is what the survivors agreed on, as with the terms and indices of a replicated log.
    """

    def __init__(
        self,
        training: AnyTraining,
        kind: str,
        scaler: torch.amp.GradScaler,
        *,
        fresh_optimizer: bool = False,
        outer: tuple[float, float] | None = None,
    ) -> None:
        self.model = training.model
        self.optimizers = Optimizers(training, scaler)
        self.outer = outer_optimizer.of(training.model, self.optimizers, outer)
        self.extra_steps = 0  # of the script's optimizers: they make more than ``step`` counts
        self.scaler = scaler
        self._fresh_optimizer = fresh_optimizer
        self.kind = kind
        """Digest of what must be equal for a state to be loaded: see ``kind_of``."""
        self.step = 0
        self.applied_in = 0
        self._history = begun("", 0)
        self.cursor = Cursor()
        self.micro_batch = 0
        """Maximum number of samples in one forward pass; 0: not known. It is ``--micro-batch``, or what the first step
        had, and half of what did not fit."""
        self.evaluated = 0
        """Steps after which the model was last evaluated, with ``accuracy`` as the result."""
        self.accuracy: float | None = None
        self._keep_best = training.keep_best if isinstance(training, Training) else ""
        self.stopped = False
        """Whether training ends with this state, because a hook of the script has asked for it."""
        self.present = False
        """Whether this is the job's state, rather than the initial values of a process that has just started."""
        self.damaged = False
        """Whether another state was received into the tensors of this one, and perhaps not completely."""
        self.stale = False
        """Whether others may have continued without this process since its last step."""
        self.suspect = False
        """Whether a comparison has shown that the states of the workers differ, and it is not known which are right."""
        self.repairs = 0
        """In how many comparisons, one after the other, this worker's state differed from that of the majority."""
        self.pending: Report | None = None
        """The report of the last step, while it is not known to be final and ``on_step`` has not been called."""
        self.runs: list[list[int]] = []
        """Each generation that applied steps of this state, and the first step it applied."""
        self._stateful = training.stateful
        self.attributes = Attributes(training.model)
        self._built = slots.Mark(training.model)
        self.finite = finite(dict(training.model.named_parameters()))
        """The parameters that were finite when the script had built the model: others have an infinity as a mask."""
        self.check()

    @property
    def history(self) -> History:
        """How this state came about: see ``lineage``."""
        return self._history.at(self.applied_in, self.step)

    def begin(self, lineage: str, generation: int) -> None:
        """Continue this state, or a new one, in that generation, although it is not the successor of the last one."""
        self._history = self.history.continued(lineage, generation) if self.present else begun(lineage, generation)

    def position(self, lineage: str) -> Position:
        """Return the position, which decides which rank's state counts. ``lineage`` is the one that etcd knows."""
        if not self.present:
            return Position()
        current = int(self._history.now.lineage == lineage)
        trusted = int(not self.stale)
        return Position(current, self.applied_in, self.step + 1, trusted, self.evaluated, int(self.stopped))

    @property
    def score(self) -> Score | None:
        """Return the score of this state, if it was evaluated and the best one is to be kept."""
        if not self._keep_best or self.evaluated != self.step or self.accuracy is None:
            return None
        return Score(self.accuracy, self._keep_best) if math.isfinite(self.accuracy) else None

    def scored(self, accuracy: float) -> None:
        """Note the result of an evaluation."""
        self.accuracy = accuracy
        self.optimizers.scored(accuracy)

    def advance(self, after: Cursor, generation: int) -> None:
        """Note that a step was applied in ``generation``."""
        self.step, self.cursor, self.applied_in = self.step + 1, after, generation
        if not self.runs or self.runs[-1][0] != generation:
            self.runs = [*self.runs[1 - _MOST_RUNS :], [generation, self.step]]

    def check(self, *, is_saved: bool = False) -> None:
        """Raise ConfigError, which names the value and the remedy, if the state can be neither sent nor saved.

        With ``is_saved``, it was just saved, and only what a checkpoint may lack is left to check.
        """
        tree = {"buffers": slots.unsaved(self.model)} if is_saved else self.whole()
        split(tree, lambda _, tensor: tensor)

    def whole(self) -> dict[str, Any]:
        """Return ``tree`` with all buffers, also those that every process builds alike, such as masks."""
        return {**self.tree(), "buffers": slots.unsaved(self.model)}

    def tree(self, form: Callable[[Any], Any] = local) -> dict[str, Any]:
        """Return the state as a tree. Raise ConfigError if an object of the script can't give its state.

        Of a tensor that the processes of a worker divide, it has what ``form`` returns: this process's part.
        Of the buffers that aren't persistent it has those that have changed since the script built the model. So a
        changed script gets its own constants when it continues from a checkpoint.
        """
        return {
            "version": _VERSION,
            "kind": self.kind,
            "step": self.step,
            "applied_in": self.applied_in,
            "history": self.history.values(),
            "runs": self.runs,
            "pending": _shared(self.pending),
            "cursor": self.cursor.values(),
            "micro_batch": self.micro_batch,
            "evaluated": self.evaluated,
            "accuracy": self.accuracy,
            "stopped": self.stopped,
            "model": {plain(name): form(each) for name, each in _asked("model", self.model.state_dict).items()},
            "buffers": self._built.changed(),
            "attributes": self.attributes.changed(),
            **self.optimizers.tree(form),
            "outer": self.outer.tree() if self.outer else {},
            "extra_steps": self.extra_steps,
            "scaler": self.scaler.state_dict(),
            "stateful": shaped(
                {name: _asked(f"stateful[{name!r}]", thing.state_dict) for name, thing in self._stateful.items()}, form
            ),
        }

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into eval mode, with the values that its optimizers evaluate. Afterwards all is as before."""
        with evaluating(self.model), self.optimizers.evaluating():
            yield

    def saved_tree(self) -> dict[str, Any]:
        """Return the tree for a checkpoint: its model has the parameters to evaluate, and those of training follow.

        A collective call of the processes of a worker if they divide the model.
        """
        tree = self.tree(whole)
        if self.optimizers.averaging:
            names = [plain(name) for name, _ in self.model.named_parameters()]
            tree["training_parameters"] = {name: tree["model"][name] for name in names}
            with self.optimizers.evaluating():
                tree["model"] = {plain(name): copied(each) for name, each in self.model.state_dict().items()}
        return tree

    def load(self, tree: dict[str, Any]) -> None:
        """Load exactly that state. Raise RecordError, and change nothing, if it belongs to another kind of job."""
        self._check(tree)
        self.optimizers.load(tree)
        self._load(tree)

    def resume(self, tree: dict[str, Any]) -> bool:
        """Load the state of a checkpoint, with the script's hyperparameters. Raise like ``load``.

        Return whether the optimizers' moments were loaded; see ``Optimizers.resume``.
        """
        self._check(tree)
        steps = tree["step"] + tree.get("extra_steps", 0)
        moments = self.optimizers.resume(tree, step=steps, fresh=self._fresh_optimizer)
        self._load(tree, part_of)
        if moments and "training_parameters" in tree:
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    fill(parameter, tree["training_parameters"][plain(name)])
        return moments

    def _check(self, tree: dict[str, Any]) -> None:
        if tree.get("version") != _VERSION:
            raise RecordError(
                f"the state has version {tree.get('version')}, this code reads {_VERSION}: give the job a new name"
            )
        if tree["kind"] != self.kind or set(tree["stateful"]) != set(self._stateful):
            raise RecordError(
                f"the state belongs to another kind of training ({tree['kind']}, this worker has {self.kind}): "
                "model, dataset or seed differ; give the job a new name"
            )

    def _load(self, tree: dict[str, Any], part: Callable[[Any, Any], Any] = lambda value, _: value) -> None:
        """Load everything but the optimizers. ``part`` returns the part of a tensor that is divided."""
        slots.load(self.model, tree["model"], tree["buffers"])
        model = {name: tree["model"][plain(name)] for name in self.model.state_dict()}
        _asked("model", self.model.load_state_dict, placed(model, self.model, part))
        self.attributes.load(tree["attributes"])
        if self.outer:
            self.outer.load(tree.get("outer", {}))  # none if the checkpoint was written without --sync-every
        self.extra_steps = tree.get("extra_steps", 0)
        if tree["scaler"]:  # empty if the checkpoint was written without --amp fp16
            self.scaler.load_state_dict(tree["scaler"])
        divides = is_divided(self.model.parameters())
        for name, thing in self._stateful.items():
            what = f"stateful[{name!r}]"
            mine = _asked(what, thing.state_dict) if divides else None
            _asked(what, thing.load_state_dict, unshaped(tree["stateful"][name], mine, part))
        self.step, self.runs, self.micro_batch = tree["step"], tree["runs"], tree["micro_batch"]
        self.pending = Report(**tree["pending"], rank=-1, samples=()) if tree["pending"] else None
        self._history, self.cursor = History.of(tree["history"]), Cursor(*tree["cursor"])
        self.take_position(tree)

    def take_position(self, tree: dict[str, Any]) -> None:
        """Load what may differ between two workers with the same parameters: evaluation, end, which state counts."""
        self.applied_in, self.evaluated, self.accuracy = tree["applied_in"], tree["evaluated"], tree["accuracy"]
        self.stopped = tree["stopped"]
        self.present, self.stale, self.damaged = True, False, False

    def receivers(self) -> dict[str, torch.Tensor]:
        """Return the tensors into which those of another state may be received, before it is loaded, by their names.

        They are the parameters, and what the optimizers have. Not buffers: what has changed in these is noted.
        """
        parameters = {plain(name) for name, _ in self.model.named_parameters(remove_duplicate=False)}
        model = {plain(name): local(value) for name, value in _asked("model", self.model.state_dict).items()}
        tree = {
            "model": {name: value for name, value in model.items() if name in parameters},
            "optimizers": self.optimizers.tree()["optimizers"],
        }
        found: dict[str, torch.Tensor] = {}
        split(tree, found.setdefault)
        return found

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors of model and optimizer, in an order that depends only on their names."""
        return list(self.named_tensors().values())

    def named_tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors of model and optimizer by their places in the tree, in an order that depends on these."""
        tree = {name: value for name, value in self._alike().items() if name not in ("stateful", "cursor")}
        return {path[1:]: value for path, value in leaves(tree) if isinstance(value, torch.Tensor)}

    def _alike(self) -> dict[str, Any]:
        """Return what is equal in all workers. With an outer optimizer, each has moments of its own."""
        tree = self.whole()
        if self.outer:
            del tree["optimizers"]
        return tree

    @property
    def buffer_names(self) -> frozenset[str]:
        """Return which of ``named_tensors`` are buffers."""
        parameters = {f"model/{plain(name)}" for name, _ in self.model.named_parameters(remove_duplicate=False)}
        return frozenset(
            name for name in self.named_tensors() if name.startswith(("model/", "buffers/")) and name not in parameters
        )

    def digest(self) -> str:
        """Return a digest of all bits of the state: equal in all workers after every final step.

        It covers the model, the optimizer with its moments and hyperparameters (of an outer optimizer the momentum
        instead), the scaler, the stateful objects, the position in the data and the counters. It doesn't depend on the
        order of keys or on strides.
        """
        digest = hashlib.sha256()
        tree = {name: each for name, each in self._alike().items() if name not in _NOT_DIGESTED}
        for path, value in leaves(tree):
            tensors: dict[str, torch.Tensor] = {}
            outline = split(value, tensors.setdefault).outline
            digest.update(f"{path} {json.dumps(outline)}".encode())
            for tensor in tensors.values():
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
                digest.update(data.numpy().tobytes())
        return digest.hexdigest()[:16]


def refuse_divergence(state: State) -> None:
    """Raise Diverged if a parameter that trains is no longer finite. Nothing of such a state is saved or final."""
    training = {
        name: value for name, value in state.model.named_parameters() if value.requires_grad and name in state.finite
    }
    if odd := sorted(training.keys() - finite(training)):
        raise Diverged(
            f"after step {state.step} the parameter {plain(odd[0])} is not a finite number: a gradient or the "
            "optimizer's step was not, though the loss was; lower the learning rate, clip gradients in before_step, "
            "and look at the data. The last checkpoint is kept, and a restart would give the same result"
        )


def made_in(runs: Sequence[Sequence[int]], step: int, last: int) -> int:
    """Return the generation that applied ``step``, in a history of ``last`` steps; 0 if it is not known to have one."""
    made = [generation for generation, first in runs if first <= step <= last]
    return made[-1] if made else 0


def _asked(what: str, do: Callable[..., Any], *given: Any) -> Any:
    """Call a method of the script's. Its error becomes a ConfigError: all workers that have this state would get it."""
    try:
        return do(*given)
    except Exception as error:
        if is_of_the_machine(error):
            raise
        name = getattr(do, "__name__", "its method")
        raise ConfigError(f"{name}() of the training's {what} raises {type(error).__name__}: {error}") from error


def _shared(report: Report | None) -> dict[str, Any] | None:
    """Return what a report says about all workers alike."""
    return {name: value for name, value in asdict(report).items() if name not in _OWN} if report else None


def kind_of(model: nn.Module, **more: object) -> str:
    """Return a digest of the model's shapes and of everything else that a stored state must match."""
    shapes = [
        (plain(name), tuple(value.shape), str(value.dtype))
        for name, value in model.state_dict().items()
        if not name.endswith(_EXTRA) and isinstance(value, torch.Tensor)
    ]
    return hashlib.sha256(repr((shapes, sorted(more.items()))).encode()).hexdigest()[:16]
