"""A log that tests can read, training states, and the keys in S3."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tidewater.elastic.checkpoint import Checkpoints, places
from tidewater.elastic.checkpoint.directory import Directory
from tidewater.elastic.checkpoint.lineage import History, Segment
from tidewater.elastic.checkpoint.manager import Found
from tidewater.elastic.observe import log as logs
from tidewater.elastic.observe.log import Log

Tree = dict[str, Any]

LINE = "line"
"""The lineage that etcd knows in these tests."""


def at(step: int, generation: int = 1, *before: Segment, lineage: str = LINE, since: int = 1) -> History:
    """Return the history of a state of the tests' only lineage, unless it says otherwise."""
    return History((*before, Segment(lineage, since, generation, step)))


class Told:
    """The logged events."""

    def __init__(self) -> None:
        self.log = Log("t", stream=io.StringIO(), listener=self._heard)
        self.events: list[tuple[str, dict[str, logs.Value]]] = []
        self._then: dict[str, Callable[[], object]] = {}

    def then(self, name: str, act: Callable[[], object]) -> None:
        """Call ``act`` when an event of that name is logged for the first time from now on."""
        self._then[name] = act

    def _heard(self, name: str, fields: Mapping[str, logs.Value]) -> None:
        self.events.append((name, dict(fields)))
        self._then.pop(name, lambda: None)()

    def of(self, name: str) -> list[dict[str, logs.Value]]:
        return [fields for event, fields in self.events if event == name]

    def steps(self, name: str) -> list[logs.Value]:
        return [fields.get("step") for fields in self.of(name)]


class Slow(Directory):
    """A directory that blocks writes until it is released; `begun` is called before it does."""

    def __init__(self, folder: Path, begun: Callable[[], object] = lambda: None) -> None:
        super().__init__(folder)
        self.go, self._begun = threading.Event(), begun

    def begin(self, step: int) -> Any:
        self._begun()
        assert self.go.wait(60)
        return super().begin(step)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def open_places(told: Told) -> Callable[..., Checkpoints]:
    """Return a function that opens checkpoints in the given places, as another worker would."""

    def open_them(text: object, keep: int = 2) -> Checkpoints:
        return Checkpoints(places(str(text)), keep=keep, log=told.log)

    return open_them


@pytest.fixture
def checkpoints(folder: Path, open_places: Callable[..., Checkpoints]) -> Checkpoints:
    return open_places(folder)


def small(step: int) -> Tree:
    """Return a state that differs from that of every other step."""
    return {"step": step, "model": {"weight": torch.full((4, 3), float(step)), "bias": torch.arange(3.0) + step}}


def large(step: int, size: int) -> Tree:
    """Return a state of ``size`` bytes."""
    return {"step": step, "model": {"weight": torch.full((size // 4,), float(step))}}


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a model with convolutions and batch norm after three steps of AdamW with two parameter groups."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 5))
    model = model.to(memory_format=torch.channels_last)
    groups: list[dict[str, Any]] = [
        {"params": list(model[:3].parameters()), "lr": 3e-4},
        {"params": list(model[3].parameters())},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98))
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(model(torch.randn(4, 3, 8, 8)).square().mean())
        optimizer.step()
    return model, optimizer


def loaded(checkpoints: Checkpoints, lineage: str = LINE) -> Found:
    """Return the checkpoint that is loaded; there must be one."""
    found = checkpoints.load(lineage)
    assert found is not None
    return found


def save(checkpoints: Checkpoints, *steps: int) -> None:
    """Save small states, one after the other."""
    for step in steps:
        assert checkpoints.save(at(step), small(step), wait=True)


def same(left: object, right: object) -> bool:
    """Return whether both are equal in structure, types and bits."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and _bits(left) == _bits(right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return same(list(left), list(right)) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, set | frozenset) and isinstance(right, set | frozenset):
        return sorted(map(repr, left)) == sorted(map(repr, right))
    return repr(left) == repr(right)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def keys(client: Any) -> list[str]:
    """Return all keys in the bucket."""
    return [each["Key"] for each in client.list_objects_v2(Bucket="there").get("Contents", ())]
