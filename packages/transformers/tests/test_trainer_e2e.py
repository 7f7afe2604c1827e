"""A Trainer in real processes with a real etcd: what it counts, what it learns, and what it writes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tidewater_transformers import arguments
from tidewater_transformers.course import epoch_after
from transformers import GPT2LMHeadModel

from packages.transformers.tests.script import SENTENCES, Sentences, pad, right, text_arguments, tiny
from tests.elastic.schedules.forked import Forked, Job
from tests.farm import Farm
from tidewater.contract import exit_codes
from tidewater.elastic.data.sampler import Cursor, plan

pytestmark = pytest.mark.e2e

EPOCHS = 5
EPOCH_STEPS = 6
STEPS = EPOCHS * EPOCH_STEPS
ARGUMENTS = {"num_train_epochs": EPOCHS, "eval_on_start": True}
FLAGS = ("--checkpoint-minutes", "0", "--lease-seconds", "3", "--min-step-seconds", "0.1")
NOISE = 1e-4
"""Of weights and losses: sums in another order, and nothing else."""


class Ordered(torch.utils.data.Sampler[int]):
    """The order of the runtime, for a plain Trainer."""

    def __init__(self, args: transformers.TrainingArguments) -> None:
        self._settings = arguments.settings(args, epochs=EPOCHS, max_steps=STEPS)
        self._cursor = Cursor()

    def __len__(self) -> int:
        return SENTENCES

    def __iter__(self) -> Iterator[int]:
        for _ in range(EPOCH_STEPS):
            batch, seed = self._settings["batch_size"], self._settings["seed"]
            step = plan(self._cursor, total=SENTENCES, batch_size=batch, seed=seed)
            self._cursor = step.after
            yield from step.samples


class Plain(transformers.Trainer):
    """The library's own Trainer, with the samples in the runtime's order."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Ordered:
        return Ordered(self.args)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """Return a plain Trainer after its training in this process."""
    data = {"train_dataset": Sentences(SENTENCES, 1), "eval_dataset": Sentences(9, 2)}
    args = text_arguments(tmp_path_factory.mktemp("plain"), ARGUMENTS)
    trainer = Plain(tiny(), args, pad, compute_metrics=right, **data)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def job(farm: Farm, etcd: str, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Return a job that has finished after a worker was killed, another one has joined, and one has left."""
    job = Job(farm, tmp_path_factory.mktemp("text"), etcd, *FLAGS)
    try:
        a, b = (job.start(name, "--min-workers", "2", script="text", arguments=ARGUMENTS) for name in "ab")
        reach(a, 4)
        b.signal(signal.SIGKILL)
        c = job.start("c", script="text", arguments=ARGUMENTS)
        reach(c, 1)
        reach(c, events(c)[-1]["step"] + 4)
        a.signal(signal.SIGTERM)
        assert a.wait() == exit_codes.LEFT, job.told()
        assert c.wait() == exit_codes.FINISHED, job.told()
    finally:
        job.kill()
    return job


def events(worker: Forked) -> list[dict[str, Any]]:
    path = worker.folder / "events"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def reach(worker: Forked, step: int) -> None:
    worker.wait_for(lambda each: any(seen["step"] >= step for seen in events(worker)))


def values(history: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the logs without what was measured by a clock, and without the sums at the end."""
    kept = [each for each in history if "train_loss" not in each]
    return [{name: value for name, value in each.items() if not name.endswith(CLOCKED)} for each in kept]


CLOCKED = ("_runtime", "_per_second", "_time")


def final_state(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job.folder / "out" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())
    return found


def test_its_state_is_that_of_a_plain_trainer(job: Job, plain: Plain) -> None:
    state = final_state(job)
    assert (state["global_step"], state["epoch"], state["max_steps"]) == (STEPS, EPOCHS, STEPS)
    mine, theirs = values(state["log_history"]), values(plain.state.log_history)
    assert [each.keys() for each in mine] == [each.keys() for each in theirs]
    for one, other in zip(mine, theirs, strict=True):
        assert one == pytest.approx(other, rel=NOISE, abs=NOISE)


def test_its_weights_are_those_of_a_plain_trainer_and_the_library_reads_them(job: Job, plain: Plain) -> None:
    for folder in ("out", f"out/checkpoint-{STEPS}"):
        loaded = GPT2LMHeadModel.from_pretrained(job.folder / folder)
        torch.testing.assert_close(
            dict(loaded.named_parameters()), dict(plain.model.named_parameters()), rtol=NOISE, atol=NOISE
        )


def test_a_plain_trainer_continues_from_a_checkpoint_of_it(job: Job, plain: Plain, tmp_path: Path) -> None:
    args = text_arguments(tmp_path, {**ARGUMENTS, "num_train_epochs": EPOCHS, "save_strategy": "no"})
    data = {"train_dataset": Sentences(SENTENCES, 1), "eval_dataset": Sentences(9, 2)}
    trainer = transformers.Trainer(tiny(), args, pad, compute_metrics=right, **data)
    trainer.train(resume_from_checkpoint=str(job.folder / "out" / f"checkpoint-{STEPS - EPOCH_STEPS}"))
    assert trainer.state.global_step == STEPS


def test_each_step_is_seen_once_by_each_worker_and_logged_by_one(job: Job) -> None:
    seen = [events(worker) for worker in job.workers]
    for each in seen:
        steps = [event["step"] for event in each if event["kind"] == "step_end"]
        assert steps == list(range(steps[0], steps[-1] + 1))
        assert [event["epoch"] for event in each if event["kind"] == "step_end"] == [
            epoch_after(step, batches=11, accumulated=2) for step in steps
        ]
        assert [event["kind"] for event in each].count("train_begin") == 1
    points = [
        event["step"]
        for each in seen
        for event in each
        if event["kind"] == "log" and event["writes"] and "loss" in event["logs"]
    ]
    assert sorted(set(points)) == list(range(2, STEPS + 1, 2))
    assert len(points) - len(set(points)) <= 1  # the worker that was killed may have logged the step just before
    ends = [event["kind"] for event in seen[-1]][-3:]
    assert ends == ["save", "log", "train_end"]


def test_it_saves_one_checkpoint_each_epoch_and_nothing_else(job: Job) -> None:
    out = job.folder / "out"
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(
        f"checkpoint-{epoch * EPOCH_STEPS}" for epoch in range(1, EPOCHS + 1)
    )
    assert (
        load_file(out / "model.safetensors").keys()
        == load_file(out / f"checkpoint-{STEPS}" / "model.safetensors").keys()
    )
