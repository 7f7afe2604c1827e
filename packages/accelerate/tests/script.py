"""A script with Accelerate, with the model and the ledger of ``tests.elastic.schedules.script``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tidewater_accelerate import Accelerator, job
from torch.utils.data import DataLoader, TensorDataset

from tests.elastic.schedules.script import BATCH_SIZE, Numbers, Options, Witness
from tidewater import session

HELD_OUT = 30


class Counter:
    """The steps that the script has counted itself, as a part of the job's state."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.steps = state["steps"]


def main(options: Options, epochs: int, output: Path) -> None:
    """Train and evaluate."""
    witness = Witness(options)
    witness.install()
    # The ledger is written when a step is final, which the script itself doesn't see.
    noted: Any = functools.partial(session, on_step=witness.on_step)
    vars(job)["session"] = noted

    accelerator = Accelerator()
    training = witness.training(accelerator.job._config)
    train = DataLoader(Numbers(), batch_size=BATCH_SIZE, shuffle=True)
    held_out = DataLoader(TensorDataset(torch.arange(HELD_OUT)), batch_size=BATCH_SIZE)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.999)  # type: ignore[arg-type]
    model, optimizer, train, held_out, scheduler = accelerator.prepare(
        training.model, training.optimizer, train, held_out, scheduler
    )
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    for epoch in range(epochs):
        for batch in train:
            with accelerator.accumulate(model):
                accelerator.backward(witness.loss(model, batch))
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if not accelerator.optimizer_step_was_skipped:
                counter.steps += 1
        seen = sum(len(accelerator.gather_for_metrics(keys)) for (keys,) in held_out)
        accelerator.print(
            f"epoch={epoch} evaluated={seen} steps={accelerator.steps} counted={counter.steps}", flush=True
        )
    accelerator.wait_for_everyone()
    accelerator.save_model(model, output)
    rate = scheduler.get_last_lr()[0]
    accelerator.end_training()
    print(f"ended steps={accelerator.steps} counted={counter.steps} rate={rate:.12f}", flush=True)
