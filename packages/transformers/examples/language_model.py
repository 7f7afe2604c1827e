"""Trains a small language model on random words: Hugging Face's Trainer, on workers that come and go.

    python language_model.py --job words --etcd http://127.0.0.1:2379 --checkpoints DIR --output DIR

Without Tidewater it is the same script with ``transformers.Trainer``, and without ``config``.
"""

from __future__ import annotations

import argparse

import torch
from tidewater_transformers import Trainer
from transformers import EarlyStoppingCallback, EvalPrediction, GPT2Config, GPT2LMHeadModel, TrainingArguments

import tidewater


def flags(group: argparse._ArgumentGroup) -> None:
    """Add the script's own flags."""
    group.add_argument("--output", required=True, help="folder for the model, shared by all workers")
    group.add_argument("--words", type=int, default=100, help="size of the vocabulary")


config = tidewater.init(flags=flags)
words, output = config.user.words, config.user.output


def texts(count: int) -> list[dict[str, torch.Tensor]]:
    """Return texts in which each word follows from the one before it."""
    step = torch.randint(1, 4, (count, 1))
    ids = (torch.randint(words, (count, 1)) + step * torch.arange(32)) % words
    return [{"input_ids": each, "labels": each} for each in ids]


def accuracy(predicted: EvalPrediction) -> dict[str, float]:
    """Return the share of words that the model predicts."""
    guesses = predicted.predictions.argmax(-1)[:, :-1]
    return {"accuracy": float((guesses == predicted.label_ids[:, 1:]).mean())}


trainer = Trainer(
    model=GPT2LMHeadModel(GPT2Config(vocab_size=words, n_positions=32, n_embd=32, n_layer=2, n_head=4)),
    args=TrainingArguments(
        output,
        per_device_train_batch_size=16,
        num_train_epochs=5,
        learning_rate=3e-3,
        warmup_steps=0.1,
        logging_steps=20,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to="none",
    ),
    train_dataset=texts(1024),
    eval_dataset=texts(128),
    compute_metrics=accuracy,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    config=config,
)
trainer.train()
trainer.save_model()
print("the best accuracy:", trainer.state.best_metric)
