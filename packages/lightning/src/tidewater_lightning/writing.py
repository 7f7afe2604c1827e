"""What one worker does for all: it writes the loggers' rows, and shows the progress bar.

The rows of a step wait until the step is final. Then the worker of rank 0 writes them, and the others drop theirs. So
no step has two rows when a worker is lost, and a step that was discarded has none.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint, ModelSummary, Timer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.utilities import _log_hyperparams
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from tidewater import Report
from tidewater_lightning.refusals import refuse_own_metrics


def name_versions(loggers: list[Any], job: str) -> None:
    """Let the loggers that number their folders use the job's name, so that all workers have the same folder."""
    for logger in loggers:
        if isinstance(logger, CSVLogger | TensorBoardLogger) and logger._version is None:
            logger._version = job


class Callbacks:
    """The states of a trainer's callbacks, which a newcomer gets."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each callback that has one."""
        return dict(call._call_callbacks_state_dict(self._trainer))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the states. Lightning's Timer adds the time that it loads to the time since it was started here."""
        timers = [each for each in self._trainer.callbacks if isinstance(each, Timer)]
        running = [each.time_elapsed() - each._offset for each in timers]
        call._call_callbacks_load_state_dict(self._trainer, {"callbacks": state})
        for timer, seconds in zip(timers, running, strict=True):
            timer._offset -= seconds


class Writing:
    """Lets the loggers of ``trainer`` write for the job, in the worker of rank 0 only."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._rows: deque[tuple[int, int, Callable[[], None]]] = deque()
        """Of each row that waits: the number of steps that must be final, its step, and what writes it."""
        self._is_open = False
        for logger in trainer.loggers:
            logger.log_metrics = partial(self._log, logger, logger.log_metrics)
            logger.save = partial(self._save, logger.save)  # that of a CSVLogger opens it
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                # It numbers a file that is there already: one that another worker has written for the same step.
                callback._enable_version_counter = False
                callback._save_topk_checkpoint = partial(_keep, callback, callback._save_topk_checkpoint)
        self.follow()

    def begin(self) -> None:
        """Show the summary and the progress bar in the worker that writes: Lightning asked before they joined."""
        trainer = self._trainer
        if not trainer.is_global_zero:
            return
        for callback in trainer.callbacks:
            if isinstance(callback, ModelSummary):
                callback.on_fit_start(trainer, trainer.lightning_module)
        if trainer.progress_bar_callback is not None:
            trainer.progress_bar_callback.enable()

    def follow(self) -> None:
        """Let Lightning know whether this worker writes."""
        rank_zero_only.rank = 0 if self._trainer.is_global_zero else 1

    def final(self, report: Report) -> None:
        """Write the rows up to this step, or drop them."""
        self._settle(report.step, report.writes)

    def end(self) -> None:
        """Write what has come after the last step, and from now on at once."""
        self._settle(None, self._trainer.is_global_zero)
        for logger in self._trainer.loggers:
            del logger.log_metrics, logger.save
        for callback in self._trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                del callback._save_topk_checkpoint

    def _log(self, logger: Any, write: Callable[..., None], metrics: Any, step: int | None = None) -> None:
        made = self._trainer.global_step

        def now() -> None:
            write(metrics, step)
            logger.save()

        self._rows.append((made, made if step is None else step, now))

    def _save(self, save: Callable[[], None]) -> None:
        if self._is_open:
            save()

    def _settle(self, made: int | None, writes: bool) -> None:
        rank_zero_only.rank = 0 if writes else 1
        while self._rows and (made is None or self._rows[0][0] <= made):
            _, step, write = self._rows.popleft()
            if writes:
                self._open(step)
                write()
        self.follow()

    def _open(self, first: int) -> None:
        """Open the loggers for the first row that this process writes. Another process may have written before."""
        if self._is_open:
            return
        self._is_open = True
        for logger in self._trainer.loggers:
            if isinstance(logger, CSVLogger):
                keep_rows(logger, first)
            if isinstance(logger, TensorBoardLogger):
                logger._kwargs.setdefault("purge_step", first)
        if self._trainer.enable_autolog_hparams:
            _log_hyperparams(self._trainer)


def _keep(callback: ModelCheckpoint, save: Callable[..., None], trainer: Any, metrics: Any) -> None:
    """Save a file if its metric is a good one. Raise ConfigError if the metric, or one in the file's name, differs
    between the workers: each decides, and knows the names of the files that are to be removed."""
    named = re.findall(r"\{(.*?)[:}]", callback.filename or "")
    refuse_own_metrics("ModelCheckpoint", trainer, [callback.monitor, *named])
    save(trainer, metrics)


def keep_rows(logger: Any, first: int) -> None:
    """Open a CSVLogger, which removes the file that is there, and let it write the file's rows before ``first``."""
    path = Path(logger.log_dir) / "metrics.csv"
    rows: list[dict[str, str]] = []
    if path.is_file():
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    kept = [{name: value for name, value in row.items() if value} for row in rows if int(row["step"]) < first]
    logger.experiment.metrics.extend(kept)
