"""What a script sees of its epochs, steps and batches, as a worker alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tidewater_accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from packages.accelerate.tests.script import Counter
from tests.elastic.script.conftest import Alone
from tidewater.contract import exit_codes, rehearsal

Begin = Callable[..., Accelerator]
SAMPLES, BATCH, EPOCHS = 10, 4, 3
STEPS = 3


class Script:
    """A script, and what it has seen."""

    def __init__(self, accelerator: Accelerator, *, scheduled: Callable[[Any], Any] | None = None, **more: Any) -> None:
        self.accelerator = accelerator
        torch.manual_seed(3)
        data = TensorDataset(torch.randn(SAMPLES, 2), torch.randn(SAMPLES, 1))
        model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = scheduled(optimizer) if scheduled else torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        self.model, self.optimizer, self.train, self.evaluation, self.scheduler = accelerator.prepare(
            model,
            optimizer,
            DataLoader(data, **{"batch_size": BATCH, "shuffle": True, **more}),
            DataLoader(data, batch_size=BATCH),
            scheduler,
        )
        self.completed = 0
        self.seen: list[tuple[int, int]] = []
        """After each epoch, the samples in its steps, and the samples evaluated."""

    def run(self, epochs: int = EPOCHS, *, each_epoch: bool = False) -> None:
        for _ in range(epochs):
            trained = 0
            for inputs, targets in self.train:
                with self.accelerator.accumulate(self.model):
                    loss = nn.functional.mse_loss(self.model(inputs), targets)
                    self.accelerator.backward(loss)
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    if not each_epoch:
                        self.scheduler.step()
                    self.optimizer.zero_grad()
                if not self.accelerator.optimizer_step_was_skipped:
                    assert self.accelerator.sync_gradients
                    self.completed += 1
                    trained += len(inputs)
            if each_epoch:
                self.scheduler.step()
            self.seen.append((trained, sum(len(inputs) for inputs, _ in self.evaluation)))


def reference() -> list[torch.Tensor]:
    """Return the weights by torch alone, for batches of all samples, where their order doesn't count."""
    torch.manual_seed(3)
    inputs, targets = torch.randn(SAMPLES, 2), torch.randn(SAMPLES, 1)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        loss: Any = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return [each.detach() for each in model.parameters()]


def test_an_epoch_of_the_script_is_an_epoch_of_the_job(alone: Alone, begin: Begin) -> None:
    script = Script(begin())
    assert len(script.train) == STEPS
    script.run()
    script.accelerator.end_training()
    assert script.seen == [(SAMPLES, SAMPLES)] * EPOCHS
    assert script.completed == script.accelerator.steps == alone.state.step == STEPS * EPOCHS
    assert script.scheduler.get_last_lr() == pytest.approx([0.1 * 0.9 ** (STEPS * EPOCHS)])
    assert alone.etcd.view.finished


@pytest.mark.parametrize("accumulates", [1, 3])
def test_the_weights_are_those_of_a_loop_with_torch(accumulates: int, alone: Alone, begin: Begin) -> None:
    size = SAMPLES if accumulates == 1 else BATCH
    script = Script(begin(gradient_accumulation_steps=accumulates), batch_size=size)
    script.run()
    script.accelerator.end_training()
    assert script.completed == EPOCHS
    for mine, theirs in zip(script.model.parameters(), reference(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs)


def test_a_scheduler_may_be_stepped_once_per_epoch(alone: Alone, begin: Begin) -> None:
    script = Script(begin())
    script.run(each_epoch=True)
    assert script.scheduler.get_last_lr() == pytest.approx([0.1 * 0.9**EPOCHS])


def test_epochs_before_this_worker_are_passed_quietly(
    alone: Alone, begin: Begin, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = Script(begin())
    join = alone.join

    def joined() -> None:
        join()
        alone.state.cursor = type(alone.state.cursor)(2, BATCH)
        alone.state.step = 7
        script.accelerator.job.epochs.ended = 2

    alone.join = joined  # type: ignore[method-assign]
    script.run(1)
    accelerator = script.accelerator
    accelerator.print("quiet")
    accelerator.save_model(script.model, tmp_path / "out")
    mains = [script.accelerator.is_main_process]
    script.run(1)
    assert script.seen == [(0, BATCH)] * 2
    assert script.scheduler.get_last_lr() == [0.1]
    script.run(1)
    accelerator.print("loud")
    assert script.seen[-1] == (SAMPLES - BATCH, SAMPLES)
    assert accelerator.steps == 7 + script.completed == STEPS * EPOCHS
    mains.append(script.accelerator.is_main_process)
    assert mains == [False, True]
    assert "quiet" not in (said := capsys.readouterr().out)
    assert "loud" in said
    assert not (tmp_path / "out").exists()


def test_what_the_script_does_after_epochs_that_it_has_missed_leaves_registered_objects_as_they_are(
    alone: Alone, begin: Begin
) -> None:
    script = Script(begin())
    counted = Counter()
    script.accelerator.register_for_checkpointing(counted)
    join = alone.join

    def joined() -> None:
        join()
        alone.state.cursor = type(alone.state.cursor)(2, BATCH)
        script.accelerator.job.epochs.ended = 2
        counted.steps = 2

    alone.join = joined  # type: ignore[method-assign]
    for _ in range(EPOCHS):
        script.run(1)
        counted.steps += 1
    assert counted.steps == EPOCHS


def test_a_job_that_was_stopped_after_an_epoch_evaluates_it(alone: Alone, begin: Begin) -> None:
    script = Script(begin())
    join = alone.join

    def joined() -> None:
        join()
        alone.state.cursor = type(alone.state.cursor)(EPOCHS, 0)
        script.accelerator.job.epochs.ended = EPOCHS - 1

    alone.join = joined  # type: ignore[method-assign]
    script.run(each_epoch=True)
    assert script.seen == [(0, BATCH)] * (EPOCHS - 1) + [(0, SAMPLES)]
    assert script.scheduler.get_last_lr() == pytest.approx([0.1 * 0.9])
    assert script.accelerator.is_main_process
    script.accelerator.end_training()
    assert alone.etcd.view.finished


def test_the_state_says_which_epochs_of_the_script_have_ended(alone: Alone, begin: Begin) -> None:
    script, noted = Script(begin()), []
    for index in range(EPOCHS):
        for inputs, targets in script.train:
            script.accelerator.backward(nn.functional.mse_loss(script.model(inputs), targets))
            script.optimizer.step()
            noted.append(alone.state.tree()["stateful"]["epochs"]["ended"])
        assert noted[-1] == index, "what follows the last step of an epoch is to be done by those who get its state"


def test_a_worker_that_gets_an_epochs_last_step_from_others_does_not_step_the_scheduler_again(
    alone: Alone, begin: Begin
) -> None:
    script = Script(begin())
    script.run(1, each_epoch=True)
    batches = iter(script.train)
    next(batches)
    alone.state.cursor = type(alone.state.cursor)(2, 0)
    script.accelerator.job.epochs.ended = 2
    script.accelerator.job._pauses = True  # the others' state has come, with what they have done after the epoch
    assert next(batches, None) is None
    assert script.accelerator.optimizer_step_was_skipped
    assert not script.accelerator.job.is_passed


def test_a_job_that_max_steps_has_ended_is_saved_by_its_main_process(
    alone: Alone, begin: Begin, tmp_path: Path
) -> None:
    script = Script(begin("--max-steps", str(STEPS + 1)))
    script.run()
    assert script.seen == [(SAMPLES, SAMPLES), (BATCH, SAMPLES), (0, SAMPLES)]
    assert script.accelerator.is_main_process
    script.accelerator.save_model(script.model, tmp_path / "out")
    assert (tmp_path / "out").exists()
    script.accelerator.end_training()
    assert alone.etcd.view.finished


def test_a_worker_that_leaves_ends_with_its_code_where_it_is(alone: Alone, begin: Begin) -> None:
    script = Script(begin())
    alone.join = alone.leave  # type: ignore[method-assign]
    with pytest.raises(SystemExit) as ended:
        script.run()
    assert ended.value.code == exit_codes.LEFT
    assert alone.closed


def test_a_script_that_does_not_end_training_fails_with_a_sentence(
    alone: Alone, begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.delattr(sys, "last_value", raising=False)
    script = Script(begin())
    script.run(1)
    script.accelerator.job._close()
    assert codes == [exit_codes.USAGE]
    assert "make accelerator.end_training() its last line" in capsys.readouterr().err
    assert alone.closed
    assert not alone.etcd.view.finished


def test_what_is_saved_can_be_read_by_the_library(alone: Alone, begin: Begin, tmp_path: Path) -> None:
    script = Script(begin())
    script.run(1)
    script.accelerator.save_state(tmp_path / "state")
    script.accelerator.save_model(script.model, tmp_path / "model")
    script.accelerator.end_training()
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(saved[name], each) for name, each in script.model.state_dict().items())
    assert {each.name for each in (tmp_path / "state").iterdir()} >= {"model.safetensors", "optimizer.bin"}
    with torch.no_grad():
        next(iter(script.model.parameters())).zero_()
    script.accelerator.job._run = None  # as before training
    script.accelerator.load_state(tmp_path / "state")
    assert all(torch.equal(saved[name], each) for name, each in script.model.state_dict().items())


def leaves_steps_out(script: Script) -> None:
    for inputs, targets in script.train:
        script.accelerator.backward(nn.functional.mse_loss(script.model(inputs), targets))


def breaks(script: Script) -> None:
    for _ in range(2):
        for inputs, targets in script.train:
            script.accelerator.backward(nn.functional.mse_loss(script.model(inputs), targets))
            script.optimizer.step()
            if script.accelerator.steps:
                break


def prepares_late(script: Script) -> None:
    script.run(1)
    script.accelerator.register_for_checkpointing(script.scheduler)


def skips(script: Script) -> None:
    script.accelerator.skip_first_batches(script.train, 2)


def triggers(script: Script) -> None:
    script.accelerator.set_trigger()


def shuffles_twice(script: Script) -> None:
    script.accelerator.prepare(DataLoader(TensorDataset(torch.zeros(3)), shuffle=True))


def has_no_batch(script: Script) -> None:
    script.accelerator.backward(script.model(torch.zeros(1, 2)).sum())


@pytest.mark.parametrize(
    ("misuse", "sentence"),
    [
        (leaves_steps_out, "has not called optimizer.step() for a step"),
        (breaks, "by break, and begins another epoch"),
        (prepares_late, "register_for_checkpointing() was called after the first batch"),
        (skips, "a job continues at the sample where it was"),
        (triggers, "set_trigger() is not supported in an elastic job: only this worker would stop"),
        (shuffles_twice, "two DataLoaders with shuffle=True"),
        (has_no_batch, "without a batch of the DataLoader that trains"),
    ],
)
def test_a_misuse_ends_the_worker_with_a_sentence(
    misuse: Callable[[Script], None],
    sentence: str,
    alone: Alone,
    begin: Begin,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = Script(begin())
    with pytest.raises(SystemExit) as ended:
        misuse(script)
    assert ended.value.code == exit_codes.USAGE
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "arguments", "sentence"),
    [
        (("--epochs", "3"), {}, "--epochs: the epochs are those of the script's own loop"),
        ((), {"mixed_precision": "fp16"}, "mixed_precision='fp16'"),
        ((), {"fsdp_plugin": object()}, "fsdp_plugin"),
    ],
)
def test_settings_without_support_end_the_worker_before_it_builds_anything(
    flags: tuple[str, ...],
    arguments: dict[str, Any],
    sentence: str,
    begin: Begin,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        begin(*flags, **arguments)
    assert ended.value.code == exit_codes.USAGE
    assert sentence in capsys.readouterr().err


def test_a_rehearsal_may_give_the_flags_that_the_script_decides(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(rehearsal.FOLDER, str(tmp_path))
    begin("--epochs", "1000000", "--evaluate-every", "1", "--batch-policy", "keep")
