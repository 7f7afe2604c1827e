"""What the Trainer does around its loop, without a runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tidewater_transformers import Trainer
from transformers import TrainingArguments

import tidewater
from tidewater.elastic.config import Config

SAMPLES = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 4
BEST = {
    "eval_strategy": "steps",
    "eval_steps": 1,
    "save_strategy": "steps",
    "save_steps": 2,
    "load_best_model_at_end": True,
    "save_only_model": True,
    "skip_memory_metrics": True,
}
Steps = Callable[[Trainer], None]


class Line(torch.nn.Module):
    """A model with two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.line(x) - labels).pow(2).mean()}


def trainer(folder: Path, **more: Any) -> Trainer:
    common: dict[str, Any] = {"report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    args = TrainingArguments(str(folder), **{**common, **more})
    config = Config.parse(["--job", "j", "--etcd", "e", "--checkpoints", "c"], {})
    return Trainer(Line(), args, train_dataset=SAMPLES, eval_dataset=SAMPLES, config=config)


def train(monkeypatch: pytest.MonkeyPatch, mine: Trainer, steps: Steps = lambda _: None, **run: Any) -> Any:
    """Train in a session that ends after ``steps`` with these attributes."""

    def batches() -> Iterator[Any]:
        steps(mine)
        yield from ()

    @contextmanager
    def session(*_: Any, **__: Any) -> Iterator[Any]:
        yield SimpleNamespace(batches=batches, **{"rank": 0, "has_final_state": True, **run})

    monkeypatch.setattr(tidewater, "session", session)
    return mine.train()


def evaluated(*losses: float, writes: bool = True) -> Steps:
    """Return steps with these losses of their evaluations; every second one saves."""

    def steps(mine: Trainer) -> None:
        mine.state.is_world_process_zero = writes
        for step, loss in enumerate(losses, 1):
            mine.state.global_step = step
            mine._determine_best_metric({"eval_loss": loss}, None)
            if step % 2 == 0:
                mine._save_checkpoint(mine.model, None)

    return steps


def saved(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def test_a_worker_that_was_stopped_by_another_one_has_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = trainer(tmp_path, max_steps=9)
    assert train(monkeypatch, mine).global_step < 9


def test_a_worker_that_joined_too_late_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        train(monkeypatch, trainer(tmp_path), rank=-1, has_final_state=False)
    assert ended.value.code == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_of_the_end_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int) -> None:
    mine = trainer(tmp_path / "out")
    train(monkeypatch, mine, evaluated(writes=rank == 1), rank=rank)
    mine.save_model()
    assert (tmp_path / "out" / "model.safetensors").exists() == (rank == 0)


def test_the_best_model_is_the_best_one_that_was_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = trainer(tmp_path, **BEST)
    train(monkeypatch, mine, evaluated(5.0, 3.0, 1.0, 4.0))
    assert mine.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")


def test_a_best_model_that_is_gone_does_not_fail_the_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = trainer(tmp_path, **BEST, save_total_limit=1)
    train(monkeypatch, mine, evaluated(5.0, 3.0, writes=False), rank=0)
    assert mine.state.best_model_checkpoint is None


@pytest.mark.parametrize(("rank", "kept"), [(0, ["checkpoint-2"]), (1, ["checkpoint-2", "checkpoint-4"])])
def test_only_the_worker_that_writes_deletes_checkpoints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int, kept: list[str]
) -> None:
    mine = trainer(tmp_path, **BEST, save_total_limit=1)
    train(monkeypatch, mine, evaluated(5.0, 3.0, 4.0, 4.0), rank=rank)
    assert saved(tmp_path) == kept
    assert mine.args.save_total_limit == 1
