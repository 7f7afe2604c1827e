"""Hugging Face's Trainer with elastic workers: a script changes three lines, see README.md.

    config = tidewater.init()                                   # before the model is built
    trainer = Trainer(model=model, args=TrainingArguments(...), train_dataset=data, config=config)
    trainer.train()

arguments   which TrainingArguments are honoured, which are refused, and what the runtime makes of them
course      the Trainer's counters, logs, evaluations and checkpoints, step by step
trainer     the Trainer: its loop is a session of the runtime
"""

from tidewater_transformers.trainer import Trainer

__all__ = ["Trainer"]
