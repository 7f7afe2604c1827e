"""A script with Accelerate keeps the promises of the runtime, in real processes with a real etcd."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.elastic.schedules.forked import Forked, Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import BATCH_SIZE, TOTAL
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

EPOCHS = 16
STEPS = EPOCHS * -(-TOTAL // BATCH_SIZE)
CHECKOUT = Path(__file__).parents[3]
HELD_OUT = 30
COMMON = ("--checkpoint-every", "10", "--lease-seconds", "3", "--heartbeat-seconds", "1")


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Yield a farm of workers that have imported Accelerate."""
    environment = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(CHECKOUT / "packages" / "accelerate" / "src")}
    with Farm("packages.accelerate.tests.zygote", tmp_path_factory.mktemp("farm"), environment) as farm:
        yield farm


def started(job: Job, name: str, *arguments: str) -> Forked:
    return job.start(name, *arguments, epochs=EPOCHS, output=str(job.folder / "out"))


def weights(job: Job) -> dict[str, torch.Tensor]:
    """Return the parameters that the script has saved. Its buffers depend on the number of workers."""
    saved = load_file(job.folder / "out" / "model.safetensors")
    return {name: value for name, value in saved.items() if not name.startswith("0.")}


@pytest.fixture(scope="module")
def undisturbed(farm: Farm, etcd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, torch.Tensor], str]:
    """Return the weights of a run of one worker, and its last line."""
    job = Job(farm, tmp_path_factory.mktemp("undisturbed") / "job", etcd, *COMMON)
    alone = started(job, "alone")
    assert alone.wait() == exit_codes.FINISHED, alone.text()
    return weights(job), last_line(alone)


def last_line(worker: Forked) -> str:
    lines = [line for line in worker.text().splitlines() if line.startswith("ended ")]
    assert lines, worker.text()
    return lines[-1]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_kill_a_join_and_a_leave_change_nothing_but_the_order_of_sums(
    seed: int, farm: Farm, etcd: str, tmp_path: Path, undisturbed: tuple[dict[str, torch.Tensor], str]
) -> None:
    chance = random.Random(f"accelerate {seed}")
    # With one worker training waits for the next one, so that the script's epochs are not over before.
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.04", "--min-workers", "2")
    workers = [started(job, name) for name in "ab"]
    job.wait_for_all()
    workers[0].wait_for_step(chance.randrange(6, 20))
    lost = workers.pop(chance.randrange(2))
    lost.signal(signal.SIGKILL)
    workers.append(started(job, "c"))
    job.wait_for_all()
    workers[0].wait_for_step(job.book.reached + chance.randrange(2, 12))
    left = workers.pop(chance.randrange(2))
    left.signal(signal.SIGTERM)
    assert left.wait() == exit_codes.LEFT, left.text()
    workers.append(started(job, "d"))
    codes = [worker.wait() for worker in workers]
    job.book.refresh()
    assert codes == [exit_codes.FINISHED] * 2, job.told()
    assert verdict(job.book, TOTAL) == [], job.told()

    expected, line = undisturbed
    assert f"steps={STEPS} counted={STEPS} " in line
    assert [last_line(worker) for worker in workers] == [line] * 2
    assert len(expected) == 4
    for name, value in weights(job).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
    evaluations = re.findall(r"evaluated=(\d+) steps=(\d+) counted=(\d+)", "".join(each.text() for each in job.workers))
    assert {int(seen) for seen, _, _ in evaluations} == {HELD_OUT}
    assert all(steps == counted for _, steps, counted in evaluations)
    assert {int(steps) for _, steps, _ in evaluations} <= set(range(0, STEPS + 1, STEPS // EPOCHS))
