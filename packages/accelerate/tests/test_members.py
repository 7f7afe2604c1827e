"""Schedulers, precision, trackers and checkpoints of a script, as a worker alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.tracking import GeneralTracker
from accelerate.utils import ProjectConfiguration
from tidewater_accelerate import Accelerator
from torch.optim import lr_scheduler

from packages.accelerate.tests.test_epochs import EPOCHS, STEPS, Script
from tests.elastic.script.conftest import Alone

Begin = Callable[..., Accelerator]


def _warmed_up(step: int, *, steps: int) -> float:
    return min(1.0, step / steps)


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "partial": lambda optimizer: lr_scheduler.LambdaLR(optimizer, functools.partial(_warmed_up, steps=4)),
    "one_cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS * EPOCHS + 1),
    "sequential": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 9)], [3]
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_scheduler_of_any_kind_steps_with_the_job_and_is_part_of_its_state(
    kind: str, alone: Alone, begin: Begin
) -> None:
    script = Script(begin(), scheduled=SCHEDULERS[kind])
    lone = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    expected = SCHEDULERS[kind](lone)
    script.run()
    script.accelerator.end_training()
    for _ in range(STEPS * EPOCHS):
        lone.step()
        expected.step()
    assert script.scheduler.get_last_lr() == pytest.approx(expected.get_last_lr())
    assert alone.state.tree()["stateful"]["scheduler 0"]["last_epoch"] == STEPS * EPOCHS


def test_in_bf16_the_model_computes_in_it_and_returns_fp32(alone: Alone, begin: Begin) -> None:
    script = Script(begin(mixed_precision="bf16"))
    kinds: list[torch.dtype] = []
    script.model[0].register_forward_hook(lambda _, given, result: kinds.append(result.dtype))
    script.run(1)
    assert set(kinds) == {torch.bfloat16}
    assert script.model(torch.zeros(1, 2)).dtype == torch.float32
    assert script.completed == STEPS


class Notes(GeneralTracker):
    """Keeps what is logged."""

    name = "notes"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__()
        self.began = 0
        self.kept: list[Any] = []

    @property
    def tracker(self) -> list[Any]:
        return self.kept

    def start(self) -> None:
        self.began += 1

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.kept.append(values)

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        self.kept.append((step, values))


def test_only_the_main_process_starts_its_trackers_and_logs(alone: Alone, begin: Begin) -> None:
    notes = Notes()
    accelerator = begin(log_with=notes)
    accelerator.init_trackers("project", config={"lr": 0.1})
    accelerator.job.is_passed = True
    accelerator.log({"loss": 1.0}, step=1)
    assert accelerator.get_tracker("notes") is not notes
    assert (notes.began, notes.kept) == (0, [])
    accelerator.job.is_passed = False
    accelerator.log({"loss": 0.5}, step=2)
    assert accelerator.get_tracker("notes") is notes
    assert (notes.began, notes.kept) == (1, [{"lr": 0.1}, (2, {"loss": 0.5})])


def test_functions_run_in_the_process_that_is_the_main_one_when_they_are_called(alone: Alone, begin: Begin) -> None:
    accelerator, called = begin(), []
    functions = [
        accelerator.on_main_process(lambda: called.append("main")),
        accelerator.on_last_process(lambda: called.append("last")),
        accelerator.on_process(lambda: called.append("0"), process_index=0),
        accelerator.on_process(process_index=1)(lambda: called.append("1")),
    ]
    accelerator.job.is_passed = True
    for function in functions:
        function()
    assert called == []
    accelerator.job.is_passed = False
    for function in functions:
        function()
    assert called == ["main", "last", "0"]


def test_checkpoints_with_automatic_names_go_on_counting_in_another_main_process(
    alone: Alone, begin: Begin, tmp_path: Path
) -> None:
    settings = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)
    script = Script(begin(project_config=settings))
    script.accelerator.save_state()
    script.accelerator.project_configuration.iteration = 0  # as in a worker that has saved nothing
    script.accelerator.save_state()
    assert sorted(each.name for each in (tmp_path / "checkpoints").iterdir()) == ["checkpoint_0", "checkpoint_1"]
