"""A project of several modules, a configuration file and a library's trainer, as people bring it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import corpus  # type: ignore[import-not-found] # a module of the project, as network is
import network  # type: ignore[import-not-found]
import yaml
from tidewater_transformers import Trainer
from transformers import GPT2LMHeadModel, TrainerCallback, TrainingArguments

import tidewater


def flags(group: argparse._ArgumentGroup) -> None:
    """Add the script's own flag."""
    group.add_argument("--output", type=Path, required=True)


class Enough(TrainerCallback):  # type: ignore[misc] # the library has no types here
    """Ends training when there is a file."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = (Path(args.output_dir) / "enough").exists()


config = tidewater.init(flags=flags)
settings = yaml.safe_load(Path(__file__).with_name("config.yaml").read_text())
output = config.user.output
trainer = Trainer(
    model=network.built(settings),
    args=TrainingArguments(
        str(output),
        per_device_train_batch_size=16,
        max_steps=100_000,
        logging_steps=20,
        save_steps=50,
        save_total_limit=1,
        report_to="none",
        disable_tqdm=True,
    ),
    train_dataset=corpus.texts(settings),
    callbacks=[Enough()],
    config=config,
)
trainer.train()
trainer.save_model(str(output / "model"))
if trainer.is_world_process_zero():
    size = GPT2LMHeadModel.from_pretrained(output / "model").num_parameters()
    print(f"event=model_saved parameters={size} steps={trainer.state.global_step}", flush=True)
