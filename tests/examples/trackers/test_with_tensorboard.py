"""TensorBoard has every step once, also after the worker that writes and later all workers are lost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from tests.elastic.conftest import digits, etcd, farm, start
from tests.elastic.workers import Worker
from tests.pages import blocks
from tests.sources import ROOT
from tidewater.contract import exit_codes

__all__ = ["digits", "etcd", "farm", "start"]

EVERY = 10
"""Steps from one checkpoint of the first worker to the next. The others write none, so steps are repeated."""


def points(folder: Path) -> dict[str, list[int]]:
    """Return the steps of every curve, as TensorBoard shows it."""
    seen: Any = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    seen.Reload()
    return {name: [point.step for point in seen.Scalars(name)] for name in seen.Tags()["scalars"]}


def has_made(step: int) -> Callable[[Worker], bool]:
    return lambda worker: bool(worker.steps()) and int(worker.steps()[-1]["step"]) >= step


def test_the_guide_prints_the_example() -> None:
    example = (ROOT / "examples/trackers/with_tensorboard.py").read_text()
    assert any("SummaryWriter" in block and block in example for block in blocks("docs/training/trackers.md", "python"))


@pytest.mark.e2e
def test_every_step_is_one_point_after_kills_of_the_writer_and_of_all(
    start: Callable[..., Worker], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = ("--board", str(tmp_path), "--evaluate-every", "1", "--epochs", "1000", "--min-step-seconds", "0.05")

    def worker(name: str, *, checkpoints: int = 0) -> Worker:
        every = ("--checkpoint-every", str(checkpoints), "--checkpoint-minutes", "0")
        return start(name, *options, *every, python=("-m", "examples.trackers.with_tensorboard"))

    a = worker("a", checkpoints=EVERY)
    a.wait_for(lambda worker: worker.events("checkpoint_saved"))
    b = worker("b")
    b.wait_for_world(2)
    a.signal(signal.SIGKILL)
    b.wait_for(lambda worker: worker.events("recovered"))
    b.wait_for(has_made(int(b.events("recovered")[0]["step"]) + EVERY))
    b.signal(signal.SIGKILL)
    lost = int(b.steps()[-1]["step"])
    c = worker("c")
    c.wait_for(has_made(lost + EVERY))
    assert int(c.steps()[0]["step"]) <= lost, "no step is repeated"
    c.wait_for(lambda worker: worker.events("evaluated"))
    c.signal(signal.SIGTERM)
    assert c.wait() == exit_codes.LEFT
    found = points(tmp_path / request.node.name)
    assert found["loss"] == found["lr"] == found["workers"] == list(range(1, int(c.events("left")[0]["step"]) + 1))
    assert len(found["accuracy"]) == len(set(found["accuracy"])) > 0
