"""Hugging Face's Trainer with elastic workers; without arguments the library's own Trainer, with the same work.

python with_trainer.py --job bench --etcd http://HOST:PORT --checkpoints DIR
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import tidewater_transformers
import torch
import transformers

import tidewater
from benchmarks.elastic.workers import names, record

WORDS, LENGTH, TEXTS = 128, 16, 1920
EPOCHS = 1_000_000
"""As `--epochs` of the other scripts: training goes on until the process is killed."""


class Recorded(transformers.TrainerCallback):
    """Records every step."""

    def __init__(self) -> None:
        self._recorder = record.Recorder.from_environment()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Record the step; wait at the gate."""
        self._recorder.committed(state.global_step, world=1, loss=0.0, samples=names.GLOBAL_BATCH)


def fields() -> dict[str, Any]:
    """Return the arguments of either Trainer: a small GPT-2 from its configuration, and random texts in memory."""
    recorded = Recorded()
    config = transformers.GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4)
    texts = torch.randint(WORDS, (TEXTS, LENGTH))
    args = transformers.TrainingArguments(
        os.environ[names.CHECKPOINTS],
        per_device_train_batch_size=names.GLOBAL_BATCH,
        num_train_epochs=EPOCHS,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    return {
        "model": transformers.GPT2LMHeadModel(config),
        "args": args,
        "train_dataset": [{"input_ids": text, "labels": text} for text in texts],
        "callbacks": [recorded],
    }


def main(argv: Sequence[str]) -> None:
    """Train until the process is killed."""
    if argv:
        config = tidewater.init(argv)
        tidewater_transformers.Trainer(**fields(), config=config).train()
    else:
        transformers.Trainer(**fields()).train()


if __name__ == "__main__":
    main(sys.argv[1:])
