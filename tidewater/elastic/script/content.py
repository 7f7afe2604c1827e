"""What a training script brings, prepared for a session: its data, its model on the device, and what is compared.

script = Script(build)                                  # build(config) -> Training
try:
    with open_session(config, script.prepare) as opened:
        loop = Loop(opened.session, script.material(opened.session), opened.join)
        ...
finally:
    script.close()
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidewater.elastic.config import UNTIL_FINISHED, Config
from tidewater.elastic.observe.log import Log, Value
from tidewater.elastic.session.assembly import Content
from tidewater.elastic.training import Evaluated, Report, Stop, Training, ignore

if TYPE_CHECKING:
    import torch

    from tidewater.elastic.data.loader import Loader
    from tidewater.elastic.data.reading import Watch
    from tidewater.elastic.group.replica import Replica
    from tidewater.elastic.rehearsal.observer import Observer
    from tidewater.elastic.session.session import Session
    from tidewater.elastic.session.worker import Material, Requests

Build = Callable[[Config], Training]

_MOST_REPORTS = 1000


def begin(config: Config) -> None:
    """Import torch, and seed the random generators for what a script builds."""
    # Otherwise torch logs two warnings each time this worker checks whether a peer has arrived.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch  # by far the slowest import, so after the first log line

    from tidewater.elastic.data.seeds import seed_script

    # A kernel with one input channel has two equivalent descriptions of its strides; DDP warns about that needlessly.
    warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
    torch.set_num_threads(config.threads)
    seed_script(config.seed)


class Script:
    """What a training script brings, prepared. ``own_loop`` says whether the script makes the forward passes."""

    def __init__(self, build: Build, *, own_loop: bool = False) -> None:
        self._build, self._own_loop = build, own_loop
        self.reports: deque[Report] = deque(maxlen=_MOST_REPORTS)
        """Of final steps, for a loop of the script's own."""
        self.requests: Requests
        self._training: Training
        self._loader: Loader | None = None
        self._watch: Watch | None = None
        self._observer: Observer | None = None
        self._replica: Replica | None = None

    def prepare(self, config: Config) -> Content:
        """Import torch, load the data and build the model."""
        begin(config)

        from tidewater.elastic.data.loader import LoaderSettings
        from tidewater.elastic.data.probes import probes
        from tidewater.elastic.data.reading import Watch
        from tidewater.elastic.data.stream import length, open_loader
        from tidewater.elastic.launch.device import own_device, start_device
        from tidewater.elastic.method.checks import check
        from tidewater.elastic.sharded.membership import Secondary
        from tidewater.elastic.sharded.prepare import divided
        from tidewater.elastic.sharded.session import ShardedSession

        device = own_device(os.environ)
        training = self._training = self.hooked(config, device)
        check(training, config, own_loop=self._own_loop)
        replica = self._replica = divided(config, training, device)
        most = config.max_bad_samples if config.bad_samples == "skip" else 0
        settings = LoaderSettings(config.seed, config.data_workers, config.prefetch, most)
        # Before all threads and sockets, because it forks the processes that prepare data.
        self._loader = open_loader(training, settings, device)
        self._watch = Watch(self._loader.readings, Log(config.process), config.data_timeout_seconds)
        self._watch.start()
        start_device(device)
        training.model.to(device)
        samples = length(training.dataset)
        about: dict[str, Value] = {
            "samples": "unknown" if samples is None else samples,
            "steps": _steps(config, samples),
        }
        if not any(module.training for module in training.model.modules()):
            about["model"] = "all of it is in eval mode: call model.train() unless that is meant"
        return Content(
            training=training,
            device=device,
            data=_data_digest(training.dataset),
            alike=alike(config, training),
            samples=probes(training, self._loader, config.seed),
            about=about,
            replica=replica,
            session=functools.partial(ShardedSession, replica=replica) if replica else None,
            coordinator=Secondary if config.index else None,
        )

    def _observed(self, training: Training, config: Config) -> Training:
        """Return the training; in a rehearsal, one that records what it does."""
        if config.rehearsal is None:
            return training
        from tidewater.elastic.rehearsal.observer import Observer

        self._observer = Observer(config.rehearsal, config)
        return self._observer.observed(training)

    def material(self, session: Session) -> Material:
        """Return what a loop needs in addition to the session. Call it after ``prepare``, once."""
        from tidewater.elastic.data.stream import length
        from tidewater.elastic.session.step import SUM_TYPES, Stepper
        from tidewater.elastic.session.worker import Material
        from tidewater.elastic.sharded.stepper import ShardedStepper

        config, worker, training = session.config, session.worker, self._training
        assert self._loader is not None
        assert self._watch is not None
        self._watch.serve(session.log, session.is_overdue)
        kind = functools.partial(ShardedStepper, replica=self._replica) if self._replica else Stepper
        sum_dtype = SUM_TYPES[config.sum_dtype]
        stepper = kind(training, worker.state, worker.group, amp=config.amp, sum_dtype=sum_dtype, seed=config.seed)
        if self._observer is not None:
            self._observer.watch(session)
        samples = length(training.dataset)
        material = Material(training, stepper, self._loader, samples, self.requests, own_loop=self._own_loop)
        return replace(material, begins=self._observer.begin) if self._observer is not None else material

    def hooked(self, config: Config, device: torch.device) -> Training:
        """Build the training. Its hooks draw the same random numbers in all workers, and their requests are noted."""
        from tidewater.elastic.data.seeds import seed_alike
        from tidewater.elastic.session.worker import Requests

        training, requests = self._observed(self._build(config), config), Requests()

        def called(name: str, hook: Callable[[Any], None]) -> Callable[[Any], None]:
            def call(report: Report | Evaluated) -> None:
                try:
                    seed_alike(config.seed, name, report.step, device)
                    hook(report)
                except Stop as stop:
                    requests.stop = requests.stop or str(stop) or "no reason was given"

            return hook if hook is ignore else call

        self.requests = requests
        on_step = called("on_step", training.on_step)

        def kept(report: Report) -> None:
            self.reports.append(report)
            on_step(report)

        on_evaluation = called("on_evaluation", training.on_evaluation)
        return replace(training, on_step=kept if self._own_loop else on_step, on_evaluation=on_evaluation)

    def close(self) -> None:
        """End the processes that prepare data."""
        if self._watch is not None:
            self._watch.stop()
        if self._loader is not None:
            self._loader.close()


def _steps(config: Config, samples: int | None) -> int | None:
    """Return the number of steps of the job, which a progress bar shows; None if it isn't known yet."""
    unknown = samples is None or config.batch_policy == "scale" or config.epochs == UNTIL_FINISHED
    if samples is None or (unknown and not config.max_steps):
        return config.max_steps or None
    return config.reported_steps(samples)


def alike(config: Config, training: Training) -> Mapping[str, Value]:
    """Return what must be equal in all workers that train together, in addition to model and code."""
    names = (
        *("epochs", "max_steps", "batch_size", "batch_policy", "micro_batch", "seed", "amp", "sum_dtype"),
        *("sync_every", "outer_lr", "outer_momentum"),
        "shard",
        *("fresh_optimizer", "evaluate_every", "compare_every", "on_drift", "bad_samples", "max_bad_samples"),
    )
    common = {name: getattr(config, name) for name in names}
    said = {f"--{name.replace('_', '-')}": str(value) for name, value in [*common.items(), *vars(config.user).items()]}
    return {
        "the dataset": _data_digest(training.dataset),
        "the validation data": None if training.validation is None else _data_digest(training.validation),
        "the optimizer": _classes(training.optimizer),
        "the scheduler": _classes(training.scheduler),
        "keep_best": training.keep_best,
        **said,
        "the script": script_digest(),
    }


def _classes(given: Any) -> str:
    from tidewater.elastic.method.optimizers import several

    return ", ".join(type(each).__name__ for each in several(given)) or "none"


def script_digest() -> str:
    """Return a digest of the source of the started program, which may be in a zip file."""
    from tidewater.elastic.membership.modules import program

    started = sys.modules["__main__"]
    try:
        source = program(inspect.getfile(started), inspect.getsource(started))
    except (OSError, TypeError):  # not started from a file
        return ""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _data_digest(dataset: object) -> str:
    """Return what identifies a dataset: its ``digest`` if it has one, otherwise its length (and a stream's class)."""
    from tidewater.elastic.data.stream import is_stream, length

    known = str(length(dataset))
    return str(getattr(dataset, "digest", f"{type(dataset).__name__} {known}" if is_stream(dataset) else known))
