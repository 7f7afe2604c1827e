"""The training scripts of the forked workers, each with a Trainer.

``ledger``: the regression of ``schedules.script``, with its ledger; ``text``: a language model with padded texts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tidewater_transformers import Trainer
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

import tidewater
from tests.elastic.group import kinds
from tests.elastic.schedules.script import BATCH_SIZE, Numbers, Options, Witness

EPOCHS = 100_000
"""Of the regression: it goes on until it is stopped."""
SENTENCES = 22
"""Texts for training; with 4 in a step the last step of an epoch has 2."""


class Named(Dataset[dict[str, Any]]):
    """The samples of the regression with names, as the library wants them."""

    def __init__(self) -> None:
        self._numbers = Numbers()

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> dict[str, Any]:
        inputs, targets, number = self._numbers[index]
        return {"inputs": inputs, "targets": targets, "number": number}


class Witnessed(Trainer):
    """Keeps the ledger."""

    witness: Witness

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        return self.witness.loss(self.model, (inputs["inputs"], inputs["targets"], inputs["number"]))

    def _training(self, *given: Any) -> dict[str, Any]:
        fields = super()._training(*given)
        before = fields["on_step"]

        def on_step(report: tidewater.Report) -> None:
            before(report)
            self.witness.on_step(report)

        return {**fields, "on_step": on_step}


def ledger(options: Options, argv: list[str], given: dict[str, Any]) -> int:
    """Train the regression."""
    kinds.use(options.group)
    witness = Witness(options)
    witness.install()
    config = tidewater.init(argv)
    training = witness.training(config)
    args = TrainingArguments(
        str(options.folder / "out"),
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=EPOCHS,
        seed=0,
        remove_unused_columns=False,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **given,
    )
    optimizers = (training.optimizer, torch.optim.lr_scheduler.ConstantLR(training.optimizer, 1.0))  # type: ignore[arg-type]
    trainer = Witnessed(training.model, args, train_dataset=Named(), optimizers=optimizers, config=tidewater.init(argv))
    trainer.witness = witness
    trainer.train()
    return 0


class Sentences(Dataset[dict[str, list[int]]]):
    """Random tokens, in texts of different lengths."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 12, (count,), generator=generator).tolist()
        self._texts = [torch.randint(1, 60, (length,), generator=generator).tolist() for length in lengths]

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": self._texts[index]}


def pad(samples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Pad to the longest text. Padding has no label."""
    texts = [torch.tensor(sample["input_ids"]) for sample in samples]
    words = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    mask = words != 0
    return {"input_ids": words, "attention_mask": mask.long(), "labels": words.masked_fill(~mask, -100)}


def tiny(dropout: float = 0.0) -> GPT2LMHeadModel:
    """Return a GPT-2 of some thousand parameters."""
    torch.manual_seed(1)
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    ids = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=2, n_head=2, **drops, **ids))


class Noted(TrainerCallback):
    """Writes a line for every event of the Trainer."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def _note(self, kind: str, state: Any, **more: Any) -> None:
        told = {"kind": kind, "step": state.global_step, "epoch": state.epoch, "writes": state.is_world_process_zero}
        self._file.write(json.dumps({**told, **more}) + "\n")

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._note("train_begin", state)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._note("epoch_begin", state)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._note("step_end", state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._note("epoch_end", state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        self._note("log", state, logs=logs)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **more: Any) -> None:
        self._note("evaluate", state, metrics=metrics)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._note("save", state)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._note("train_end", state)


def right(predicted: Any) -> dict[str, float]:
    """Return the share of words that were guessed."""
    guesses, labels = predicted.predictions[:, :-1].argmax(-1), predicted.label_ids[:, 1:]
    return {"right": float((guesses == labels)[labels != -100].mean())}


def text_arguments(folder: Path, given: dict[str, Any]) -> TrainingArguments:
    """Return the arguments of ``text``."""
    common: dict[str, Any] = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "learning_rate": 0.01,
        "warmup_steps": 3,
        "num_train_epochs": 3,
        "logging_steps": 2,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "disable_tqdm": True,
        "report_to": "none",
    }
    return TrainingArguments(str(folder), **{**common, **given})


def text(options: Options, argv: list[str], given: dict[str, Any]) -> int:
    """Train the language model."""
    config = tidewater.init(argv)
    trainer = Trainer(
        model=tiny(),
        args=text_arguments(options.folder.parent / "out", given),
        data_collator=pad,
        train_dataset=Sentences(SENTENCES, 1),
        eval_dataset=Sentences(9, 2),
        compute_metrics=right,
        callbacks=[Noted(options.folder / "events")],
        config=config,
    )
    result = trainer.train()
    trainer.save_model()
    print(f"trained {result.global_step} {result.training_loss}", flush=True)
    return 0
