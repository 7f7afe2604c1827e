"""A Trainer with ElasticStrategy does what it does without: the counters, the hooks, the schedulers."""

from __future__ import annotations

from collections.abc import Callable

import lightning

from packages.lightning.tests.conftest import EPOCHS, STEPS, Net, loader

Make = Callable[..., lightning.Trainer]


def test_hooks_and_counters_are_those_of_lightning(trainer: Make) -> None:
    module, made = Net(), trainer()
    made.fit(module, loader(), loader())
    plain, other = (
        Net(),
        lightning.Trainer(
            logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=EPOCHS, accelerator="cpu"
        ),
    )
    other.fit(plain, loader(), loader())
    assert module.calls == plain.calls
    assert module.rates == plain.rates
    assert (made.global_step, made.current_epoch) == (STEPS * EPOCHS, EPOCHS)
    assert made.fit_loop.state_dict() == other.fit_loop.state_dict()
