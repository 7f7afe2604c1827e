"""A loop of a script's own, in real processes with a real etcd, has the promises of ``tidewater.run``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils import _pytree as pytree

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.script import TOTAL
from tests.elastic.workers import Worker
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

CALM = (*COMMON, "--epochs", "3", "--checkpoint-minutes", "0", "--min-workers", "2", "--micro-batch", "2")


def final(job: Job) -> dict[str, bytes]:
    """Return the bits of the model and the optimizer in the final checkpoint."""
    newest, saved = max(job.checkpoints.glob("step-*")), job.folder / "saved.pt"
    dcp_to_torch_save(newest, saved)
    tree = torch.load(saved, weights_only=True)
    leaves = pytree.tree_flatten_with_path({name: tree[name] for name in ("model", "optimizers", "stateful")})[0]
    tensors = {pytree.keystr(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}
    assert len(tensors) > 10
    return {path: tensor.numpy().tobytes() for path, tensor in tensors.items()}


@pytest.mark.parametrize("amp", ["off", "bf16"])
def test_without_faults_its_weights_are_those_of_run_to_the_bit(
    amp: str, farm: Farm, etcd: str, tmp_path: Path
) -> None:
    states = []
    for kind in ("", "tensor", "function", "sums"):
        job = Job(farm, tmp_path / f"{kind or 'run'}-{amp}", etcd, *CALM, "--amp", amp)
        workers = [job.start(name, own_loop=kind, dropout=0.3) for name in "ab"]
        assert [worker.wait() for worker in workers] == [exit_codes.FINISHED] * 2, job.told()
        states.append(final(job))
        job.book.refresh()
        job.book.refresh()
        assert verdict(job.book, TOTAL) == []
    assert states.count(states[0]) == len(states)


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    job = Job(farm, tmp_path / "job", etcd, *COMMON, "--min-step-seconds", "0.01", "--lease-seconds", "3")
    yield job
    job.kill()


def test_an_exception_of_its_body_ends_this_worker_and_the_others_go_on(job: Job) -> None:
    a, b = job.start("a", own_loop="tensor"), job.start("b", own_loop="tensor", raises_at=40)
    assert b.wait() == exit_codes.FAILED
    assert "KeyError: 'label'" in b.text()
    a.wait_for_step(60)
    job.book.refresh()
    assert verdict(job.book, TOTAL) == [], job.told()
    assert a.poll() is None


def test_a_function_that_does_not_fit_is_called_with_smaller_micro_batches_by_all(job: Job) -> None:
    # 4 of 7 samples, the larger share of two workers, don't fit.
    a, b = job.start("a", own_loop="function", memory=2), job.start("b", own_loop="function")
    for worker in (a, b):
        worker.wait_for_step(30)
    job.book.refresh()
    assert verdict(job.book, TOTAL) == [], job.told()
    last = job.book.attempts[max(job.book.history())]
    assert all(len(attempt.samples) <= 2 for made in last.values() for attempt in made)


PROCESSES = """
import torch
import tidewater

config = tidewater.init()
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
data = torch.utils.data.TensorDataset(torch.randn(64, 2), torch.randn(64, 1))
with tidewater.session(
    config, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), dataset=data
) as run:
    for inputs, targets in run.batches():
        run.step(torch.nn.functional.mse_loss(model(inputs), targets))
        if any(report.world_size == 2 for report in run.reports()):
            run.stop("both have taken part")
print(f"process {config.local_rank} of {config.local_size} ends", flush=True)
raise SystemExit(run.exit_code)
"""


def test_with_processes_the_script_runs_in_each_of_them(start: Callable[..., Worker], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROCESSES)
    flags = ("--processes", "2", "--min-workers", "1", "--epochs", "1000000", "--min-step-seconds", "0.01")
    worker = start("a", *flags, python=(str(script),))
    assert worker.wait() == exit_codes.FINISHED, worker.text()
    assert sorted(re.findall(r"process \d of \d ends", worker.text())) == [
        "process 0 of 2 ends",
        "process 1 of 2 ends",
    ]
