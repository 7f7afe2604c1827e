"""How far a training has come: it ends after its epochs, or after ``--max-steps`` if that is earlier."""

from __future__ import annotations

from tidewater.elastic.config import Config
from tidewater.elastic.state import State


def is_over(state: State, config: Config) -> bool:
    """Return whether training has ended with the last applied step."""
    return state.cursor.epoch >= config.epochs or 0 < config.max_steps <= state.step


def progress(state: State, total: int | None, config: Config) -> float:
    """Return the share of the training that is done, from 0 to 1, by what ends it first.

    Args:
        state: Where training is.
        total: Samples in an epoch; None if it is not known, and only ``--max-steps`` counts.
        config: Has the numbers of epochs and of steps.
    """
    samples = 0.0
    if total:  # what a stream says of its length may be wrong
        samples = (state.cursor.epoch + min(state.cursor.offset, total) / total) / config.epochs
    return max(samples, state.step / config.max_steps) if config.max_steps else samples
