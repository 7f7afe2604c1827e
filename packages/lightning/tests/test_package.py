"""The lock is taken by the stack as it is, and the example runs."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest

from tests.sources import ROOT
from tidewater.project.lock import parse

PACKAGE = Path(__file__).parents[1]


def pins(path: Path) -> set[str]:
    return set(re.findall(r"^\S+==\S+", path.read_text(), re.MULTILINE))


def test_the_stack_takes_the_lock_with_the_versions_of_the_tests() -> None:
    _, mistakes = parse((PACKAGE / "requirements.txt").read_text(), PACKAGE)
    assert mistakes == []
    ours = {pin for pin in pins(PACKAGE / "requirements.txt") if pin.startswith(("lightning", "pytorch", "torchm"))}
    assert len(ours) == 4
    assert ours <= pins(ROOT / "requirements" / "libraries.txt")


def test_the_example_trains(
    alone: Any, config: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["spirals.py", "--checkpoint-minutes", "0"])
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.chdir(tmp_path)
    seen = runpy.run_path(str(PACKAGE / "examples" / "spirals.py"), run_name="__main__")
    trainer: lightning.Trainer = seen["trainer"]
    assert trainer.callback_metrics["val_accuracy"] > 0.6
    assert trainer.checkpoint_callback is not None
    assert (tmp_path / "lightning_logs" / "j" / "hparams.yaml").is_file()
    assert seen["Classifier"].load_from_checkpoint(trainer.checkpoint_callback.best_model_path)
