"""One step of an optimizer for the rows of an embedding table that have a gradient. Pure functions.

    columns(Adam())                                  # (("exp_avg", 0.0), ("exp_avg_sq", 0.0))
    updated(Adam(), rows, gradients, step=1, lr=0.1)

Rows without a gradient don't change, and neither does their state. What the rows get:

| | the same, to the bit, as |
|---|---|
| SGD | torch.optim.SGD with sparse gradients that are coalesced (others it adds one by one) |
| SGD with momentum, Nesterov | torch.optim.SGD with a parameter for each row, which is left out if it has no gradient |
| Adagrad | torch.optim.Adagrad with sparse gradients |
| Adam | torch.optim.SparseAdam |
| AMSGrad | SparseAdam, but divided by the greatest second moment of the row; torch has none for rows |

torch's SGD with momentum and sparse gradients moves, in each step, every row that ever had a gradient, so a step costs
as much as the table is large. Here momentum waits until the row is touched again. torch refuses weight_decay with
sparse gradients; here it applies to the rows that are touched.
"""

from __future__ import annotations

import math

import torch

from elasticdl.zoo.optimizers import SGD, Adagrad, Adam, Optimizer


def columns(optimizer: Optimizer) -> tuple[tuple[str, float], ...]:
    """Return name and first value of the state that each number of a row has."""
    if isinstance(optimizer, SGD):
        # Of a row that was never touched: whether it has a buffer. torch's first step takes the gradient undamped.
        return (("momentum_buffer", math.nan),) if optimizer.momentum else ()
    if isinstance(optimizer, Adagrad):
        return (("sum", optimizer.initial_accumulator_value),)
    if isinstance(optimizer, Adam):
        moments = (("exp_avg", 0.0), ("exp_avg_sq", 0.0))
        return (*moments, ("max_exp_avg_sq", 0.0)) if optimizer.amsgrad else moments
    raise TypeError(f"no rows can be updated by {optimizer!r}")


def updated(optimizer: Optimizer, rows: torch.Tensor, gradients: torch.Tensor, step: int, lr: float) -> torch.Tensor:
    """Return rows and their state after a step.

    Args:
        optimizer: which.
        rows: (n, dim * (1 + len(columns))): values, then the state.
        gradients: (n, dim).
        step: of the table: 1 for its first gradient. It counts steps in which other rows were touched, too.
        lr: learning rate.
    """
    values, *state = (part.clone() for part in rows.chunk(rows.shape[1] // gradients.shape[1], dim=1))
    decay = getattr(optimizer, "weight_decay", 0.0)
    if decay:
        gradients = gradients.add(values, alpha=decay)
    if isinstance(optimizer, SGD):
        _sgd(optimizer, values, state, gradients, lr)
    elif isinstance(optimizer, Adagrad):
        _adagrad(optimizer, values, state, gradients, lr / (1 + (step - 1) * optimizer.lr_decay))
    elif isinstance(optimizer, Adam):
        _adam(optimizer, values, state, gradients, (step, lr))
    else:
        raise TypeError(f"no rows can be updated by {optimizer!r}")
    return torch.cat([values, *state], dim=1)


def _sgd(optimizer: SGD, values: torch.Tensor, state: list[torch.Tensor], gradients: torch.Tensor, lr: float) -> None:
    if optimizer.momentum:
        (buffer,) = state
        first = buffer.isnan()
        buffer.mul_(optimizer.momentum).add_(gradients, alpha=1 - optimizer.dampening)
        buffer[first] = gradients[first]
        gradients = gradients.add(buffer, alpha=optimizer.momentum) if optimizer.nesterov else buffer
    values.add_(gradients, alpha=-lr)


def _adagrad(
    optimizer: Adagrad, values: torch.Tensor, state: list[torch.Tensor], gradients: torch.Tensor, lr: float
) -> None:
    (total,) = state
    total.add_(gradients.pow(2))
    values.add_(gradients / total.sqrt().add_(optimizer.eps), alpha=-lr)


def _adam(
    optimizer: Adam,
    values: torch.Tensor,
    state: list[torch.Tensor],
    gradients: torch.Tensor,
    step_and_lr: tuple[int, float],
) -> None:
    step, lr = step_and_lr
    mean, square, *greatest = state
    mean.add_(gradients.sub(mean).mul_(1 - optimizer.beta1))
    square.add_(gradients.pow(2).sub_(square).mul_(1 - optimizer.beta2))
    if greatest:
        torch.maximum(greatest[0], square, out=greatest[0])
    size = lr * math.sqrt(1 - optimizer.beta2**step) / (1 - optimizer.beta1**step)
    values.add_(-size * mean.div((greatest[0] if greatest else square).sqrt().add_(optimizer.eps)))
