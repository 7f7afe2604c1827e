"""Which TrainingArguments are honoured, which are refused by name, and what the runtime makes of the others.

refusals(args, TrainingArguments("any"), gpu=True)      # a sentence for each argument that can't be honoured
settings(args, epochs=3, max_steps=120)                 # fields of tidewater.Config
contradictions(config, settings(...))                   # a sentence for each flag that says something else
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidewater.elastic import flags
from tidewater.elastic.config import Config, no_flags

_FORK = ("", "fork")

BY_THE_RUNTIME = frozenset(
    """
    per_device_train_batch_size gradient_accumulation_steps num_train_epochs max_steps seed bf16 fp16 max_grad_norm
    dataloader_num_workers dataloader_prefetch_factor dataloader_pin_memory dataloader_persistent_workers
    """.split()
)
"""What the session does, by ``settings`` and by the loop."""

BY_THE_LIBRARY = frozenset(
    """
    output_dir learning_rate lr_scheduler_type lr_scheduler_kwargs warmup_steps optim_args weight_decay adam_beta1
    adam_beta2 adam_epsilon optim_target_modules average_tokens_across_devices label_smoothing_factor bf16_full_eval
    fp16_full_eval tf32 activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing
    gradient_checkpointing_kwargs use_liger_kernel liger_kernel_config use_cache neftune_noise_alpha logging_strategy
    logging_steps logging_first_step logging_nan_inf_filter log_level log_level_replica disable_tqdm report_to run_name
    project trackio_space_id trackio_bucket_id trackio_static_space_id eval_strategy eval_steps eval_delay
    per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object
    eval_accumulation_steps include_for_metrics batch_eval_metrics save_only_model save_strategy save_steps
    save_total_limit load_best_model_at_end metric_for_best_model greater_is_better full_determinism
    remove_unused_columns label_names skip_memory_metrics
    """.split()
)
"""What the library's own code does with them, in every worker or in the one that writes."""

OF_THE_SCRIPT = frozenset("do_train do_eval do_predict resume_from_checkpoint".split())
"""The Trainer doesn't read them."""

WITHOUT_EFFECT = frozenset(
    """
    hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision length_column_name
    ignore_data_skip restore_callback_states_from_checkpoint log_on_each_node torch_compile_backend torch_compile_mode
    fsdp_config dataloader_in_order
    """.split()
)
"""They belong to a refused argument, or to what the runtime always does: it skips no data on a resume, for example."""

_OF_DDP = "remove it, since the runtime sums the gradients itself, without DistributedDataParallel"
_OF_HUB = "remove it, and call trainer.push_to_hub() after trainer.train()"

REFUSED: Mapping[str, str] = {
    "torch_compile": "give the Trainer a model whose forward is compiled: model.forward = torch.compile(model.forward)",
    "torch_empty_cache_steps": "remove it: where memory is short, the runtime tries smaller micro-batches by itself",
    "auto_find_batch_size": "remove it: where memory is short, the runtime tries smaller micro-batches by itself, and "
    "the batch of a step stays the same",
    "include_num_input_tokens_seen": "remove it: each worker sees the tokens of its own share only",
    "save_on_each_node": "remove it: one worker writes, into a folder that all of them share",
    "enable_jit_checkpoint": "remove it: at a SIGTERM a worker leaves, and the others go on",
    "push_to_hub": _OF_HUB,
    "accelerator_config": "remove it: the runtime divides the batches",
    "parallelism_config": "remove it: each worker has the whole model",
    "dataloader_drop_last": "remove it: every sample is used once per epoch",
    "ddp_find_unused_parameters": _OF_DDP,
    "ddp_bucket_cap_mb": _OF_DDP,
    "ddp_broadcast_buffers": _OF_DDP,
    "ddp_static_graph": _OF_DDP,
    "ddp_backend": _OF_DDP,
    "ddp_timeout": _OF_DDP,
    "local_rank": "remove it: workers are started without torchrun",
    "fsdp": "remove it: each worker has the whole model",
    "deepspeed": "remove it: each worker has the whole model",
    "debug": "remove it: look at a step in a plain Trainer",
}
"""Refused unless they have the library's default. The remedy for each."""


def _sampling(value: Any) -> str:
    random = str(getattr(value, "value", value)) == "random"
    return "" if random else 'give "random": the runtime chooses the samples of each step, in a new order every epoch'


def _optimizer(value: Any) -> str:
    name = str(getattr(value, "value", value))
    if "lomo" in name or "layerwise" in name:
        return (
            "choose another one: it changes weights during the backward pass, before the workers' gradients are summed"
        )
    return ""


def _forked(value: Any) -> str:
    return "" if (value or "") in _FORK else 'give "fork" or nothing: the runtime forks the processes that read data'


CHECKED: Mapping[str, Callable[[Any], str]] = {
    "train_sampling_strategy": _sampling,
    "optim": _optimizer,
    "dataloader_multiprocessing_context": _forked,
}
"""Honoured for some values. Each returns the remedy for the others."""

TOGETHER = frozenset(("use_cpu", "data_seed"))
"""Honoured or refused together with something else: see ``refusals``."""


def refusals(args: Any, plain: Any, *, gpu: bool) -> list[str]:
    """Return a sentence for each argument that can't be honoured.

    Args:
        args: The TrainingArguments of a script.
        plain: TrainingArguments with the library's defaults.
        gpu: Whether this worker has a GPU.
    """
    given = {name: getattr(args, name) for name in (*REFUSED, *CHECKED)}
    wrong = {name: remedy for name, remedy in REFUSED.items() if _differs(given[name], getattr(plain, name))}
    wrong |= {name: remedy for name, check in CHECKED.items() if (remedy := check(given[name]))}
    if args.use_cpu and gpu:
        wrong["use_cpu"] = "set CUDA_VISIBLE_DEVICES to an empty text instead, which holds for the runtime, too"
    if args.data_seed not in (None, args.seed):
        wrong["data_seed"] = "remove it: seed is that of the samples' order, too"
    return [f"TrainingArguments({name}={getattr(args, name)!r}): {remedy}" for name, remedy in wrong.items()]


def _differs(value: Any, default: Any) -> bool:
    return bool(value != default and (value or default))


def settings(args: Any, *, epochs: int, max_steps: int) -> dict[str, Any]:
    """Return the fields of the runtime's settings that the arguments decide.

    The samples of a step are those of a plain Trainer in one process, at any number of workers: so many batches of so
    many samples as ``gradient_accumulation_steps`` and ``per_device_train_batch_size`` say. No pass has more than the
    latter.
    """
    return {
        "epochs": epochs,
        "max_steps": max_steps,
        "batch_size": args.per_device_train_batch_size * args.gradient_accumulation_steps,
        "seed": args.seed,
        "amp": "bf16" if args.bf16 else "fp16" if args.fp16 else "off",
        "batch_policy": "keep",
    }


def suggestions(args: Any) -> dict[str, Any]:
    """Return fields that the arguments decide unless the command line has a flag for them."""
    return {
        "micro_batch": args.per_device_train_batch_size,
        "data_workers": args.dataloader_num_workers,
        **({"prefetch": args.dataloader_prefetch_factor} if args.dataloader_prefetch_factor else {}),
    }


def contradictions(config: Config, wanted: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each flag of the command line that says something else than the arguments."""
    return [
        f"--{name.replace('_', '-')} is {getattr(config, name)}, and the TrainingArguments make it {value}: leave the "
        "flag out"
        for name, value in wanted.items()
        if getattr(config, name) not in (_default(name), value)
    ]


def chosen(config: Config, suggested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the suggestions for which the command line has no flag."""
    return {name: value for name, value in suggested.items() if getattr(config, name) == _default(name)}


def _default(name: str) -> Any:
    return flags.parser({}, no_flags).get_default(name)
