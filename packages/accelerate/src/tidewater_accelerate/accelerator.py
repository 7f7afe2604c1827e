"""``Accelerator`` for the script of a job that may gain and lose workers.

    args = parse_args(parser)                       # instead of parser.parse_args(), if the runtime gets flags
    accelerator = Accelerator()
    model, optimizer, train, evaluate, scheduler = accelerator.prepare(model, optimizer, train, evaluate, scheduler)

The script sees what it would see in one process: a batch of its loader is divided among the workers that are there.
``support`` says what becomes of each member.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import accelerate
import torch
from accelerate.tracking import GeneralTracker

from tidewater import Config, ConfigError, init
from tidewater.contract import rehearsal
from tidewater.elastic import flags
from tidewater.elastic.config import no_flags
from tidewater.elastic.errors import TrainerError
from tidewater.elastic.launch.device import own_device
from tidewater.elastic.launch.program import fix_hash_seed
from tidewater.elastic.script.entry import exit_code
from tidewater_accelerate import arguments, support
from tidewater_accelerate.job import Job
from tidewater_accelerate.loaders import EvalLoader, TrainLoader, trains
from tidewater_accelerate.wrapped import Optimizer, Scheduler

_scripts: Collection[str] = ()
"""The flags that the script's own parser knows."""


def parse_args(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the script's arguments, without the runtime's flags. A flag that both know is for both."""
    global _scripts
    _scripts = frozenset(parser._option_string_actions)
    return parser.parse_args(arguments.split(sys.argv[1:], _runtime_flags(), _scripts)[1])


def _runtime_flags() -> dict[str, bool]:
    known = flags.parser(os.environ, no_flags)._option_string_actions
    return {name: action.nargs is None for name, action in known.items() if name not in ("-h", "--help")}


def _begun() -> Config:
    """Return the settings of this worker. Raise SystemExit as ``tidewater.init`` does."""
    fix_hash_seed()
    ours, _ = arguments.split(sys.argv[1:], _runtime_flags(), _scripts)
    rehearsed = os.environ.get(rehearsal.FOLDER)  # `tidewater rehearse` gives all flags that make runs comparable
    if not rehearsed and (problems := arguments.refused(ours, _scripts)):
        raise ConfigError("; ".join(problems))
    return init([each for each in ours if each])


class Accelerator(accelerate.Accelerator):
    """Accelerate's, for a worker of an elastic job.

    Raise SystemExit with a sentence if an argument is not supported, or a setting of the worker is wrong.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with _saying():
            signature = inspect.signature(accelerate.Accelerator)
            given = signature.bind(*args, **kwargs).arguments
            support.check(given, {name: each.default for name, each in signature.parameters.items()})
            config = _begun()
            cpu = own_device(os.environ).type == "cpu"
            if given.get("cpu") and not cpu:
                raise ConfigError(
                    "Accelerator(cpu=True) is given and this worker has a GPU: set CUDA_VISIBLE_DEVICES to an empty "
                    "text"
                )
            super().__init__(**{**given, "cpu": cpu})
            if self.use_distributed:
                raise ConfigError(
                    f"Accelerate has found the settings of a launcher ({self.distributed_type.value}): start the "
                    "script with python, not with accelerate launch or torchrun"
                )
            support.check({"mixed_precision": self.mixed_precision}, {})
        self.job = Job(config, accumulates=self.gradient_accumulation_steps, mixed_precision=self.mixed_precision)
        self._tracking: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    @property
    def steps(self) -> int:
        """The number of steps that the job has made, with those before this worker came."""
        return self.job.steps

    @property
    def is_main_process(self) -> bool:
        """Whether this worker writes for the job."""
        return self.job.writes

    @property
    def is_last_process(self) -> bool:
        """The same: a script sees one process."""
        return self.job.writes

    @property
    def sync_gradients(self) -> bool:
        """Whether the batch is the last one of a step, which has not been discarded."""
        return self.job.syncs

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        raise ConfigError("accelerator.sync_gradients is decided by the runtime; use accumulate")

    @contextmanager
    def accumulate(self, *models: torch.nn.Module) -> Iterator[None]:
        """Do nothing: the runtime decides which batch is the last one of a step."""
        yield

    def prepare_model(self, model: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        """Return the model on the device of this worker."""
        self._refuse_late("prepare")
        prepared: torch.nn.Module = super().prepare_model(model, *args, **kwargs)
        if prepared not in self.job.content.models:
            self.job.content.models.append(prepared)
        return prepared

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        """Return what steps the optimizer when the gradients of the whole step are there."""
        if isinstance(optimizer, Optimizer):
            return optimizer
        self._refuse_late("prepare")
        prepared = Optimizer(optimizer, self.job)
        prepared._is_accelerate_prepared = True
        self._optimizers.append(prepared)
        self.job.content.optimizers.append(optimizer)
        return prepared

    def prepare_scheduler(self, scheduler: Any) -> Any:
        """Return what steps the scheduler after a step of the job."""
        if isinstance(scheduler, Scheduler):
            return scheduler
        self._refuse_late("prepare")
        prepared = Scheduler(scheduler, self._optimizers, self.job)
        prepared._is_accelerate_prepared = True
        self._schedulers.append(prepared)
        self.job.content.schedulers.append(scheduler)
        return prepared

    def prepare_data_loader(self, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
        """Return this worker's part of the loader that trains; another one as it is."""
        if isinstance(data_loader, TrainLoader | EvalLoader):
            return data_loader
        if not trains(data_loader):
            return EvalLoader(super().prepare_data_loader(data_loader, *args, **kwargs), self.job)
        with _saying():
            self._refuse_late("prepare")
            if self.job.content.loader is not None:
                raise ConfigError(
                    "two DataLoaders with shuffle=True were prepared, and a job trains over one: give the other one "
                    "shuffle=False, or don't prepare it"
                )
            prepared = TrainLoader(data_loader, self.job)
        self.job.content.loader = data_loader
        return prepared

    def backward(self, loss: Any, **kwargs: Any) -> None:
        """Add the gradients of the batch; with the last one of a step, sum them over the workers."""
        if kwargs:
            raise ConfigError(f"accelerator.backward() has got {', '.join(kwargs)}: give it the loss only")
        self.job.backward(loss)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: int = 2) -> Any:
        """Clip the gradients of the whole step. Otherwise do nothing, and return 0."""
        return super().clip_grad_norm_(parameters, max_norm, norm_type) if self.job.summed else torch.zeros(())

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Clip the gradients of the whole step. Otherwise do nothing."""
        if self.job.summed:
            super().clip_grad_value_(parameters, clip_value)

    def on_main_process(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return a function that calls this one if it is called in the main process."""

        @functools.wraps(function or self.on_main_process)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if function and self.is_main_process else None

        return call if function else self.on_main_process

    def on_last_process(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Do the same as ``on_main_process``."""
        return self.on_main_process(function)

    def on_process(
        self, function: Callable[..., Any] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Do the same for process 0; there is no other one."""
        if function is None:
            return functools.partial(self.on_process, process_index=process_index)
        return self.on_main_process(function) if not process_index else lambda *_, **__: None

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print in the main process."""
        if self.is_main_process:
            print(*args, **kwargs)

    def init_trackers(self, *args: Any, **kwargs: Any) -> None:
        """Start the trackers in the main process, with its first log: another worker may be that one later."""
        self._tracking = args, kwargs

    def log(self, values: dict[str, Any], step: int | None = None, log_kwargs: dict[str, Any] | None = None) -> None:
        """Log in the main process."""
        if self.is_main_process:
            self._track()
            super().log(values, step=step, log_kwargs=log_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """Return the tracker in the main process, and otherwise one that does nothing."""
        if not self.is_main_process:
            return GeneralTracker(_blank=True)
        self._track()
        return super().get_tracker(name, unwrap)

    def save(self, obj: Any, f: Any, safe_serialization: bool = False) -> None:
        """Save in the main process."""
        if self.is_main_process:
            super().save(obj, f, safe_serialization)

    def save_model(self, model: torch.nn.Module, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save the model in the main process."""
        if self.is_main_process:
            super().save_model(model, save_directory, *args, **kwargs)

    def save_state(self, output_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Save what Accelerate saves, in the main process. The job itself continues from the runtime's checkpoints."""
        if not self.is_main_process:
            return output_dir
        if self.project_configuration.automatic_checkpoint_naming:
            self.project_configuration.iteration = _next_iteration(Path(self.project_dir) / "checkpoints")
        return super().save_state(output_dir, *args, **kwargs)

    def load_state(self, input_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Load what a new job begins with. A job that has made steps continues from its own state."""
        self._refuse_late("load_state")
        return super().load_state(input_dir, *args, **kwargs)

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Make the objects part of the job's state, which newcomers get."""
        self._refuse_late("register_for_checkpointing")
        super().register_for_checkpointing(*objects)
        self.job.content.objects += objects

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """Skip batches of a loader that does not train."""
        if isinstance(dataloader, TrainLoader):
            if not num_batches:
                return dataloader
            with _saying():
                raise ConfigError(
                    "accelerator.skip_first_batches() has got the DataLoader that trains: leave it out, since a job "
                    "continues at the sample where it was"
                )
        return super().skip_first_batches(getattr(dataloader, "_loader", dataloader), num_batches)

    def end_training(self) -> None:
        """Finish the job. Every worker calls it, at the end of the script."""
        self.job.finish()
        super().end_training()

    def _track(self) -> None:
        if self._tracking is not None:
            (args, kwargs), self._tracking = self._tracking, None
            super().init_trackers(*args, **kwargs)

    def _refuse_late(self, name: str) -> None:
        if self.job.is_open:
            with _saying():
                raise ConfigError(f"accelerator.{name}() was called after the first batch: call it before the loop")


def _refuses(name: str) -> Callable[..., None]:
    def call(self: Accelerator, *_: Any, **__: Any) -> None:
        with _saying():
            support.refuse_member(name)

    return call


for _name, _support in support.MEMBERS.items():
    if _support.kind is support.Kind.REFUSED:
        setattr(Accelerator, _name, _refuses(_name))


@contextmanager
def _saying() -> Iterator[None]:
    """End the process with the sentence of an error, and exit code 2."""
    try:
        yield
    except TrainerError as error:
        raise SystemExit(exit_code(error)) from error


def _next_iteration(folder: Path) -> int:
    """Return the number of the next checkpoint in a folder of ``checkpoint_N``."""
    found = [re.fullmatch(r"checkpoint_(\d+)", each.name) for each in folder.glob("checkpoint_*")]
    return 1 + max((int(each[1]) for each in found if each), default=-1)
