"""Which arguments and members of Accelerate's ``Accelerator`` are supported, and what they do here. Pure.

    check({"mixed_precision": "fp16"})      # raises ConfigError with a sentence
    MEMBERS["gather"].note

Read at accelerate 1.15.0; a test compares the tables with the installed class.
https://huggingface.co/docs/accelerate/package_reference/accelerator
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidewater import ConfigError


class Kind(Enum):
    """What becomes of a member or an argument."""

    SAME = "same"
    """It does what Accelerate documents, as in one process."""
    ELASTIC = "elastic"
    """The adapter does it, with the meaning of ``note``."""
    IDLE = "idle"
    """Accepted, without an effect."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Support:
    """How a member or an argument is supported."""

    kind: Kind
    note: str = ""
    """For REFUSED, the remedy."""


def _same(*names: str, note: str = "") -> dict[str, Support]:
    return dict.fromkeys(names, Support(Kind.SAME, note))


def _elastic(note: str, *names: str) -> dict[str, Support]:
    return dict.fromkeys(names, Support(Kind.ELASTIC, note))


def _idle(note: str, *names: str) -> dict[str, Support]:
    return dict.fromkeys(names, Support(Kind.IDLE, note))


def _refused(remedy: str, *names: str) -> dict[str, Support]:
    return dict.fromkeys(names, Support(Kind.REFUSED, remedy))


_SHARDS = "a worker holds the whole model; leave it out"
_LOCAL = "each worker has its own values only, and an evaluation is over the whole loader in every worker"

MEMBERS: Mapping[str, Support] = {
    **_elastic(
        "the model unwrapped, the loader that trains as this worker's part of the job, the others as they are",
        *("prepare", "prepare_model", "prepare_data_loader", "prepare_optimizer", "prepare_scheduler"),
    ),
    **_elastic("weights the loss by this worker's share; no retain_graph or other keywords", "backward"),
    **_elastic("the last batch of a step that was not discarded", "sync_gradients"),
    **_elastic("a step was discarded, or more batches of it follow", "optimizer_step_was_skipped"),
    **_elastic("the runtime decides which batch is the last one of a step", "accumulate"),
    **_elastic("of the whole step, when sync_gradients; otherwise nothing is clipped", "clip_grad_norm_"),
    **_elastic("of the whole step, when sync_gradients; otherwise nothing is clipped", "clip_grad_value_"),
    **_elastic("the worker of rank 0; before training begins, every worker", "is_main_process"),
    **_elastic("the functions run in the main process, which is decided when they are called", "on_main_process"),
    **_elastic("as on_main_process", "on_last_process", "on_process", "is_last_process"),
    **_elastic("prints in the main process", "print"),
    **_elastic("logs in the main process; the trackers are started with its first log", "log", "init_trackers"),
    **_elastic("a tracker in the main process, otherwise one that does nothing", "get_tracker"),
    **_elastic("finishes the job, and the trackers", "end_training"),
    **_elastic("written by the main process", "save", "save_model", "save_state", "save_iteration"),
    **_elastic("before training; a job that has made steps continues from its own state", "load_state"),
    **_elastic("before training; newcomers get the object's state", "register_for_checkpointing"),
    **_elastic("not for the loader that trains: a job continues where it was", "skip_first_batches"),
    **_same(*("gather", "gather_for_metrics", "reduce", "pad_across_processes"), note=_LOCAL),
    **_same("split_between_processes", note="each worker gets all of it"),
    **_same("num_processes", note="1, since a batch is divided among the workers"),
    **_same("process_index", note="0, as num_processes is 1"),
    **_same("wait_for_everyone", note="returns at once: the runtime has its turn when a batch is fetched"),
    **_same("main_process_first", "local_main_process_first", note="every worker runs it at once"),
    **_same("local_process_index", "is_local_main_process", "on_local_main_process", "on_local_process"),
    **_same("no_sync", "join_uneven_inputs", "unscale_gradients", note="nothing is to be done in one process"),
    **_same("autocast", "profile", "device", "mixed_precision", "unwrap_model", "get_state_dict"),
    **_same("free_memory", "clear", note="when training has ended"),
    **_same("gradient_accumulation_steps", "project_dir", "logging_dir", "save_iteration", "verify_device_map"),
    **_same("register_save_state_pre_hook", "register_load_state_pre_hook"),
    **_same("distributed_type", "use_distributed", "multi_device", "is_fsdp2", "deepspeed_plugin", "fp8_backend"),
    **_same("is_composable_parallelism_enabled", "parallelism_config", "torch_device_mesh", "should_save_model"),
    **_same("tensor_parallel_rank", "pipeline_parallel_rank", "context_parallel_rank", "data_parallel_rank"),
    **_same("data_parallel_shard_rank"),
    **_same("split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking"),
    **_same("use_stateful_dataloader"),
    **_refused("only this worker would stop; decide by what all workers know", "set_trigger", "check_trigger"),
    **_refused("the runtime sums with the last batch of a step; use accumulate", "trigger_sync_in_backward"),
    **_refused("LOMO steps in the backward pass, before the sums; use another optimizer", "lomo_backward"),
    **_refused(_SHARDS, "maybe_context_parallel", "deepspeed_ulysses_dl_adapter"),
}
"""Every public method and property."""

ARGUMENTS: Mapping[str, Support] = {
    **_same("log_with", "project_dir", "project_config"),
    **_elastic("a batch of the loader is always divided among the workers", "split_batches"),
    **_elastic("`no` or `bf16`", "mixed_precision"),
    **_elastic("a step has so many batches of the loader together", "gradient_accumulation_steps"),
    **_elastic("its num_steps", "gradient_accumulation_plugin"),
    **_elastic(
        "AutocastKwargs and ProfileKwargs have an effect; fp8 and GradScalerKwargs are refused", "kwargs_handlers"
    ),
    **_elastic("without dispatch_batches, use_stateful_dataloader and data_seed", "dataloader_config"),
    **_elastic("True only where this worker has no GPU", "cpu"),
    **_idle("the runtime seeds all generators for each step", "rng_types"),
    **_refused("the runtime puts model and batches on the device", "device_placement"),
    **_refused("a scheduler is stepped after a step of the job", "step_scheduler_with_optimizer"),
    **_refused("call torch.compile(model) before prepare", "dynamo_backend", "dynamo_plugin"),
    **_refused(_SHARDS, "deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin", "torch_tp_plugin"),
    **_refused(_SHARDS, "megatron_lm_plugin", "parallelism_config"),
}
"""Every argument of the constructor."""

_SAID = {Kind.SAME: "as in one process", Kind.ELASTIC: "", Kind.IDLE: "no effect", Kind.REFUSED: "refused"}
_HANDLERS = ("AutocastKwargs", "ProfileKwargs", "DistributedDataParallelKwargs", "InitProcessGroupKwargs")


def tables() -> str:
    """Return both tables as the README has them: names with the same support are in one row."""
    parts = []
    for title, table in (("argument of `Accelerator(…)`", ARGUMENTS), ("method or property", MEMBERS)):
        rows: dict[Support, list[str]] = {}
        for name, support in sorted(table.items()):
            rows.setdefault(support, []).append(f"`{name}`")
        lines = [f"| {', '.join(names)} | {_said(each)} |" for each, names in rows.items()]
        parts.append("\n".join([f"| {title} | |", "|---|---|", *lines, ""]))
    return "\n".join(parts)


def _said(support: Support) -> str:
    return ": ".join(filter(None, (_SAID[support.kind], support.note)))


def check(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raise ConfigError, one sentence for each, if an argument differs from its default and isn't supported."""
    differing = {name: value for name, value in given.items() if name not in defaults or value is not defaults[name]}
    problems = [problem for name, value in differing.items() if (problem := _problem(name, value))]
    if problems:
        raise ConfigError("; ".join(problems))


def refuse_member(name: str) -> None:
    """Raise ConfigError for a member that is refused."""
    raise ConfigError(f"accelerator.{name}() is not supported in an elastic job: {MEMBERS[name].note}")


def _problem(name: str, value: Any) -> str:
    """Return what is wrong with an argument; "" if nothing is."""
    if name not in ARGUMENTS:
        return f"Accelerator({name}=…) is not known here; leave it out"
    support = ARGUMENTS[name]
    if support.kind is Kind.REFUSED:
        return f"Accelerator({name}=…) is not supported in an elastic job: {support.note}"
    special = _CHECKS.get(name)
    wrong = special(value) if special else ""
    return f"Accelerator({name}={value!r}) is not supported in an elastic job: {wrong}" if wrong else ""


def _precision(value: Any) -> str:
    return (
        "" if str(value) in ("no", "bf16", "None") else "a scaler or another format must step the optimizers; use bf16"
    )


def _accumulation(value: Any) -> str:
    kwargs = value.to_kwargs() if value is not None else {}
    odd = [
        name
        for name, normal in (("sync_with_dataloader", True), ("sync_each_batch", False))
        if kwargs.get(name, normal) != normal
    ]
    return f"leave out {' and '.join(odd)}" if odd else ""


def _handlers(value: Any) -> str:
    odd = [type(each).__name__ for each in value or () if type(each).__name__ not in _HANDLERS]
    return f"leave out {' and '.join(odd)}" if odd else ""


def _loading(value: Any) -> str:
    names = ("dispatch_batches", "use_stateful_dataloader", "data_seed")
    odd = [name for name in names if getattr(value, name, None)]
    return f"leave out {' and '.join(odd)}" if odd else ""


_CHECKS: Mapping[str, Callable[[Any], str]] = {
    "mixed_precision": _precision,
    "gradient_accumulation_plugin": _accumulation,
    "kwargs_handlers": _handlers,
    "dataloader_config": _loading,
}
