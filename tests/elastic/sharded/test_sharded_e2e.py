"""Workers of several processes that divide a transformer: it learns what a whole one learns, through every loss."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.elastic.sharded.script import BATCH, SAMPLES, Sentences
from tests.elastic.workers import Worker
from tests.farm import Farm
from tests.programs import Forked
from tidewater.contract import exit_codes
from tidewater.elastic.checkpoint import format as dcp
from tidewater.elastic.data.sampler import Cursor, Step, plan

pytestmark = pytest.mark.e2e

EPOCHS = 6
STEPS = EPOCHS * -(-SAMPLES // BATCH)
TOLERANCE = 2e-5
"""Between weights of about 1 that were learned in parts and as a whole: the order of sums differs."""
MIXED_TOLERANCE = 2e-2
"""The same where bfloat16, which has 8 bits, is used in the passes: its rounding moves each step."""
SCORE_TOLERANCE = 2e-4
"""Of scores between 1 and 5, which the log has with four digits."""
SCRIPT = ("-m", "tests.elastic.sharded.script")
PATIENT = ("--heartbeat-seconds", "10", "--peer-timeout-seconds", "30")
"""Flags of a job in which nothing is silent but for want of the machine's time."""


class Whole(NamedTuple):
    """What one worker with the whole model learns, undisturbed."""

    learned: dict[str, torch.Tensor]
    scores: dict[int, float]
    """By the number of epochs before."""


class Job:
    """A job of workers that divide a model."""

    def __init__(self, start: Callable[..., Worker], folder: Path, whole: Whole) -> None:
        self._start, self.folder, self.whole = start, folder, whole
        self.ledger = folder / "ledger"
        self.ledger.mkdir()

    def start(self, name: str, shard: int = 2, *more: str, pause: float = 0.05, forked: bool = True) -> Worker:
        """Start a worker; with ``shard`` 0 it has the whole model."""
        flags = [
            "--ledger",
            str(self.ledger),
            "--batch-size",
            str(BATCH),
            "--epochs",
            str(EPOCHS),
            "--compare-every",
            "5",
        ]
        flags += ["--min-step-seconds", str(pause), "--lease-seconds", "3", "--checkpoint-minutes", "0"]
        if shard:
            flags += ["--divide", "--processes", str(shard), "--shard", str(shard)]
        return self._start(name, *flags, *more, python=SCRIPT, forked=forked)

    def together(self, *more: str) -> tuple[Worker, Worker]:
        """Start a job that may go on with one worker, and return its two workers when both train."""
        a, b = (self.start(name, 2, "--hold-at", "2", *more) for name in "ab")
        for worker in (a, b):
            worker.wait_for(lambda worker: len(worker.events("prepared")) == 2)
        (self.ledger / "go").touch()
        a.wait_for_world(2)
        return a, b

    def learned(self, tolerance: float = TOLERANCE) -> list[str]:
        """Return how the final checkpoint, which has whole tensors, differs from what an undivided model learns."""
        mine, theirs = saved(self.folder / "checkpoints"), self.whole.learned
        assert mine.keys() == theirs.keys()
        assert sum(float(each.abs().max()) > 0.1 for each in mine.values()) > 10
        return [
            f"{name}: {float((mine[name] - each).abs().max())}"
            for name, each in theirs.items()
            if not torch.allclose(mine[name], each, rtol=0, atol=tolerance)
        ]

    def lines(self) -> list[list[Any]]:
        """Return the reports of all processes."""
        return [json.loads(line) for file in self.ledger.glob("*.jsonl") for line in file.read_text().splitlines()]


def shuffled(cursor: Cursor) -> Step:
    """Return the step of a dataset with an index at this place."""
    return plan(cursor, total=SAMPLES, batch_size=BATCH, seed=0)


def streamed(cursor: Cursor) -> Step:
    """Return the step of a stream."""
    first, last = cursor.offset, min(cursor.offset + BATCH, SAMPLES)
    return Step(tuple(range(first, last)), Cursor(cursor.epoch, last) if last < SAMPLES else Cursor(cursor.epoch + 1))


def verdict(
    lines: list[list[Any]], shards: Callable[[int], int], planned: Callable[[Cursor], Step] = shuffled
) -> list[str]:
    """Return what is wrong with the samples of the final steps. ``shards`` returns P in a generation."""
    problems, cursor = [], Cursor()
    for number in range(1, STEPS + 1):
        step, cursor = (made := planned(cursor)), made.after
        mine = [line for line in lines if line[0] == number and line[3] >= 0]
        found = [(line[1], line[2], line[6]) for line in mine]
        if len(set(found)) != 1:
            problems.append(f"step {number} has the generations, sizes and losses {found}")
        for _, generation, size, rank, index, samples, *_ in mine:
            each = shards(generation)
            if tuple(samples) != step.share(rank * each + index, size * each):
                problems.append(f"rank {rank}.{index} of {size} used {samples} in step {number}")
        if len([line for line in mine if line[7]]) > 1:
            problems.append(f"several processes write step {number}")
    return problems if cursor.epoch == EPOCHS else [*problems, f"the steps end at {cursor}"]


@pytest.fixture
def job(start: Callable[..., Worker], tmp_path: Path, whole: Whole) -> Job:
    return Job(start, tmp_path, whole)


@pytest.fixture(scope="module")
def whole(etcd: str, farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(etcd, farm, tmp_path_factory.mktemp("whole"))


def undisturbed(etcd: str, farm: Farm, folder: Path, *more: str) -> Whole:
    """Train one worker with the whole model."""
    flags = ["--job", folder.name, "--worker", "whole", "--etcd", etcd, "--host", "127.0.0.1", "--ledger", str(folder)]
    flags += ["--checkpoints", str(folder), "--batch-size", str(BATCH), "--epochs", str(EPOCHS)]
    flags += ["--validates", "--evaluate-every", "1"]
    worker = Forked(farm, "whole", [*SCRIPT, *flags, *more], folder / "log")
    assert worker.wait() == exit_codes.FINISHED, worker.account()
    scores = {int(line["epoch"]): float(line["accuracy"]) for line in worker.events("evaluated")}
    assert len(set(scores.values())) == EPOCHS, scores
    return Whole(saved(folder), scores)


def saved(place: Path) -> dict[str, torch.Tensor]:
    """Return the model in the final checkpoint."""
    tree = dcp.read(max(place.glob("step-*")))
    assert tree["step"] == STEPS
    model: dict[str, torch.Tensor] = tree["model"]
    return model


def pid(worker: Worker, process: str) -> int:
    """Return the id of the newest process of that name."""
    return [int(line["pid"]) for line in worker.events("started") if line["worker"] == process][-1]


def finished(*workers: Worker) -> list[int]:
    """Wait for the end. Return how many different states the counterparts of each process have then."""
    states: dict[str, set[str]] = {}
    for worker in workers:
        assert worker.wait() == exit_codes.FINISHED, worker.account()
        for line in worker.events("finished"):
            states.setdefault(line["worker"].partition(".")[2], set()).add(line["state"])
    return [len(each) for each in states.values()]


def test_a_lost_process_is_the_loss_of_its_worker_and_the_others_go_on(job: Job) -> None:
    a, b = job.together()
    os.kill(pid(b, "b.1"), signal.SIGKILL)
    a.wait_for(lambda a: len(a.events("recovered")) == 2)
    assert finished(a) == [1, 1]
    assert b.wait() == exit_codes.FINISHED  # it may have come back too late to take part
    assert verdict(job.lines(), lambda _: 2) == []
    assert job.learned() == []


@pytest.mark.parametrize("loop", ["run", "own"])
def test_a_lost_process_comes_back_with_its_whole_worker_and_validations_find_what_a_whole_model_does(
    loop: str, job: Job
) -> None:
    flags = ["--min-workers", "2", "--loop", loop, "--micro-batch", "1", "--validates"]
    flags += ["--evaluate-every", "1"] if loop == "run" else []
    a, b = job.start("a", 2, *flags), job.start("b", 2, *flags)
    a.wait_for_world(2)
    victims = {name: pid(b, name) for name in ("b", "b.1")}
    os.kill(victims["b.1"], signal.SIGKILL)
    b.wait_for(lambda b: len(b.events("state_synced")) >= 2 and len(b.events("started")) == 4)
    assert {name: pid(b, name) != old for name, old in victims.items()} == {"b": True, "b.1": True}
    assert finished(a, b) == [1, 1]
    assert verdict(job.lines(), lambda _: 2) == []
    assert job.learned() == []
    found = [line for worker in (a, b) for line in worker.events("evaluated")]
    assert {int(line["epoch"]) for line in found} == set(range(1, EPOCHS + 1))
    for line in found:
        assert float(line["accuracy"]) == pytest.approx(job.whole.scores[int(line["epoch"])], abs=SCORE_TOLERANCE)
    if loop == "run":
        assert not any("." in line["worker"] for line in found)
        assert any("score" in line for worker in (a, b) for line in worker.events("checkpoint_saved"))
    else:
        total = sum(int(Sentences()[index][0]) for index in range(SAMPLES))
        assert {(float(line["first"]), int(line["count"])) for line in found} == {(total, SAMPLES)}
        assert {line["worker"] for line in found} == {"a", "a.1", "b", "b.1"}


@pytest.mark.parametrize(("fits", "loop"), [("0:1", "run"), ("10:1", "run"), ("10:1", "own")])
def test_a_process_with_too_little_memory_starts_again_with_its_worker_and_smaller_micro_batches(
    fits: str, loop: str, job: Job
) -> None:
    flags = ["--min-workers", "2", "--fits", fits, "--loop", loop, "--max-steps", "30"]
    a, b = job.start("a", 2, *flags), job.start("b", 2, *flags)
    assert finished(a, b) == [1, 1]
    short = b.events("out_of_memory")
    assert {line["worker"] for line in short} == {"b.1"}
    assert [int(line["micro_batch"]) for line in short] == [1]
    assert len(b.events("started")) == 4
    assert a.events("out_of_memory") == []
    assert sorted({line[0] for line in job.lines()}) == list(range(1, 31))


def test_a_worker_with_rank_0_is_lost_as_a_whole_and_one_in_line_takes_its_place(job: Job) -> None:
    first = job.start("first", 2, "--max-workers", "2", "--min-workers", "2")
    first.wait_for(lambda worker: worker.events("joined"))
    rest = [job.start(name, 2, "--max-workers", "2", "--min-workers", "2") for name in "bc"]
    for worker in rest:
        worker.wait_for(lambda worker: worker.events("joined") or worker.events("waiting"))
    first.wait_for_world(2)
    assert {line["rank"] for line in first.steps()} == {"0"}
    first.signal(signal.SIGKILL)
    assert finished(*rest) == [1, 1]
    assert all(len(worker.events("state_synced")) >= 2 for worker in rest)
    assert verdict(job.lines(), lambda _: 2) == []
    assert job.learned() == []


def test_a_frozen_process_costs_its_worker_its_place_until_it_thaws(job: Job) -> None:
    a, b = job.start("a", 2, "--min-workers", "2"), job.start("b", 2, "--min-workers", "2")
    a.wait_for_world(2)
    victim = pid(b, "b.1")
    os.kill(victim, signal.SIGSTOP)
    a.wait_for(lambda a: a.events("peer_silent") and a.events("peer_lost"))
    os.kill(victim, signal.SIGCONT)
    assert finished(a, b) == [1, 1]
    assert pid(b, "b.1") == victim
    assert verdict(job.lines(), lambda _: 2) == []
    assert job.learned() == []


def test_a_worker_leaves_without_a_lost_step(job: Job) -> None:
    a, b = job.together(*PATIENT)
    b.signal(signal.SIGTERM)
    assert b.wait() == exit_codes.LEFT
    assert a.events("step_discarded") == b.events("step_discarded") == []
    assert finished(a) == [1, 1]
    assert verdict(job.lines(), lambda _: 2) == []


def test_a_job_continues_with_another_number_of_processes_and_with_the_whole_model(job: Job) -> None:
    reached, generations = 0, dict[int, int]()
    for number, shard in enumerate((2, 3, 1, 0)):
        worker = job.start(f"w{number}", shard)
        worker.wait_for(lambda worker: len(worker.steps()) > 6)
        generations[number + 1] = max(1, shard)
        if shard:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == exit_codes.LEFT, worker.account()
        assert int(worker.steps()[0]["step"]) == reached + 1
        reached = int(worker.steps()[-1]["step"])
    assert worker.wait() == exit_codes.FINISHED
    lines = job.lines()
    seen = sorted({line[1] for line in lines})
    assert verdict(lines, lambda generation: [2, 3, 1, 1][seen.index(generation)]) == []
    assert job.learned() == []


def test_a_job_that_loses_all_workers_continues_from_its_last_checkpoint(job: Job) -> None:
    workers = [job.start(name, 2, "--min-workers", "2", "--checkpoint-every", "4") for name in "ab"]
    saver = []
    for worker in workers:
        worker.wait_for(lambda _: any(each.events("checkpoint_saved") for each in workers))
    for worker in workers:
        worker.signal(signal.SIGKILL)
        saver += worker.events("checkpoint_saved")
    last = job.start("last", 3)
    assert finished(last) == [1, 1, 1]
    (loaded,) = {line["step"] for line in last.events("checkpoint_loaded")}
    assert int(loaded) % 4 == 0
    assert int(loaded) >= int(saver[0]["step"])
    assert job.learned() == []


@pytest.mark.parametrize(
    ("flags", "tolerance"),
    [
        (("--style", "mixed"), MIXED_TOLERANCE),
        (("--style", "recomputed"), TOLERANCE),
        (("--style", "compiled"), TOLERANCE),
        (("--sum-dtype", "bf16"), MIXED_TOLERANCE),
    ],
)
def test_a_model_of_another_precision_or_that_is_recomputed_or_compiled_goes_on_and_is_continued_as_it_is(
    flags: tuple[str, ...], tolerance: float, job: Job
) -> None:
    a, b = job.together(*flags)
    a.wait_for(lambda a: len(a.steps()) > 6)
    b.signal(signal.SIGKILL)
    a.wait_for_world(1)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT, a.account()
    last = job.start("last", 0)  # an undivided model in float32, of plain layers
    assert last.wait() == exit_codes.FINISHED, last.account()
    seen = sorted({line[1] for line in job.lines()})
    assert verdict(job.lines(), lambda generation: 1 if generation == seen[-1] else 2) == []
    assert job.learned(tolerance) == []


def test_an_optimizer_that_evaluates_other_values_than_it_trains_goes_on_with_both(
    job: Job, etcd: str, farm: Farm, tmp_path: Path
) -> None:
    (folder := tmp_path / "whole-averages").mkdir()
    job.whole = undisturbed(etcd, farm, folder, "--style", "averaging")
    a, b = job.together("--style", "averaging", "--validates", "--evaluate-every", "1")
    a.wait_for(lambda a: len(a.steps()) > 6)
    b.signal(signal.SIGKILL)
    a.wait_for_world(1)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT, a.account()
    last = job.start("last", 3, "--style", "averaging", "--validates", "--evaluate-every", "1")
    assert finished(last) == [1, 1, 1]
    assert job.learned() == []
    for line in (*a.events("evaluated"), *last.events("evaluated")):
        assert float(line["accuracy"]) == pytest.approx(job.whole.scores[int(line["epoch"])], abs=SCORE_TOLERANCE)


def test_processes_that_prepare_data_do_so_for_a_divided_model(job: Job) -> None:
    a, b = job.together("--data-workers", "1")
    a.wait_for(lambda a: len(a.steps()) > 6)
    b.signal(signal.SIGKILL)
    assert finished(a) == [1, 1]
    assert verdict(job.lines(), lambda _: 2) == []
    assert job.learned() == []


def test_a_stream_is_read_by_all_processes_and_each_sample_used_once(
    job: Job, etcd: str, farm: Farm, tmp_path: Path
) -> None:
    (folder := tmp_path / "whole-stream").mkdir()
    job.whole = undisturbed(etcd, farm, folder, "--stream")
    a, b = job.together("--stream")
    a.wait_for(lambda a: len(a.steps()) > 6)
    b.signal(signal.SIGKILL)
    a.wait_for_world(1)
    a.signal(signal.SIGTERM)
    assert a.wait() == exit_codes.LEFT, a.account()
    last = job.start("last", 3, "--stream")
    assert finished(last) == [1, 1, 1]
    seen = sorted({line[1] for line in job.lines()})
    assert verdict(job.lines(), lambda generation: 3 if generation == seen[-1] else 2, streamed) == []
    assert job.learned() == []


def test_a_process_with_another_state_than_its_counterparts_gets_theirs(job: Job) -> None:
    workers = [job.start(name, 2, "--min-workers", "3", "--drift-at", "7", pause=0.0) for name in "abc"]
    assert finished(*workers) == [1, 1]
    drifted = [line for worker in workers for line in worker.events("drifted")]
    assert {line["majority"] for line in drifted} == {"true"}
    assert len({line["workers"] for line in drifted}) == 1
    assert len(drifted) == 6


def test_processes_without_samples_take_part(job: Job) -> None:
    workers = [job.start(name, 3, "--min-workers", "2", pause=0.0) for name in "ab"]
    assert [worker.wait() for worker in workers] == [exit_codes.FINISHED] * 2
    assert verdict(job.lines(), lambda _: 3) == []
    assert [] in [line[5] for line in job.lines() if line[3] >= 0]
    assert job.learned() == []


def test_a_process_with_a_constant_loss_takes_part_in_the_passes(job: Job) -> None:
    worker = job.start("a", 2, "--constant-at", "7", "--max-steps", "8", pause=0.0, forked=False)
    assert worker.wait() == exit_codes.FINISHED, worker.account()
    assert sorted({line[0] for line in job.lines()}) == list(range(1, 9))


def test_a_model_that_is_not_divided_is_refused(job: Job) -> None:
    worker = job.start("a", 0, "--processes", "2", "--shard", "2")
    assert worker.wait() == exit_codes.USAGE
    assert "--shard is 2, and no layer of the training's model is divided with fully_shard" in worker.text()
    assert "event=process_lost" not in worker.text()
