"""A training script as real ones are: padded batches, two optimizers, a torch scheduler and clipping.

    python tokens.py --job … --lr 0.05

It trains in 64 bits, so that runs at different world sizes can be compared closely: see ``trained``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import ExponentialLR, LRScheduler
from torch.utils.data import Dataset

import tidewater
from tidewater.elastic.data.sampler import Cursor, plan

SAMPLES, LONGEST, WORDS = 50, 9, 20
PADDING = 0
BATCH = 7
"""50 is no multiple: an epoch's last step has one sample, so one of two workers has none."""
ARGUMENTS = ("--batch-size", str(BATCH), "--micro-batch", "3", "--epochs", "100")


class Sentences(Dataset[torch.Tensor]):
    """Sentences of different lengths."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(index)
        return torch.randint(1, WORDS, (2 + index % (LONGEST - 1),), generator=draw)


def collate(sentences: list[torch.Tensor]) -> torch.Tensor:
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PADDING)


def loss(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum over the next words, and their number."""
    words, following = batch[:, :-1], batch[:, 1:]
    scores = model(words).flatten(0, 1)
    total = nn.functional.cross_entropy(scores, following.flatten(), ignore_index=PADDING, reduction="sum")
    return total, (following != PADDING).sum()


def made(lr: float) -> tuple[nn.Sequential, list[torch.optim.Optimizer], LRScheduler]:
    """Return a model, its optimizers and the scheduler of the second one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, 6), nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, WORDS)).double()
    sgd = SGD(model[1:].parameters(), lr=lr, momentum=0.9)
    return model, [AdamW(model[0].parameters(), lr=lr / 10), sgd], ExponentialLR(sgd, 0.95)


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def training(config: tidewater.Config) -> tidewater.Training:
    model, optimizers, scheduler = made(config.user.lr)
    return tidewater.Training(
        model=model,
        optimizer=optimizers,
        scheduler=scheduler,
        before_step=clip,
        dataset=Sentences(),
        collate=collate,
        loss=loss,
        validation=Sentences(),
        score=lambda model, batch: torch.tensor(float(len(batch))),
    )


def trained(rates: Sequence[float]) -> nn.Module:
    """Return the model after one step of plain torch with each of these learning rates, in one process.

    A rate applies as if the script had had it from the beginning, only moments and parameters are of the steps before.
    """
    model, optimizers, scheduler = made(rates[0])
    cursor, dataset = Cursor(), Sentences()
    for step, lr in enumerate(rates):
        if step and lr != rates[step - 1]:
            optimizers[0].param_groups[0]["lr"], optimizers[1].param_groups[0]["lr"] = lr / 10, lr * 0.95**step
        planned = plan(cursor, total=SAMPLES, batch_size=BATCH, seed=0)
        total, weight = loss(model, collate([dataset[index] for index in planned.samples]))
        model.zero_grad()
        torch.autograd.backward(total / weight)
        clip(model)
        for optimizer in optimizers:
            optimizer.step()
        scheduler.step()
        cursor = planned.after
    return model


def flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--lr", type=float, default=0.5)


if __name__ == "__main__":
    sys.exit(tidewater.run(training, flags=flags))
