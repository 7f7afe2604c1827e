"""What the arguments of ``Trainer`` and ``fit`` mean here: a table, and the sentences for those that can't be used.

``RULES`` has all arguments of the constructor. What it refuses would do something else than it says, or would do it in
one worker only. README.md has the same table for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewater import Config

PRECISIONS = ("32-true", "bf16-mixed")
CALLBACKS = (
    "BackboneFinetuning BaseFinetuning BatchSizeFinder EMAWeightAveraging GradientAccumulationScheduler "
    "LearningRateFinder ModelPruning StochasticWeightAveraging WeightAveraging"
).split()
"""Callbacks that change the optimizer, the batches or the weights in a way that isn't a part of the workers' state."""


@dataclass(frozen=True)
class Rule:
    """Which values of an argument can be used."""

    allows: Callable[[Any], bool] = lambda value: True
    remedy: str = ""


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value == each for each in values)


ANY = Rule()
RULES: dict[str, Rule] = {
    "accelerator": Rule(_is("cpu", "cuda"), "workers train on CPUs or CUDA's GPUs"),
    "strategy": ANY,
    "devices": Rule(_is(1), "a process has one device: leave it out, and use --processes for more GPUs"),
    "num_nodes": Rule(_is(1), "the number of workers is that of the job, and changes: leave it out"),
    "precision": Rule(_is(*PRECISIONS), f"use one of {', '.join(PRECISIONS)}"),
    "logger": ANY,
    "callbacks": Rule(
        lambda names: not set(names) & set(CALLBACKS),
        f"none of {', '.join(CALLBACKS)} can be used: what they change isn't handed to a worker that joins",
    ),
    "fast_dev_run": Rule(_is(0), "try the script without ElasticStrategy, or use max_steps"),
    "max_epochs": ANY,
    "min_epochs": ANY,
    "max_steps": ANY,
    "min_steps": ANY,
    "max_time": ANY,
    "limit_train_batches": Rule(
        lambda value: isinstance(value, float) and value == 1.0,  # 1 is a single batch
        "every sample is used once in an epoch: give a Subset of the dataset",
    ),
    "limit_val_batches": ANY,
    "limit_test_batches": ANY,
    "limit_predict_batches": ANY,
    "overfit_batches": Rule(_is(0), "give a Subset of the dataset"),
    "val_check_interval": Rule(
        lambda value: value is None, "the workers' clocks differ: give a number of steps or a share of the epoch"
    ),
    "check_val_every_n_epoch": ANY,
    "num_sanity_val_steps": ANY,
    "log_every_n_steps": ANY,
    "enable_checkpointing": ANY,
    "enable_progress_bar": ANY,
    "enable_model_summary": ANY,
    "accumulate_grad_batches": Rule(
        _is(1), "the loader's batch_size is that of a step of all workers: raise it, and use --micro-batch for memory"
    ),
    "gradient_clip_val": ANY,
    "gradient_clip_algorithm": ANY,
    "deterministic": ANY,
    "benchmark": ANY,
    "inference_mode": ANY,
    "use_distributed_sampler": ANY,
    "profiler": ANY,
    "detect_anomaly": ANY,
    "barebones": ANY,
    "plugins": Rule(_is([]), "leave them out: the worker's environment and its checkpoints are the runtime's"),
    "sync_batchnorm": Rule(
        _is(False), "it waits for all workers in every forward pass: the runtime averages the running statistics"
    ),
    "reload_dataloaders_every_n_epochs": Rule(_is(0), "the dataset must be the same in all epochs"),
    "default_root_dir": ANY,
    "enable_autolog_hparams": ANY,
    "model_registry": ANY,
}
OF_FIT = {
    "ckpt_path": Rule(
        lambda path: path is None, "the job continues from its own checkpoint in --checkpoints; load weights before fit"
    )
}
FLAGS = {
    "batch_policy": Rule(_is("keep"), "the loader's batch_size is that of all workers: use --batch-policy keep"),
    "amp": Rule(_is("off"), "use Trainer(precision=…)"),
    "bad_samples": Rule(_is("stop"), "Lightning's epochs have a fixed length: use --bad-samples stop"),
}


def refusals(values: Mapping[str, Any], config: Config) -> list[str]:
    """Return a sentence for each value of an argument, or flag of the command line, that can't be used."""
    found = [(f"Trainer({name}={{!r}})", RULES[name], values[name]) for name in RULES.keys() & values]
    found += [(f"fit({name}={{!r}})", OF_FIT[name], values[name]) for name in OF_FIT.keys() & values]
    found += [(f"--{name.replace('_', '-')} {{}}", rule, getattr(config, name)) for name, rule in FLAGS.items()]
    return sorted(
        f"{what.format(value)} can't be used with ElasticStrategy: {rule.remedy}"
        for what, rule, value in found
        if not rule.allows(value)
    )


def chosen_devices(value: Any, every: int) -> Any:
    """Return Lightning's value of ``devices``, a number or indices; 1 if it is one device, or all: that is its default.

    Args:
        value: The value.
        every: How many devices this process sees.
    """
    return 1 if value in (1, [0], every, list(range(every))) else value


def given(trainer: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return the values of the restricted arguments. Lightning keeps them in several places.

    Args:
        trainer: That was constructed.
        arguments: Of ``fit``, in their order.
    """
    connector = trainer._accelerator_connector
    accelerator = trainer.accelerator
    plugins = (connector._precision_plugin_flag, connector._cluster_environment_flag, connector.checkpoint_io)
    return {
        "accelerator": {"CPUAccelerator": "cpu", "CUDAAccelerator": "cuda"}.get(
            type(accelerator).__name__, type(accelerator).__name__
        ),
        "devices": chosen_devices(connector._devices_flag, accelerator.auto_device_count()),
        "num_nodes": connector._num_nodes_flag,
        "precision": connector._precision_flag,
        "callbacks": sorted({kind.__name__ for each in trainer.callbacks for kind in type(each).__mro__}),
        "fast_dev_run": int(trainer.fast_dev_run),
        "limit_train_batches": trainer.limit_train_batches,
        "overfit_batches": trainer.overfit_batches,
        "val_check_interval": trainer._val_check_time_interval,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "plugins": [type(each).__name__ for each in plugins if each is not None],
        "sync_batchnorm": connector._layer_sync is not None,
        "reload_dataloaders_every_n_epochs": trainer.reload_dataloaders_every_n_epochs,
        "ckpt_path": arguments[4] if len(arguments) > 4 else None,
    }
