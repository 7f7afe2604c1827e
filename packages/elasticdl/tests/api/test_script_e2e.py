"""The example script in real processes, with a master and a real etcd."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from examples.elasticdl import digits_script
from packages.elasticdl.tests.api.jobs import KILLED, Job, Process
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

SCRIPT = ("-m", "examples.elasticdl.digits_script")
WHOLE = 16 * 4


def ends(worker: Process) -> tuple[float, int, str]:
    """Return accuracy, number of updates and digest of the model."""
    found = re.search(r"accuracy=([\d.]+) updates=(\d+) model=(\w+)", worker.text())
    assert found, worker.text()
    return float(found[1]), int(found[2]), found[3]


def records_of(*workers: Process) -> list[int]:
    """Return the records of each update, in the order of steps: one worker may make the first ones alone."""
    found = {update.step: update.records for worker in workers for update in worker.updates()}
    return [found[step] for step in sorted(found)]


@pytest.mark.parametrize("more", [(), ("--loader-workers", "1")], ids=["alone", "processes-that-read-in-advance"])
def test_two_workers_train_one_model_in_global_batches_of_one_size(
    farm: Farm, tmp_path: Path, etcd: str, digits: Path, more: tuple[str, ...]
) -> None:
    flags = {"num_workers": 4, "minibatch_size": 16, "num_minibatches_per_task": 4, "num_epochs": 3}
    with Job(farm, tmp_path, etcd, [*SCRIPT, "--data", str(digits), *more], least=2, **flags) as job:
        workers = job.start(), job.start()
        job.wait_for(lambda: all(worker.poll() == 0 for worker in workers))
        assert job.master.wait() == exit_codes.FINISHED, job.told()
    records = len(digits_script.ImageFolder(digits / "train"))
    one, other = (ends(worker) for worker in workers)
    assert one == other
    assert one[0] > 0.85
    told = records_of(*workers)
    assert sum(told) == 3 * records
    assert told[:-2] == [WHOLE] * (len(told) - 2)
    tasks = sorted(shard for worker in workers for shard in worker.shards())
    assert tasks == list(range(1, 1 + 3 * -(-records // 64)))


def test_one_worker_trains_as_torch_alone_to_the_bit(farm: Farm, tmp_path: Path, etcd: str, digits: Path) -> None:
    size = 103
    flags = {"num_workers": 1, "minibatch_size": size, "num_minibatches_per_task": 100, "num_epochs": 2}
    script = [*SCRIPT, "--data", str(digits), "--in-order", "--out", str(tmp_path / "model.pt")]
    with Job(farm, tmp_path, etcd, script, **flags) as job:
        worker = job.start()
        assert worker.wait() == 0, job.told()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, data = digits_script.network(), digits_script.ImageFolder(digits / "train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    assert len(data) % size == 0
    for _ in range(2):
        for images, labels in torch.utils.data.DataLoader(data, batch_size=size):
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
    found = torch.load(tmp_path / "model.pt")
    updates = 2 * len(data) // size
    assert ends(worker)[1] == updates
    steps = [int(step) for step in re.findall(r"Loss: [\d.e-]+ step=(\d+)", worker.text())]
    assert steps == [0, updates - 1], "of the first minibatch and of the rest"
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


def test_a_worker_leaves_after_sigterm_and_its_shards_go_to_the_other(
    farm: Farm, tmp_path: Path, etcd: str, digits: Path
) -> None:
    flags = {"num_workers": 2, "minibatch_size": 16, "num_minibatches_per_task": 4, "num_epochs": 6}
    script = [*SCRIPT, "--data", str(digits), "--pause", "0.02"]
    with Job(farm, tmp_path, etcd, script, **flags) as job:
        first, second = job.start(), job.start()
        job.wait_for(lambda: any(update.workers == 2 for update in second.updates()[3:]))
        second.signal(signal.SIGTERM)
        assert second.wait() == exit_codes.LEFT, job.told()
        assert first.wait() == 0, job.told()
        assert job.master.wait() == exit_codes.FINISHED, job.told()
    assert first.updates()[-1].workers == 1


def test_a_master_that_is_killed_comes_back_and_no_shard_is_done_twice(
    farm: Farm, tmp_path: Path, etcd: str, digits: Path
) -> None:
    flags = {"num_workers": 2, "minibatch_size": 16, "num_minibatches_per_task": 2, "num_epochs": 4}
    with Job(farm, tmp_path, etcd, [*SCRIPT, "--data", str(digits), "--pause", "0.02"], **flags) as job:
        workers = job.start(), job.start()
        job.wait_for(lambda: len(workers[0].shards()) > 5)
        job.master.signal(signal.SIGKILL)
        assert job.master.wait() == KILLED
        job.start_master()
        job.wait_for(lambda: all(worker.poll() == 0 for worker in workers))
        assert job.master.wait() == exit_codes.FINISHED, job.told()
    assert ends(workers[0]) == ends(workers[1])
    records = len(digits_script.ImageFolder(digits / "train"))
    told = records_of(*workers)
    assert sum(told) == 4 * records
    assert job.tasks() == 4 * -(-records // 32)


def test_when_all_workers_were_lost_the_model_comes_from_the_last_checkpoint(
    farm: Farm, tmp_path: Path, etcd: str, digits: Path
) -> None:
    flags = {"num_workers": 1, "minibatch_size": 16, "num_minibatches_per_task": 2, "num_epochs": 2}
    kept: dict[str, Any] = {"checkpoint_steps": 10, "checkpoint_dir": str(tmp_path / "checkpoints")}
    with Job(farm, tmp_path, etcd, [*SCRIPT, "--data", str(digits), "--pause", "0.02"], **flags, **kept) as job:
        first = job.start()
        job.wait_for(lambda: "event=checkpoint_saved step=20" in first.text())
        first.signal(signal.SIGKILL)
        assert first.wait() == KILLED
        second = job.start()
        assert second.wait() == 0, job.told()
    assert "event=checkpoint_loaded" in second.text()
    assert second.updates()[0].step > 20
    assert ends(second)[0] > 0.8
