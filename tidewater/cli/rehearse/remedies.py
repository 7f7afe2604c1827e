"""What to do about a difference, by the name of the piece that differs and by where the difference was seen.

remedy("attribute/layer.calls", Seen.BETWEEN_WORKERS)
"""

from __future__ import annotations

from enum import Enum


class Seen(Enum):
    """Where a difference was seen."""

    BETWEEN_WORKERS = "between workers after the same step"
    AFTER_A_TRANSFER = "between the worker that had the state and the one that got it"
    BETWEEN_RUNS = "between two runs without any fault"
    AFTER_FAULTS = "between the run with faults and the one without"


IN_ON_STEP = "change it in on_step only, by every report, and not by a report's rank, samples or seconds"
_SEED = "seed it with config.seed, or draw from the global generators of torch, numpy or Python"
_BY_KIND = {
    "attribute": "what a pass changes in an attribute of the model is no state: count in on_step, in an object in "
    "`stateful`, or keep it in a buffer",
    "mode": "set modes in training() or in on_step only, where all workers do the same",
    "requires_grad": "freeze parameters in training() or in on_step only, where all workers do the same",
    "optimizer": "an attribute of the optimizer is no state: keep it in its state or in a parameter group",
    "scheduler": "an attribute of the scheduler is no state: return it in state_dict()",
    "object": "return it in the object's state_dict(), and set it in load_state_dict()",
    "variable": "a variable of the script is no state: put it into an object in `stateful`, and change it in on_step",
    "stateful": IN_ON_STEP,
    "buffers": "let passes or on_step change it in the same way in all workers",
}
_DRAWS = (
    "draw the same numbers in all workers: in before_step, the optimizer's step, on_step and on_evaluation the number "
    "of draws must not depend on the worker"
)
_BY_PLACE = {
    Seen.BETWEEN_WORKERS: "something there depends on the worker: its rank, its samples, its clock, or a generator of "
    "the script's own; draw from the global generators in before_step, in the optimizer's step and in on_step",
    Seen.AFTER_A_TRANSFER: "a resume takes hyperparameters from the script: use a scheduler, or set in on_step what "
    "has to last, from an object in `stateful`",
    Seen.BETWEEN_RUNS: f"something is drawn without a seed, or depends on the time: {_SEED}",
    Seen.AFTER_FAULTS: "something that the result depends on is no state: a variable, an attribute, a file or a "
    "generator of the script's own; put it into an object in `stateful`",
}


def remedy(piece: str, seen: Seen, value: str = "") -> str:
    """Return what to do, as a sentence without a full stop.

    Args:
        piece: Name of the piece of the state that differs.
        seen: Where.
        value: One of its values.
    """
    if value.startswith("generator "):
        return f"a generator of the script's own is no state: {_SEED}"
    kind = piece.partition("/")[0]
    if kind == "draws":
        return _DRAWS
    if seen is Seen.BETWEEN_RUNS:
        return _BY_PLACE[seen]
    return _BY_KIND.get(kind, _BY_PLACE[seen])


def shown(piece: str) -> str:
    """Return the name of a piece for a person."""
    kind, _, name = piece.partition("/")
    words = {
        "model": "the model's {}",
        "buffers": "the model's buffer {}",
        "optimizers": "the optimizers' {}",
        "schedulers": "the schedulers' {}",
        "stateful": "stateful, {}",
        "mode": "the mode of the module {}",
        "requires_grad": "requires_grad of {}",
        "attribute": "the model's attribute {}",
        "optimizer": "the attribute of optimizer {}",
        "scheduler": "the attribute of scheduler {}",
        "object": "the attribute of the stateful object {}",
        "variable": "the script's variable {}",
        "draws": "the random numbers drawn in {}",
        "cursor": "the place in the data {}",
    }
    return words.get(kind, f"{kind} {{}}").format(name).strip()
