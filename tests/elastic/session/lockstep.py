"""Workers that train a model of one number in lock-step, without processes."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.observe.log import Log
from tidewater.elastic.observe.meter import Changed
from tidewater.elastic.session.reports import Part, Reports
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.training import Report, Training


class Sum:
    """The sum of the model's values after every step: it shows each missing, repeated or misplaced call."""

    def __init__(self) -> None:
        self.value = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Worker:
    """One worker: its state, and what was reported to its script."""

    def __init__(self, name: str, log: Log) -> None:
        self.model, self.sum = nn.Linear(1, 1, bias=False), Sum()
        nn.init.ones_(self.model.weight)
        self.reported: list[tuple[int, int, tuple[int, ...]]] = []
        self.wrote: list[int] = []
        self.counted: list[int] = []
        self.saved: list[dict[str, Any]] = []
        self.failed: list[int] = []
        training = Training(
            model=self.model,
            optimizer=torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9),
            dataset=TensorDataset(torch.zeros(1)),
            loss=lambda model, batch: batch,
            stateful={"sum": self.sum},
            on_step=self.on_step,
        )
        self.state = State(training, kind_of(self.model), torch.amp.GradScaler("cpu", enabled=False))
        worker: Any = SimpleNamespace(
            state=self.state,
            training=training,
            writes=True,
            metrics=SimpleNamespace(committed=lambda report: self.counted.append(report.step)),
            checkpoints=SimpleNamespace(
                save=self.save,
                failed=lambda step, error: self.failed.append(step),
            ),
        )
        config: Any = SimpleNamespace(report_every=1)
        self._config, config.checkpoint_every, config.checkpoint_minutes = config, 2, 0
        self.reports = Reports(config, worker, log)

    def save(self, history: object, tree: dict[str, Any], **_: object) -> bool:
        self.saved.append(copy.deepcopy(tree))
        return True

    def often(self, *, every: int = 0, minutes: float = 0) -> None:
        self._config.checkpoint_every, self._config.checkpoint_minutes = every, minutes

    def on_step(self, report: Report) -> None:
        assert report.step == self.state.step, "the model is not that of the step"
        self.sum.value += self.model.weight.item()
        self.reported.append((report.step, report.rank, report.samples))
        self.wrote += [report.step] * report.writes

    @property
    def steps(self) -> list[int]:
        return [step for step, *_ in self.reported]

    def give(self) -> dict[str, Any]:
        """Return the state as it is sent or saved."""
        return copy.deepcopy(self.state.tree())

    def take(self, tree: dict[str, Any]) -> None:
        self.reports.adopt(tree, self.state.load)


def begin(generation: int, *workers: Worker) -> None:
    """Let the workers contribute to the next step."""
    for rank, worker in enumerate(workers):
        worker.reports.begin(Part(worker.state.step + 1, generation, rank, (rank,)))


def apply(generation: int, size: int, worker: Worker, rank: int) -> None:
    """Let a worker apply the step to which it has contributed."""
    worker.state.present = True
    worker.model.weight.grad = torch.full((1, 1), 0.5 + worker.state.step)
    worker.state.optimizers.step(1.0)
    worker.state.advance(Cursor(0, worker.state.step + 1), generation)
    report = Report(worker.state.step, 0, generation, size, rank, 0.5, 0.1, (rank,), size, 0.01, 0.01)
    worker.reports.applied(report, Changed("lost", True, 0.1))


def train(generation: int, *workers: Worker) -> None:
    """Make one undisturbed step, which makes the one before final."""
    begin(generation, *workers)
    for rank, worker in enumerate(workers):
        worker.reports.settle(rank, after_passes=True)
        apply(generation, len(workers), worker, rank)


def settle(*workers: Worker) -> None:
    for rank, worker in enumerate(workers):
        worker.reports.settle(rank)


def undisturbed(steps: int, log: Log) -> Worker:
    worker = Worker("undisturbed", log)
    for _ in range(steps):
        train(1, worker)
    settle(worker)
    return worker


def assert_whole(steps: int, log: Log, *workers: Worker) -> None:
    """Assert that the workers have the stateful objects of a run without disturbance."""
    expected = undisturbed(steps, log).sum.value
    assert [worker.sum.value for worker in workers] == [expected] * len(workers)
    assert len({worker.state.digest() for worker in workers}) == 1
