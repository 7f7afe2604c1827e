"""A Trainer with ElasticStrategy does what it does without: counters, hooks, schedulers, callbacks, loggers."""

from __future__ import annotations

import copy
import csv
import json
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    ModelSummary,
    Timer,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.trainer.states import RunningStage
from tidewater_lightning.writing import Callbacks, keep_rows

from packages.lightning.tests.conftest import EPOCHS, SAMPLES, STEPS, Net, loader
from tests.elastic.script.conftest import Alone
from tidewater.contract import exit_codes

Make = Callable[..., lightning.Trainer]


def plain(**arguments: Any) -> lightning.Trainer:
    """Return a trainer without the strategy."""
    without = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    return lightning.Trainer(**{**without, "enable_model_summary": False, "max_epochs": EPOCHS, **arguments})


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_hooks_counters_and_schedulers_are_those_of_lightning(trainer: Make, interval: str) -> None:
    module, made = Net(interval=interval), trainer()
    made.fit(module, loader(), loader())
    other, reference = Net(interval=interval), plain()
    reference.fit(other, loader(), loader())
    assert module.calls == other.calls
    assert module.rates == other.rates
    assert (made.global_step, made.current_epoch) == (STEPS * EPOCHS, EPOCHS)
    assert made.fit_loop.state_dict() == reference.fit_loop.state_dict()


@pytest.mark.parametrize(
    "arguments",
    [{}, {"gradient_clip_val": 0.1}, {"gradient_clip_val": 0.05, "gradient_clip_algorithm": "value"}],
    ids=str,
)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_weights_are_those_of_lightning(trainer: Make, precision: Any, arguments: dict[str, Any]) -> None:
    modules = [Net(), Net()]
    makers: list[Make] = [lambda **more: trainer("--micro-batch", "0", **more), plain]
    for module, make in zip(modules, makers, strict=True):
        make(precision=precision, **arguments).fit(module, loader(batch_size=SAMPLES))
    for mine, theirs in zip(*(module.parameters() for module in modules), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2 if precision == "bf16-mixed" else 1e-5, atol=1e-4)


def test_max_steps_ends_within_an_epoch(trainer: Make) -> None:
    made = trainer(max_epochs=-1, max_steps=STEPS + 1)
    made.fit(Net(), loader())
    assert made.global_step == STEPS + 1


def test_a_resumed_job_goes_on_within_the_epoch(trainer: Make, alone: Alone) -> None:
    first, whole = Net(), Net()
    trainer().fit(whole, loader())
    trainer("--max-steps", str(STEPS + 1)).fit(first, loader())
    tree = copy.deepcopy(alone.state.whole())
    made, second = trainer(), Net()
    joined = alone.join

    def join() -> None:
        joined()
        alone.state.load(tree)

    alone.join = join  # type: ignore[method-assign]
    made.fit(second, loader())
    assert (made.global_step, made.current_epoch) == (STEPS * EPOCHS, EPOCHS)
    after = [call for call in whole.calls if call[2] > STEPS + 1]
    assert second.calls == [("start", 1, STEPS + 1), ("epoch_start", 1, STEPS + 1), *after]
    assert second.rates == whole.rates[STEPS + 1 :]
    for mine, theirs in zip(second.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_early_stopping_ends_with_the_epoch(trainer: Make, alone: Alone) -> None:
    made = trainer(max_epochs=50, callbacks=[EarlyStopping("val_loss", min_delta=100.0, patience=2)])
    module = Net()
    made.fit(module, loader(), loader())
    assert (made.global_step, made.current_epoch) == (3 * STEPS, 3)
    assert [name for name, *_ in module.calls].count("epoch_end") == 3
    assert module.calls[-1][0] == "end"
    assert alone.state.stopped


class StopAt(Callback):
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step == STEPS + 1


def test_a_callback_can_stop_within_an_epoch(trainer: Make) -> None:
    made, module = trainer(max_epochs=50, callbacks=[StopAt()]), Net()
    made.fit(module, loader())
    assert made.global_step in (STEPS + 2, STEPS + 3)  # all workers learn of it with their next sums
    assert [name for name, *_ in module.calls][-2:] == ["epoch_end", "end"]


def test_a_stop_that_one_worker_wants_starts_no_validation(trainer: Make) -> None:
    steps: list[int] = []

    class Look(Callback):
        def on_validation_start(self, trainer: Any, *_: Any) -> None:
            steps.append(trainer.global_step)

    trainer(max_epochs=50, callbacks=[StopAt(), Look()], num_sanity_val_steps=0).fit(Net(), loader(), loader())
    assert steps in ([STEPS], [STEPS, 2 * STEPS])


def test_the_time_of_a_job_counts_once_in_each_worker() -> None:
    hours = [Timer("00:12:00:00") for _ in range(3)]
    for timer in hours[:2]:
        timer._start_time[RunningStage.TRAINING] = time.monotonic() - 7 * 3600
    for timer in hours[1:]:
        Callbacks(SimpleNamespace(callbacks=[timer])).load_state_dict(
            Callbacks(SimpleNamespace(callbacks=[hours[0]])).state_dict()
        )
    assert [round(timer.time_elapsed() / 3600) for timer in hours] == [7, 7, 7]


def test_the_worker_that_writes_shows_the_summary_of_the_model(trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(ModelSummary, "summarize", lambda *details, **_: shown.append(details))
    trainer(callbacks=[ModelSummary()], enable_model_summary=True).fit(Net(), loader())
    assert len(shown) == 1


def test_its_checkpoints_are_readable_by_lightning(trainer: Make, tmp_path: Path) -> None:
    keeper = ModelCheckpoint(tmp_path / "kept", save_top_k=1, save_last=True)
    module, made = Net(), trainer(callbacks=[keeper], enable_checkpointing=True)
    made.fit(module, loader(), loader())
    assert len(list((tmp_path / "kept").glob("epoch=*.ckpt"))) == 1
    last = Net.load_from_checkpoint(tmp_path / "kept" / "last.ckpt")
    for mine, theirs in zip(last.parameters(), module.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    goes_on, other = plain(max_epochs=EPOCHS + 1), Net()
    goes_on.fit(other, loader(), ckpt_path=tmp_path / "kept" / "last.ckpt", weights_only=False)
    assert goes_on.global_step == STEPS * (EPOCHS + 1)


def read(logger: CSVLogger) -> list[dict[str, str]]:
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_step_has_one_row_and_the_rehearsal_none(trainer: Make, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    made = trainer(logger=logger, log_every_n_steps=1, callbacks=[LearningRateMonitor("step")])
    made.fit(Net(), loader(), loader())
    assert Path(logger.log_dir).name == "j"  # the job
    rows = read(logger)
    assert [int(row["step"]) for row in rows if row["loss"]] == list(range(STEPS * EPOCHS))
    assert [int(row["step"]) for row in rows if row["lr-SGD"]] == list(range(STEPS * EPOCHS))
    assert [int(row["step"]) for row in rows if row["val_loss"]] == [STEPS * epoch - 1 for epoch in (1, 2, 3)]


def test_another_writer_keeps_the_rows_before_its_first(tmp_path: Path) -> None:
    first, second = CSVLogger(tmp_path, version="j"), CSVLogger(tmp_path, version="j")
    for step in range(4):
        first.log_metrics({"loss": step}, step)
    first.save()
    keep_rows(second, 3)
    second.log_metrics({"loss": 9, "more": 1}, 3)
    second.save()
    assert [(row["step"], row["loss"], row["more"]) for row in read(second)] == [
        *[("0", "0", ""), ("1", "1", ""), ("2", "2", "")],
        ("3", "9", "1"),
    ]


def test_lightning_does_not_handle_signals(trainer: Make) -> None:
    handlers: list[Any] = []

    class Look(Callback):
        def on_sanity_check_start(self, *_: Any) -> None:
            handlers.append(signal.getsignal(signal.SIGTERM))

        def on_train_batch_end(self, *_: Any) -> None:
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    trainer(callbacks=[Look()]).fit(Net(), loader(), loader())
    assert len(handlers) == 1 + STEPS * EPOCHS
    assert set(handlers) == {before}


def finished(alone: Alone, join: Callable[[], None], step: int) -> None:
    """Let others finish the job with that step while this worker joins."""
    joined = alone.join

    def finish() -> None:
        joined()
        join()
        alone.etcd.finish(json.dumps({"step": step, "accuracy": None}).encode())

    alone.join = finish  # type: ignore[method-assign]


def refused(made: lightning.Trainer, module: Net, path: Path) -> None:
    """Check that the worker ends as one of a finished job, and doesn't write its model."""
    with pytest.raises(SystemExit) as ended:
        made.fit(module, loader())
    assert ended.value.code == exit_codes.FINISHED
    made.save_checkpoint(path)
    assert not path.exists()


def test_a_worker_that_came_too_late_does_not_return(trainer: Make, alone: Alone, tmp_path: Path) -> None:
    module, made = Net(), trainer()
    finished(alone, lambda: None, STEPS * EPOCHS)
    refused(made, module, tmp_path / "final.ckpt")
    assert module.calls == []


class Behind(Callback):
    """Others finish the job while this worker is in the middle of an epoch."""

    def __init__(self, alone: Alone) -> None:
        self._alone = alone

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == STEPS + 1:
            etcd = self._alone.etcd
            etcd.finish(json.dumps({"step": STEPS * EPOCHS, "accuracy": None}).encode())
            etcd.view = replace(etcd.view, generation=replace(etcd.generation, number=2))


def test_nor_does_one_that_was_left_behind(trainer: Make, alone: Alone, tmp_path: Path) -> None:
    module = Net()
    refused(trainer(callbacks=[Behind(alone)]), module, tmp_path / "final.ckpt")
    assert "end" not in [name for name, *_ in module.calls]


def test_a_worker_that_got_only_the_final_model_returns_with_it(trainer: Make, alone: Alone) -> None:
    whole, late = Net(), Net()
    trainer().fit(whole, loader())
    tree = copy.deepcopy(alone.state.whole())
    made = trainer(enable_progress_bar=True)
    finished(alone, lambda: alone.state.load(tree), STEPS * EPOCHS)
    made.fit(late, loader())
    assert (made.global_step, made.current_epoch) == (STEPS * EPOCHS, EPOCHS)
    assert [name for name, *_ in late.calls] == ["start", "end"]
    for mine, theirs in zip(late.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)
