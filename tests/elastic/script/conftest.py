"""Own loops in this process: the real session, loop and state above sums in memory, in a job of one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests.elastic.buffers.together import ranks
from tests.elastic.checkpoint.conftest import LINE, Told
from tests.elastic.session.stopping.ranks import Etcd
from tidewater.contract import env, exit_codes
from tidewater.elastic import runtime
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.config import Config
from tidewater.elastic.data.seeds import generators_kept
from tidewater.elastic.session.assembly import Content, Opened
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.session.worker import Meeting, Worker

SAMPLES, BATCH_SIZE, MICRO_BATCH, EPOCHS = 9, 6, 3, 2
STEPS = 4


class Alone:
    """A worker of a job of one, and what it has done."""

    def __init__(self) -> None:
        self.state: State
        self.begin()

    def begin(self) -> None:
        """Begin a job."""
        self.told = Told()
        self.etcd = Etcd(1)
        self.joined = self.left = self.closed = False

    @contextmanager
    def open(self, config: Config, prepare: Callable[[Config], Content]) -> Iterator[Opened]:
        """Open the session, in place of ``open_session``."""
        content = prepare(config)
        (group,) = ranks(1)[1]
        scaler = torch.amp.GradScaler("cpu", enabled=config.amp == "fp16")
        self.state = State(content.training, kind_of(content.training.model), scaler)
        self.state.begin(LINE, 1)
        self.state.present, self.state.micro_batch = True, config.micro_batch
        nothing: Any = SimpleNamespace(committed=lambda report: None, evaluated=lambda seconds: None)
        coordinator: Any = self.etcd
        unused: Any = None
        worker = Worker(
            member_id="w0",
            training=content.training,
            state=self.state,
            group=group,
            coordinator=coordinator,
            server=unused,
            heartbeat=unused,
            checkpoints=Checkpoints(places(config.checkpoints), keep=1, log=self.told.log),
            metrics=nothing,
            refusal=lambda view: None,
        )
        session: Any = Session(config, worker, self.told.log)
        session._generation = self.etcd.generation
        session.meet, session.end, session.leave = self.meet, self.end, self.leave
        try:
            yield Opened(session, self.join, self.leave)
        finally:
            self.closed = True

    def join(self) -> None:
        self.joined = True

    def leave(self) -> None:
        self.left = True

    def meet(self) -> Meeting | None:
        return None if self.etcd.view.finished or self.left else Meeting(0, 1, False, True, 1)

    def end(self) -> int:
        return exit_codes.FINISHED if self.etcd.view.finished else exit_codes.LEFT


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    """Let ``tidewater.session`` open the session of a worker alone."""
    worker = Alone()
    monkeypatch.setattr(runtime, "open_session", worker.open)
    monkeypatch.setattr(runtime, "_opened", False)
    threads = torch.get_num_threads()
    with generators_kept():
        yield worker
    torch.set_num_threads(threads)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Return what gives the settings of a small job, with more flags."""
    environ = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: str(tmp_path)}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    def config(*flags: str) -> Config:
        sizes = ("--epochs", EPOCHS, "--batch-size", BATCH_SIZE, "--micro-batch", MICRO_BATCH)
        threads = ("--threads", torch.get_num_threads(), "--checkpoint-minutes", 0)
        return runtime.init([*map(str, (*sizes, *threads)), *flags])

    return config


class Given:
    """A small training, and its loss."""

    def __init__(self, **more: Any) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.dataset = TensorDataset(torch.randn(SAMPLES, 2), torch.randn(SAMPLES, 1))
        self.fields = {"model": self.model, "optimizer": self.optimizer, "dataset": self.dataset, **more}

    def loss(self, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(self.model(batch[0]), batch[1])
