"""Loops of several ranks in threads of one process: the real loop, session, state and checkpoints above sums in memory.

The ranks are in one generation, and etcd is a record that all of them see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.elastic.buffers.together import all_at_once, ranks
from tests.elastic.checkpoint.conftest import LINE, Told
from tidewater.contract import env
from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.config import Config
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.membership.rules import Generation, Member, View
from tidewater.elastic.script.content import Script
from tidewater.elastic.session.loop import Loop, Pause
from tidewater.elastic.session.session import Session
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.session.step import Stepper
from tidewater.elastic.session.worker import Material, Meeting, Worker
from tidewater.elastic.training import Training

EPOCH = 3
"""Steps of an epoch; each has one sample of each rank."""

Build = Callable[[int], Mapping[str, Any]]
"""Returns the hooks and other fields of a rank's training."""


class Etcd:
    """What the coordinators of all ranks see."""

    leases_lost = 0

    def __init__(self, size: int) -> None:
        members = tuple(Member(f"w{rank}", f"w{rank}", "127.0.0.1", 1, "s", 0) for rank in range(size))
        self.generation = Generation(1, 17, members, "start", LINE)
        self.view = View(self.generation, 1, members)
        self._changed = threading.Condition()

    def in_touch(self) -> bool:
        return True

    def wait(self, condition: Callable[[View], bool], deadline: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: condition(self.view), 0.01)

    def finish(self, record: bytes) -> None:
        with self._changed:
            self.view = View(self.view.generation, 2, self.view.members, finished=record.decode())
            self._changed.notify_all()


class Loader:
    """Gives each rank one sample of each step."""

    def start(self, place: Any) -> None:
        self._place, self._next = place, place.cursor

    def next(self) -> Prepared:
        epoch, offset = self._next.epoch, self._next.offset
        after = Cursor(epoch + 1, 0) if offset + 1 == EPOCH else Cursor(epoch, offset + 1)
        self._next = after
        size = self._place.size
        return Prepared(Step(tuple(range(size)), after), (Micro(torch.ones(1, 1), 1 / size, 1),))

    def prefetch(self) -> None:
        pass

    def validation(self, parts: Any) -> Iterator[Any]:
        return iter([torch.ones(len(part), 1) for part in parts])


class Rank:
    """One worker."""

    def __init__(self, group: Any, etcd: Etcd, build: Build, folder: Path, flags: tuple[str, ...]) -> None:
        self.told, self.rank, self.etcd = Told(), group.rank, etcd
        model = nn.Linear(1, 1)
        for parameter in model.parameters():
            nn.init.ones_(parameter)
        given: dict[str, Any] = {
            "optimizer": torch.optim.SGD(model.parameters(), 0.01),
            "dataset": [1.0] * EPOCH,
            "loss": lambda model, batch: model(batch).mean(),
            **build(group.rank),
        }
        environ = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: str(folder)}
        config = Config.parse(["--epochs", "4", *flags], environ)
        script: Any = Script(lambda config: Training(model=model, **given))
        training = script.hooked(config, group.device)
        self.state = State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))
        self.state.begin(LINE, 1)
        self.state.present = True
        nothing = SimpleNamespace(committed=lambda report: None, evaluated=lambda seconds: None)
        coordinator: Any = etcd
        unused: Any = None
        metrics: Any = nothing
        worker = Worker(
            member_id=f"w{group.rank}",
            training=training,
            state=self.state,
            group=group,
            coordinator=coordinator,
            server=unused,
            heartbeat=unused,
            checkpoints=Checkpoints(places(config.checkpoints), keep=config.keep_checkpoints, log=self.told.log),
            metrics=metrics,
            refusal=lambda view: None,
        )
        self.session = Session(config, worker, self.told.log)
        self.session._generation = etcd.generation
        stepper = Stepper(training, self.state, group, amp="off")
        loader: Any = Loader()
        self.loop = Loop(self.session, Material(training, stepper, loader, EPOCH, script.requests))

    def train(self) -> None:
        """Train until the generation has no more to do."""
        meeting = Meeting(self.rank, len(self.etcd.generation.members), replaced=False, included=True, generation=1)
        for prepared in self.loop._steps_of(meeting):
            if not isinstance(prepared, Pause):
                self.loop.make(prepared)

    @property
    def finished(self) -> bool:
        return bool(self.etcd.view.finished)


def begun(build: Build, folder: Path, *flags: str, size: int = 2) -> list[Rank]:
    """Return that many ranks at the beginning of training."""
    etcd = Etcd(size)
    return [Rank(group, etcd, build, folder, flags) for group in ranks(size)[1]]


def trained(build: Build, folder: Path, *flags: str, size: int = 2) -> list[Rank]:
    """Train with that many ranks until the job is finished."""
    made = begun(build, folder, *flags, size=size)
    all_at_once(lambda rank: made[rank].train(), size)
    return made
