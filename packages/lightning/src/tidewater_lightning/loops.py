"""Lightning's loops, which get their steps from a session of Tidewater.

``ElasticFitLoop.run`` replaces the loop over the epochs. All else is Lightning's: its epoch loop makes a step of each
item of ``Steps``, and calls the hooks, the schedulers, the validation and the loggers.

All that happens between the step of an optimizer and the next ``Link.peek`` or ``Link.take`` belongs to the step: each
worker does it, and a state that is handed over or saved contains all of it or nothing.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch.loops import _FitLoop, _TrainingEpochLoop
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.connectors.data_connector import _DataLoaderSource, _request_dataloader
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection

from tidewater import Config, session
from tidewater.elastic.script.entry import end_without_model
from tidewater_lightning.link import Link, Moved, Over
from tidewater_lightning.place import Position, put
from tidewater_lightning.refusals import refuse_clocks, refuse_loader, refuse_model, refuse_own_metrics
from tidewater_lightning.writing import Callbacks, Writing

ENDLESS = 10**9
"""Epochs of a training that only its steps or the time end."""


class Steps:
    """In place of the person's loader: each item is the first micro-batch of a step. Its length is that of an epoch."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.total = len(loader.dataset)
        """Samples of an epoch."""
        self.link: Link | None = None
        self._size = int(loader.batch_size)

    def __len__(self) -> int:
        return -(-self.total // self._size)

    def samples(self, offset: int) -> int:
        """Return the number of samples in the step that begins after ``offset`` samples of the epoch."""
        return min(self._size, self.total - offset)

    def before(self, offset: int) -> int:
        """Return how many of the epoch's steps are made: of another size perhaps, but so many remain."""
        return len(self) - -(-(self.total - offset) // self._size)

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        assert self.link is not None
        return self.link.take()


class ElasticEpochLoop(_TrainingEpochLoop):
    """The loop over the steps of an epoch, which may begin inside the epoch."""

    begins_inside = False
    """Whether the counters are those of an epoch that goes on."""

    def reset(self) -> None:
        """Begin an epoch, unless it goes on."""
        if not self.begins_inside:
            super().reset()
        self.begins_inside = False

    def update_lr_schedulers(self, interval: str, update_plateau_schedulers: bool) -> None:
        """Step the schedulers. Raise ConfigError if one depends on a metric that differs between the workers."""
        if update_plateau_schedulers:
            configs = self.trainer.strategy.lr_scheduler_configs
            monitors = [config.monitor for config in configs if config.reduce_on_plateau]
            if monitors:
                refuse_own_metrics("ReduceLROnPlateau", self.trainer, monitors)
        super().update_lr_schedulers(interval, update_plateau_schedulers)

    def _should_check_val_fx(self, data_fetcher: Any) -> bool:
        """Return whether to validate. ``should_stop`` is no reason: perhaps only this worker has it."""
        trainer = self.trainer
        stops, trainer.should_stop = trainer.should_stop, False
        try:
            return bool(super()._should_check_val_fx(data_fetcher))
        finally:
            trainer.should_stop = stops

    @property
    def done(self) -> bool:
        """Whether the epoch has ended. ``should_stop`` doesn't end it alone: all workers end with the same step."""
        return bool(self._is_training_done and self._is_validation_done)


class ElasticFitLoop(_FitLoop):
    """The loop over the epochs.

    Args:
        old: The trainer's loop, which this one replaces.
        config: Of the worker.
    """

    def __init__(self, old: Any, config: Config) -> None:
        super().__init__(old.trainer, min_epochs=old.min_epochs, max_epochs=old.max_epochs)
        self.epoch_loop = ElasticEpochLoop(old.trainer, min_steps=old.min_steps, max_steps=old.max_steps)
        self._config = config
        self._steps: Steps
        self._has_begun = False
        """Whether the hooks for the beginning of the current epoch have run."""

    def setup_data(self) -> None:
        """Replace the person's loader. Raise ConfigError if it can't be used."""
        if self._combined_loader is None:
            loader = _request_dataloader(self._data_source)  # type: ignore[has-type]
            refuse_loader(loader)
            self._steps = Steps(loader)
            self._data_source = _DataLoaderSource(self._steps, "train_dataloader")
        super().setup_data()

    def run(self) -> None:
        """Train until the job is finished. Raise SystemExit if this worker leaves, or hasn't got the final model."""
        self.setup_data()
        if 0 in (self.max_epochs, self.max_steps):  # not `skip`: that the job has ended is for all workers to say
            return
        trainer, strategy = self.trainer, self.trainer.strategy
        self.reset()
        refuse_model(trainer.lightning_module, strategy.optimizers)
        refuse_clocks(trainer.callbacks)
        writing = Writing(trainer)
        position = Position(trainer, Callbacks(trainer), self._put)
        with session(
            self._settings(),
            model=trainer.lightning_module,
            optimizer=strategy.optimizers,
            dataset=self._steps.loader.dataset,
            collate=self._steps.loader.collate_fn,
            stateful={"lightning": position},
            on_step=writing.final,
        ) as run:
            link = self._steps.link = strategy.link = Link(
                run,
                lambda: position.loads,
                before=lambda: self._ask(run),
                away=lambda: self._away(writing),
                made=lambda: self._made(position),
            )
            strategy.rank = lambda: run.rank
            try:
                self._train(link, writing)
            finally:
                strategy.link = None
        if not link.has_final_state:
            strategy.rank = lambda: -1  # what it has must not replace what others have written
            end_without_model()
        writing.end()
        self.done  # noqa: B018 - says why, and completes the counters
        self.on_run_end()

    def _settings(self) -> Config:
        """Return the worker's settings with what the trainer and the loader say."""
        loader, most = self._steps.loader, [each for each in (self.max_steps, self._config.max_steps) if each > 0]
        return dataclasses.replace(
            self._config,
            epochs=self.max_epochs if self.max_epochs > 0 else ENDLESS,
            max_steps=min(most, default=0),
            batch_size=loader.batch_size,
            data_workers=loader.num_workers,
            prefetch=loader.prefetch_factor or self._config.prefetch,
            evaluate_every=1,  # the workers agree at the end of each epoch whether one of them wants to stop
        )

    def _train(self, link: Link, writing: Writing) -> None:
        for batch in link.rehearsals():
            self._rehearse(batch, link)
        if not link.peek() and not link.has_final_state:
            return
        writing.begin()
        self.on_run_start()
        while link.peek():
            if not self._has_begun:
                self.on_advance_start()
                self._has_begun = True
            iter(self._data_fetcher)
            try:
                self.advance()
            except Moved:
                self.trainer.lightning_module._current_fx_name = None
                continue
            except Over:
                self.trainer.lightning_module._current_fx_name = None
                if not link.has_final_state:
                    return
            finally:
                self.on_iteration_done()
            self.on_advance_end()
            self._has_begun = False

    def _rehearse(self, batch: Any, link: Link) -> None:
        """Make the passes of a batch before the worker joins. What it logs is dropped."""
        trainer, inner = self.trainer, self.epoch_loop
        batch = transferred(trainer, batch)
        trainer._logger_connector.on_batch_start(batch)
        result = inner.automatic_optimization._training_step(inner._build_kwargs(OrderedDict(), batch, 0))
        if result.closure_loss is not None:
            link.sums(result.closure_loss)
        inner._results = _ResultCollection(training=True)
        trainer._logger_connector.reset_results()

    @contextmanager
    def _away(self, writing: Writing) -> Iterator[None]:
        """Give a context in which the runtime works. The name of the current hook is an attribute of the module, and
        those with plain values are a part of the state: there it is None."""
        module = self.trainer.lightning_module
        name, module._current_fx_name = module._current_fx_name, None
        yield
        module._current_fx_name = name
        writing.follow()

    def _ask(self, run: Any) -> None:
        """Ask for the end of the training if a callback has."""
        if self.trainer.should_stop and self._can_stop_early:
            run.stop("trainer.should_stop")

    def _made(self, position: Position) -> None:
        """Count the samples of the step that was made."""
        position.samples += self._steps.samples(position.samples % self._steps.total)

    def _put(self, step: int, samples: int) -> None:
        """Continue after that many steps and samples."""
        epoch, offset = divmod(samples, self._steps.total)
        batch = self._steps.before(offset)
        self._has_begun = self._has_begun and epoch == self.epoch_progress.current.processed
        put(self, step=step, epoch=epoch, batch=batch, has_begun=self._has_begun)
        self.epoch_loop.begins_inside = batch > 0


def transferred(trainer: Any, batch: Any) -> Any:
    """Return a micro-batch as Lightning gives it to ``training_step``: with the hooks of its transfer."""
    batch = trainer.precision_plugin.convert_input(batch)
    batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return call._call_strategy_hook(trainer, "batch_to_device", batch, dataloader_idx=0)
