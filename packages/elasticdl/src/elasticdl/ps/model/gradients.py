"""What a worker pushes to a server for one minibatch, and the mean of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from elasticdl.ps.model.deduplication import Minibatch
from elasticdl.ps.placement import coalesced

Rows = tuple[torch.Tensor, torch.Tensor]
"""Ids, int64 (n,), and values, float32 (n, dim)."""


@dataclass(frozen=True)
class Gradient:
    """What a worker pushes for one minibatch to one server."""

    minibatch: Minibatch
    version: int
    """Version of the server's parameters that it was computed with."""
    dense: Mapping[str, torch.Tensor]
    rows: Mapping[str, Rows] = field(default_factory=dict)
    """By table. A table with a gradient that has no rows on this server is there, too: its steps are counted."""
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    lr: float | None = None
    """Learning rate; None: the optimizer's own."""


def mean(gradients: Sequence[Gradient]) -> Gradient:
    """Return the mean of gradients. It doesn't depend on the order in which they arrived.

    A parameter or row without a gradient in some of them counts as zero there: the result is the gradient of the mean
    of their losses. Learning rate, version and buffers are those of the one with the newest version.
    """
    if len(gradients) == 1:
        return gradients[0]
    ordered = sorted(gradients, key=lambda each: (each.minibatch.worker, each.minibatch.process, each.minibatch.number))
    newest = max(ordered, key=lambda each: each.version)
    count = len(ordered)
    return Gradient(
        newest.minibatch,
        newest.version,
        {name: _sum(each.dense[name] for each in ordered if name in each.dense) / count for name in _names(ordered)},
        {
            name: _mean_rows([each.rows[name] for each in ordered if name in each.rows], count)
            for name in _tables(ordered)
        },
        newest.buffers,
        newest.lr,
    )


def _sum(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    first, *others = tensors
    total = first.clone()
    for each in others:
        total.add_(each)
    return total


def _mean_rows(rows: Sequence[Rows], count: int) -> Rows:
    ids, values = coalesced(torch.cat([ids for ids, _ in rows]), torch.cat([values for _, values in rows]))
    return ids, values / count


def _names(gradients: Sequence[Gradient]) -> dict[str, None]:
    return dict.fromkeys(name for each in gradients for name in each.dense)


def _tables(gradients: Sequence[Gradient]) -> dict[str, None]:
    return dict.fromkeys(name for each in gradients for name in each.rows)
