"""Records the state of one worker after each final step, for `tidewater rehearse`.

    observer = Observer(folder, config)
    training = observer.observed(training)      # as the script has built it
    observer.watch(session)

A worker begins a step in the training's loss function. There it waits at the gate, so the rehearsal can kill, freeze or
add workers at a step and not at a time. When ``on_step`` has been called, the state is whole and as after that step.
A Stop does not end training: a rehearsal needs all its steps.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.data import Dataset

from tidewater.contract.rehearsal import GATE, ORDERS, Begun, Final, Orders, Read, Scored, Writer
from tidewater.elastic.config import Config
from tidewater.elastic.data.seeds import states
from tidewater.elastic.method.checks import is_indexed
from tidewater.elastic.method.optimizers import several
from tidewater.elastic.rehearsal.pieces import described, digest, pieces, sketches
from tidewater.elastic.session.reports import Part
from tidewater.elastic.session.session import Session
from tidewater.elastic.training import Evaluated, Report, Stop, Training

_LOOK_SECONDS = 0.01


class Watched(Dataset[Any]):
    """Some samples of a data set, in its order. Each reading is recorded, also in processes that prepare data."""

    def __init__(self, dataset: Any, count: int, what: str, writer: Writer) -> None:
        self._dataset, self._count, self._what, self._writer = dataset, count, what, writer

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        sample = self._dataset[index * len(self._dataset) // self._count]
        found = sorted(described(sample, "", frozenset()))
        self._writer.write(Read(f"sample {index} of the {self._what}", digest(found)))
        return sample

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)


class Observer:
    """The observer of one worker."""

    def __init__(self, folder: Path, config: Config) -> None:
        orders = Orders(**json.loads((folder / ORDERS).read_text()))
        # A step of one sample at the end of each of three passes: some workers have none in it.
        self._samples = orders.samples or config.batch_size * max(1, config.max_steps // 3) + 1
        self._gate = folder / GATE
        self._writer = Writer(folder, config.worker)
        self._training: Training
        self._session: Session | None = None
        self._part: Part | None = None
        self._step = -1
        """Steps of the state with which this worker has last begun a step."""
        self._drawn = ""
        """The generators after the last optimizer's step, which draws the same numbers in all workers."""

    def observed(self, training: Training) -> Training:
        """Return the training with functions that record, and with fewer samples."""
        self._training = training

        def loss(model: torch.nn.Module, batch: Any) -> Any:
            self.begin()
            return training.loss(model, batch)

        def on_step(report: Report) -> None:
            self._record(report, _called("on_step", training.on_step, report))

        def on_evaluation(report: Evaluated) -> None:
            self._record_score(report, _called("on_evaluation", training.on_evaluation, report))

        for optimizer in several(training.optimizer)[-1:]:
            if isinstance(optimizer, Optimizer):
                optimizer.register_step_post_hook(self._stepped)
        return replace(
            training,
            loss=loss,
            on_step=on_step,
            on_evaluation=on_evaluation,
            dataset=self._watched(training.dataset, "dataset"),
            validation=self._watched(training.validation, "validation data"),
        )

    def watch(self, session: Session) -> None:
        """Record this worker's part. Before it has the job's state, nothing is recorded."""
        self._session = session

    def _watched(self, dataset: Any, what: str) -> Any:
        if not is_indexed(dataset):
            return dataset
        return Watched(dataset, min(len(dataset), self._samples), what, self._writer)

    def _stepped(self, *_: object) -> None:
        self._drawn = _generators()

    def begin(self) -> None:
        """Begin to make a step, once: record the samples, and where the state comes from, and wait at the gate."""
        session = self._session
        if session is None or session.reports.part is None or session.reports.part is self._part:
            return
        part, state = session.reports.part, session.worker.state
        came = self._step < 0 or state.step not in (self._step, self._step + 1)
        came &= state.pending is None  # otherwise the state is recorded when ``on_step`` has been called
        self._part, self._step = part, state.step
        self._writer.write(
            Begun(**asdict(part), pieces=pieces(state, self._training) if came else {}),
        )
        while int(self._gate.read_text() or 0) <= state.step:
            time.sleep(_LOOK_SECONDS)

    def _record(self, report: Report, called: dict[str, str]) -> None:
        assert self._session is not None
        state = self._session.worker.state
        if report.rank >= 0:
            called["draws/before_step and the optimizer's step"] = self._drawn
        self._writer.write(
            Final(
                step=report.step,
                epoch=report.epoch,
                generation=report.generation,
                size=report.world_size,
                rank=report.rank,
                loss=report.loss,
                batch_size=report.batch_size,
                pieces=pieces(state, self._training) | called,
                sketches=sketches(state),
            )
        )

    def _record_score(self, report: Evaluated, called: dict[str, str]) -> None:
        assert self._session is not None
        found = pieces(self._session.worker.state, self._training) | called
        held_out: Any = self._training.validation
        samples = min(len(held_out), self._samples)
        self._writer.write(Scored(step=report.step, score=report.score, samples=samples, pieces=found))


def _called(name: str, hook: Callable[[Any], None], report: Report | Evaluated) -> dict[str, str]:
    """Call a function of the script. Return what it has drawn, as a piece."""
    with contextlib.suppress(Stop):
        hook(report)
    return {f"draws/{name}": _generators()}


def _generators() -> str:
    return digest([state for _, state in states()])
