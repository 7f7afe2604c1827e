"""A generated dataset of clicks, for recommenders. No person clicked: a seed gives the same numbers each time.

Users and items have hidden vectors. A user is shown an item, popular items more often, and clicks with a probability
that grows with the product of the two vectors, with the item's quality and with how fresh the item is. So a model can
learn users and items only through embeddings, and no model predicts every click.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SAID = "generated: no person clicked"
_HIDDEN = 4
_BLOCK = 4096
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clicks:
    """How large the world of the dataset is. Ids begin at 1, so that 0 can stand for none."""

    records: int = 20_000
    users: int = 500
    items: int = 200
    history: int = 5
    """Items in `history`: some that the user likes, in no order; 0 where there are fewer."""


def generated(size: Clicks, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the fields of each record: user, item, history, fresh and label (1: clicked)."""
    world = np.random.default_rng([seed, 0])
    users = world.normal(size=(size.users, _HIDDEN))
    items = world.normal(size=(size.items, _HIDDEN))
    quality = world.normal(scale=0.5, size=size.items)
    popularity = 1.0 / np.arange(1, size.items + 1)
    liked = _liked(users @ items.T, size.history, world)
    for block, start in enumerate(range(0, size.records, _BLOCK)):
        draw = np.random.default_rng([seed, 1, block])
        count = min(_BLOCK, size.records - start)
        user = draw.integers(size.users, size=count)
        item = draw.choice(size.items, size=count, p=popularity / popularity.sum())
        fresh = draw.random(count)
        odds = 1.5 * (users[user] * items[item]).sum(1) + quality[item] + fresh - 1.0
        label = draw.random(count) < 1.0 / (1.0 + np.exp(-odds))
        for row in range(count):
            yield {
                "user": np.int64(user[row] + 1),
                "item": np.int64(item[row] + 1),
                "history": liked[user[row]],
                "fresh": np.float32(fresh[row]),
                "label": np.int64(label[row]),
            }


def _liked(affinity: Floats, length: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return, for each user, up to `length` items among those that the user likes best, filled up with 0."""
    best = np.argsort(-affinity, axis=1, kind="stable")[:, :length] + 1
    return np.where(draw.random(best.shape) < 0.8, best, 0).astype(np.int64)
