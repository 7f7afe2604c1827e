"""A small transformer that the processes of each worker divide, with a ledger of the steps that became final."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import Dataset, IterableDataset

import tidewater

WORDS, LENGTH, SAMPLES, BATCH = 50, 12, 60, 8
"""60 is no multiple of 8: the last step of an epoch has 4 samples, so of six processes two have none."""


class Sentences(Dataset[torch.Tensor]):
    """Sentences that follow simple rules."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return (torch.arange(LENGTH + 1) * (index % 7 + 1) + index) % WORDS


class Stream(IterableDataset[torch.Tensor]):
    """The same, which can only be read from a place on."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        samples = Sentences()
        while self.place < SAMPLES:
            self.place += 1
            yield samples[self.place - 1]

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class Language(nn.Module):
    """A model of odd sizes, so that the parts of the processes differ in size."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 3, 2 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.out = nn.Linear(width, WORDS)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = self.words(given)
        for layer in self.layers:
            hidden = layer(hidden)
        found: torch.Tensor = self.out(hidden)
        return found.clone()


class Averaging(torch.optim.AdamW):
    """Evaluates the average of the last values, as ScheduleFree does."""

    trains = True

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        for parameter, state in self.state.items():
            state.setdefault("average", parameter.detach().clone()).lerp_(parameter.detach(), 0.1)
        return result

    def train(self) -> None:
        self._be(trains=True)

    def eval(self) -> None:
        self._be(trains=False)

    def _be(self, *, trains: bool) -> None:
        if trains == self.trains:
            return
        self.trains = trains
        for parameter, state in self.state.items():
            now = parameter.detach().clone()
            parameter.data.copy_(state["average"])
            state["average"].copy_(now)


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def training(config: tidewater.Config) -> tidewater.Training:
    model = Language(config.user.width, config.user.layers)
    if config.user.style == "recomputed":
        apply_activation_checkpointing(model, check_fn=lambda each: isinstance(each, nn.TransformerEncoderLayer))
    if config.user.divide:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if config.user.style == "mixed" else None
        given: dict[str, Any] = {"mp_policy": policy} if policy else {}
        for layer in model.layers:
            fully_shard(layer, mesh=config.mesh, **given)
        fully_shard(model, mesh=config.mesh, **given)
    if config.user.style == "compiled":
        for layer in model.layers:
            layer.compile(backend="aot_eager")
    optimizer = Averaging if config.user.style == "averaging" else torch.optim.AdamW
    ledger = Path(config.user.ledger) / f"{config.process}-{os.getpid()}.jsonl"

    def loss(model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, float]:
        wanted = batch[:, 1:].flatten()
        if config.user.constant_at in batch[:, 0]:  # a constant, as where no word has a label
            model(batch[:, :-1])
            return torch.zeros(()), 0.0
        short, most = map(int, config.user.fits.split(":"))
        if reached >= short and len(batch) > most and config.process == config.user.short:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        logits = model(batch[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), wanted, reduction="sum"), float(wanted.numel())

    reached = 0

    def on_step(report: Any) -> None:
        nonlocal reached
        reached = report.step
        while reached == config.user.hold_at and not (ledger.parent / "go").exists():
            time.sleep(0.01)
        if report.step == config.user.drift_at and (report.rank, config.index) == (2, 1):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.01)
        line = [report.step, report.generation, report.world_size, report.rank, config.index, report.samples]
        with ledger.open("a") as file:
            file.write(json.dumps([*line, report.loss, report.writes]) + "\n")

    def score(model: nn.Module, batch: torch.Tensor) -> float:
        logits = model(batch[:, :-1]).flatten(0, 1)
        return float(nn.functional.cross_entropy(logits, batch[:, 1:].flatten(), reduction="sum")) / LENGTH

    held_out: dict[str, Any] = {}
    if config.user.validates:
        held_out = {"validation": Sentences(), "score": score, "keep_best": "min"}
    return tidewater.Training(
        model=model,
        # With a larger eps the rounding of gradients that are nearly 0 makes no step of its own.
        optimizer=optimizer(model.parameters(), lr=config.user.lr, eps=1e-3),
        dataset=Stream() if config.user.stream else Sentences(),
        loss=loss,
        before_step=clip,
        on_step=on_step,
        **held_out,
    )


def flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--divide", action="store_true")
    group.add_argument("--ledger", default=".")
    group.add_argument("--constant-at", type=int, default=-1)
    group.add_argument("--loop", default="run")
    group.add_argument("--fits", default="0:100", help="step from which a process has too little memory, and samples")
    group.add_argument("--short", default="b.1", help="that process")
    group.add_argument("--hold-at", type=int, default=0, help="step after which the job waits for the file go")
    group.add_argument("--validates", action="store_true")
    group.add_argument("--stream", action="store_true")
    group.add_argument("--drift-at", type=int, default=0)
    group.add_argument("--width", type=int, default=33)
    group.add_argument("--layers", type=int, default=2)
    group.add_argument("--lr", type=float, default=3e-3)
    group.add_argument("--style", choices=["plain", "mixed", "recomputed", "compiled", "averaging"], default="plain")


def own_loop() -> int:
    """Do the same in a loop of this script's own."""
    config = tidewater.init(flags=flags)
    made: Any = training(config)
    wanted = [each.name for each in fields(made) if each.name not in ("loss", "score", "keep_best")]
    given = {name: getattr(made, name) for name in wanted}
    with tidewater.session(config, **given) as run:
        for _ in run.epochs() if config.user.validates else [0]:
            for batch in run.batches():
                run.step(functools.partial(made.loss, made.model, batch))
            if config.user.validates:
                validation = run.validation(made.validation)
                for batch, add in validation:
                    add(loss=made.score(made.model, batch), first=batch[:, 0].sum(), count=len(batch))
                if found := validation.totals:
                    sums = f"accuracy={found['loss'] / SAMPLES:.4f} first={found['first']:g} count={found['count']:g}"
                    print(f"event=evaluated epoch={run.epoch} {sums} worker={config.process}", flush=True)
    return run.exit_code


if __name__ == "__main__":
    raise SystemExit(own_loop() if "own" in sys.argv else tidewater.run(training, flags=flags))
