"""What the processes of a job need to know of its flags, checked once, and passed on as JSON.

    args = JobArgs(job_name="mnist", model_zoo="model_zoo", model_def="mnist.custom_model", training_data="/data/train")
    args.checked()                                      # InputError that names the flag, before anything is made
    JobArgs.from_json(args.to_json()) == args           # `--job_args` of master, parameter servers and workers

A field has the name of the flag of `elasticdl train | evaluate | predict` that it comes from.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO

from elasticdl.errors import InputError

VERSION = 1
"""Of the JSON."""

LOG_FORMAT = "[%(asctime)s] [%(levelname)s] [%(filename)s:%(lineno)d:%(funcName)s] %(message)s"
"""As ElasticDL's: elasticdl/python/common/log_utils.py."""


def log_to(stream: TextIO, level: str = "INFO") -> None:
    """Send the log of this process to a stream."""
    logging.basicConfig(stream=stream, level=level.upper(), format=LOG_FORMAT, force=True)


class JobMode(StrEnum):
    """What a job is for: the command that submits it."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


class Strategy(StrEnum):
    """Who holds the model; values of `--distribution_strategy`."""

    PARAMETER_SERVER = "ParameterServerStrategy"
    ALLREDUCE = "AllreduceStrategy"
    LOCAL = "Local"


@dataclass(frozen=True, kw_only=True)
class JobArgs:
    """The flags of a job. An empty text means that the flag was not given."""

    job_name: str
    run_id: str = "0"
    """Differs for each submission, so that a new job under an old name starts from the beginning."""
    mode: JobMode = JobMode.TRAIN
    distribution_strategy: Strategy = Strategy.PARAMETER_SERVER

    model_zoo: str = ""
    model_def: str = ""
    model_params: str = ""
    loss: str = "loss"
    optimizer: str = "optimizer"
    feed: str = "feed"
    eval_metrics_fn: str = "eval_metrics_fn"
    callbacks: str = "callbacks"
    custom_data_reader: str = "custom_data_reader"
    prediction_outputs_processor: str = "PredictionOutputsProcessor"

    data_reader_params: str = ""
    training_data: str = ""
    validation_data: str = ""
    prediction_data: str = ""
    minibatch_size: int = 64
    num_minibatches_per_task: int = 64
    num_epochs: int = 1
    max_step: int | None = None
    """Updates of the model after which training ends; None: when all epochs are done."""
    seed: int = 0

    evaluation_steps: int = 0
    """Versions of the model from one evaluation to the next; 0: only at the end."""
    use_async: bool = False
    grads_to_wait: int = 1
    get_model_steps: int = 1
    lr_staleness_modulation: bool = False
    sync_version_tolerance: int = 0

    task_fault_tolerance: bool = True
    """Whether the job goes on without a task that has failed `max_task_retries` + 1 times, or fails."""
    max_task_retries: int = 3
    relaunch_timeout_worker: float = 300.0
    """Seconds for which a process waits for one that is replaced."""

    checkpoint_steps: int = 0
    """Versions of the model from one checkpoint to the next; 0: none."""
    checkpoint_dir: str = ""
    checkpoint_dir_for_init: str = ""
    keep_checkpoint_max: int = 3
    """How many checkpoints are kept; 0: all."""
    output: str = ""
    """Where the final model goes."""

    log_level: str = "INFO"
    log_loss_steps: int = 100
    num_ps_pods: int = 1
    num_workers: int = 1
    job_command: str = ""
    """The command line of a training script of the user's own, which takes shards from the master."""

    @property
    def run(self) -> str:
        """Return job and run in one: what a checkpoint's manifest says of who wrote it."""
        return f"{self.job_name}/{self.run_id}"

    def data(self) -> str:
        """Return the address of the data that the job's tasks are cut from."""
        return {
            JobMode.TRAIN: self.training_data,
            JobMode.EVALUATE: self.validation_data,
            JobMode.PREDICT: self.prediction_data,
        }[self.mode]

    def functions(self) -> Mapping[str, bool]:
        """Return which of the model's functions the job uses, by the flags that name them, and whether it needs each.

        A function that it doesn't need must be there too if its name was given.
        """
        if self.job_command:
            return {}
        more = {"eval_metrics_fn": bool(self.validation_data)} if self.mode is JobMode.TRAIN else {}
        return {**_FUNCTIONS[self.mode], **more}

    def records_per_task(self) -> int:
        """Return the number of records of a whole task."""
        return self.minibatch_size * self.num_minibatches_per_task

    def checked(self) -> JobArgs:
        """Return these arguments; raise InputError that names the first flag that is wrong, and the remedy."""
        for message, remedy in problems(self):
            raise InputError(message, remedy)
        return self

    def to_json(self) -> str:
        """Return the arguments as JSON."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> JobArgs:
        """Return the arguments that `to_json` wrote.

        Raises:
            InputError: this is not JSON of this version, or has a field that is unknown or of another type.
        """
        again = "Submit the job again with the elasticdl command of the version that is in its image."
        try:
            fields: dict[str, Any] = json.loads(text)
            version = fields.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(
                f"--job_args: {text[:80]!r} is not the JSON of a job's arguments ({error!r})", again
            ) from None
        if version != VERSION:
            raise InputError(f"--job_args: version {version!r}; this program knows version {VERSION}", again)
        known = {field.name: field for field in dataclasses.fields(JobArgs)}
        unknown = sorted(set(fields) - set(known))
        if unknown or "job_name" not in fields:
            what = f"unknown fields {', '.join(unknown)}" if unknown else "no job_name"
            raise InputError(f"--job_args: {what}", again)
        return JobArgs(**{name: _value(name, value) for name, value in fields.items()})


_FUNCTIONS: Mapping[JobMode, Mapping[str, bool]] = {
    JobMode.TRAIN: {"feed": True, "loss": True, "optimizer": True, "callbacks": False, "custom_data_reader": False},
    JobMode.EVALUATE: {"feed": True, "eval_metrics_fn": True, "custom_data_reader": False},
    JobMode.PREDICT: {"feed": True, "custom_data_reader": False, "prediction_outputs_processor": False},
}

_COUNTS = {  # flag: the least that it may be
    "minibatch_size": 1,
    "num_minibatches_per_task": 1,
    "num_epochs": 1,
    "evaluation_steps": 0,
    "grads_to_wait": 1,
    "get_model_steps": 1,
    "sync_version_tolerance": 0,
    "max_task_retries": 0,
    "relaunch_timeout_worker": 0,
    "checkpoint_steps": 0,
    "keep_checkpoint_max": 0,
    "log_loss_steps": 0,
    "num_ps_pods": 0,
    "num_workers": 1,
}
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _value(name: str, value: Any) -> Any:
    """Return a field's value with its own type."""
    try:
        if name == "mode":
            return JobMode(value)
        if name == "distribution_strategy":
            return Strategy(value)
    except ValueError:
        choices = ", ".join(JobMode if name == "mode" else Strategy)
        raise InputError(f"--{name} is {value!r}", f"Use one of {choices}.") from None
    default = getattr(JobArgs, name, "")
    kinds = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,), "NoneType": (int, type(None))}
    accepted = kinds[type(default).__name__]
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
        raise InputError(f"--{name} is {value!r}", f"Its type is {' or '.join(kind.__name__ for kind in accepted)}.")
    return value


def problems(args: JobArgs) -> Iterator[tuple[str, str]]:
    """Yield everything that is wrong with the arguments, each with what to do about it."""
    if not args.job_name:
        yield "--job_name is empty", "Give the job a name."
    for flag, least in _COUNTS.items():
        if getattr(args, flag) < least:
            yield f"--{flag} is {getattr(args, flag)}", f"Give {least} or more."
    if args.max_step is not None and args.max_step < 1:
        yield f"--max_step is {args.max_step}", "Give 1 or more; leave it out to train for all epochs."
    if args.log_level.upper() not in _LEVELS:
        yield f"--log_level is {args.log_level!r}", f"Use one of {', '.join(_LEVELS)}."
    yield from _problems_of_data(args)
    yield from _problems_of_strategy(args)


def problems_of_outputs(args: JobArgs, *, processor: bool) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with where predictions go, for a model with a processor of its own or without one."""
    if args.mode is not JobMode.PREDICT:
        return
    name = args.prediction_outputs_processor
    if processor and args.output:
        yield f"--output is {args.output}, and the model's {name} takes the predictions", "Leave out --output."
    if not processor and not args.output:
        yield f"--output is missing, and the model has no {name}", "Give --output, the folder for the predictions."


def _problems_of_data(args: JobArgs) -> Iterator[tuple[str, str]]:
    flags = {JobMode.TRAIN: "training_data", JobMode.EVALUATE: "validation_data", JobMode.PREDICT: "prediction_data"}
    if not args.data() and not args.job_command:
        yield f"--{flags[args.mode]} is missing", f"`elasticdl {args.mode}` needs the address of its data."
    if not args.job_command and not (args.model_zoo and args.model_def):
        missing = "model_def" if args.model_zoo else "model_zoo"
        yield f"--{missing} is missing", "Name the folder of the models, and the model's function in it."
    if args.job_command and args.mode is not JobMode.TRAIN:
        yield f"--job_command with `elasticdl {args.mode}`", "A script of your own is run by `elasticdl train`."
    if args.job_command and args.evaluation_steps:
        yield "--evaluation_steps with --job_command", "A script of your own evaluates by itself: leave it out."
    if args.evaluation_steps and args.mode is JobMode.TRAIN and not args.validation_data:
        yield f"--evaluation_steps is {args.evaluation_steps} without --validation_data", "Give --validation_data."


def _problems_of_strategy(args: JobArgs) -> Iterator[tuple[str, str]]:
    servers = args.distribution_strategy is Strategy.PARAMETER_SERVER and not args.job_command
    if servers and args.num_ps_pods < 1:
        yield f"--num_ps_pods is {args.num_ps_pods} with {Strategy.PARAMETER_SERVER}", "Give 1 or more."
    if args.use_async and args.grads_to_wait > 1:
        yield (
            f"--use_async with --grads_to_wait={args.grads_to_wait}",
            "Asynchronous updates wait for nobody: leave out one of the two.",
        )
    if args.checkpoint_steps and not args.checkpoint_dir:
        yield f"--checkpoint_steps is {args.checkpoint_steps} without --checkpoint_dir", "Give --checkpoint_dir."
    shares = args.checkpoint_dir.rstrip("/") == args.checkpoint_dir_for_init.rstrip("/")
    if (
        args.checkpoint_steps
        and args.checkpoint_dir
        and shares
        and args.distribution_strategy is not Strategy.ALLREDUCE
    ):
        yield (
            f"--checkpoint_dir and --checkpoint_dir_for_init are both {args.checkpoint_dir}",
            "Name another folder in --checkpoint_dir: one folder has the checkpoints of one run.",
        )
    if args.mode is not JobMode.TRAIN and not args.checkpoint_dir_for_init:
        yield "--checkpoint_dir_for_init is missing", f"`elasticdl {args.mode}` uses the model of a checkpoint."
