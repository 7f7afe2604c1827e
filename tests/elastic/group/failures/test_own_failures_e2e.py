"""A worker that fails for a cause of its own ends, and says why; the others train on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.elastic.group.faulty import PLACES
from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Forked, Job
from tests.farm import Farm
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e


def made(farm: Farm, folder: Path, etcd: str) -> Iterator[Job]:
    job = Job(farm, folder / "job", etcd, *COMMON, "--min-step-seconds", "0.02")
    yield job
    job.kill()


@pytest.fixture
def job(farm: Farm, tmp_path: Path, etcd: str) -> Iterator[Job]:
    yield from made(farm, tmp_path, etcd)


@pytest.fixture(scope="module")
def shared(farm: Farm, tmp_path_factory: pytest.TempPathFactory, etcd: str) -> Iterator[Job]:
    """A job in which one worker after the other fails."""
    yield from made(farm, tmp_path_factory.mktemp("shared"), etcd)


@pytest.fixture
def healthy(shared: Job) -> Forked:
    """Return the worker of the shared job that trains on, alone before each test."""
    worker = shared.living[0] if shared.living else shared.start("healthy")
    worker.wait_for(lambda each: each.last is not None and each.last.step >= 5 and each.last.size == 1)
    return worker


def goes_on(worker: Forked) -> None:
    assert worker.last is not None
    worker.wait_for_step(worker.last.step + 5)


@pytest.mark.parametrize("place", sorted(PLACES.keys() - {"send"}))
def test_a_worker_ends_at_once_when_its_gpu_fails_and_the_others_train_on(
    shared: Job, healthy: Forked, place: str
) -> None:
    failed = shared.start("failed", fault=("device", place))
    assert failed.wait() == exit_codes.DEVICE_FAILED, shared.told()
    assert "this process can't use its GPU any more, and ends: CUDA error: an illegal memory access" in failed.text()
    assert len(failed.events("joined")) == 1
    goes_on(healthy)


@pytest.mark.parametrize("place", ["forward", "apply", "score"])
def test_a_gpu_that_fails_in_a_library_with_an_error_of_its_own_ends_the_worker_too(
    shared: Job, healthy: Forked, place: str
) -> None:
    failed = shared.start("failed", fault=("library", place))
    assert failed.wait() == exit_codes.DEVICE_FAILED, shared.told()
    (event,) = failed.events("device_failed")
    assert event["reason"] == "CUDA error: an illegal memory access was encountered"
    assert "CUBLAS_STATUS_EXECUTION_FAILED" in failed.text()
    goes_on(healthy)


def test_a_newcomer_without_memory_for_the_state_ends_with_that_error_and_the_others_train_on(
    shared: Job, healthy: Forked
) -> None:
    newcomer = shared.start("newcomer", fault=("memory", "fetch"))
    assert newcomer.wait() == exit_codes.FAILED, shared.told()
    assert "AcceleratorError: CUDA error: out of memory" in newcomer.text()
    assert len(newcomer.events("joined")) == 1
    goes_on(healthy)


@pytest.mark.parametrize("error", ["memory", pytest.param("local", marks=pytest.mark.soak)])
def test_a_worker_that_can_not_hand_its_state_over_trains_on_without_the_newcomer(job: Job, error: str) -> None:
    alone = job.start("alone", fault=(error, "send"))
    alone.wait_for_step(5)
    newcomer = job.start("newcomer")
    newcomer.wait_for(lambda worker: worker.events("unconnected") or alone.poll() is not None)
    assert alone.poll() is None, job.told()
    assert newcomer.wait() == exit_codes.UNCONNECTED, job.told()
    assert "the state could not be handed over" in alone.text()
    goes_on(alone)


def test_a_gpu_that_fails_while_it_sends_the_state_ends_its_worker_and_a_newcomer_trains_on(job: Job) -> None:
    alone = job.start("alone", "--checkpoint-every", "5", fault=("device", "send"))
    alone.wait_for_step(15)
    newcomer = job.start("newcomer")
    assert alone.wait() == exit_codes.DEVICE_FAILED, job.told()
    newcomer.wait_for(lambda worker: worker.last is not None)
    goes_on(newcomer)


@pytest.mark.parametrize("place", ["prepare", "connect", "begin", "finish"])
def test_a_newcomer_without_memory_for_a_group_leaves_and_says_why(shared: Job, healthy: Forked, place: str) -> None:
    newcomer = shared.start("newcomer", fault=("memory", place))
    assert newcomer.wait() == exit_codes.UNCONNECTED, shared.told()
    (event,) = newcomer.events("unconnected")
    assert "CUDA error: out of memory" in event["reason"]
    goes_on(healthy)


@pytest.mark.parametrize("place", ["connect", "begin", "finish"])
def test_a_newcomer_that_fails_for_a_cause_of_its_own_leaves_and_says_why(
    shared: Job, healthy: Forked, place: str
) -> None:
    newcomer = shared.start("newcomer", fault=("local", place))
    assert newcomer.wait() == exit_codes.UNCONNECTED, shared.told()
    (event,) = newcomer.events("unconnected")
    assert "3 groups in a row failed for a cause in this process" in event["reason"]
    assert "ncclSystemError" in event["reason"]
    goes_on(healthy)


def test_of_workers_that_blame_each_other_the_youngest_leaves_and_says_why(shared: Job, healthy: Forked) -> None:
    newcomer = shared.start("newcomer", fault=("peer", "finish"))
    assert newcomer.wait() == exit_codes.UNCONNECTED, shared.told()
    (event,) = newcomer.events("unconnected")
    assert "with this worker several groups in a row broke before they made a step" in event["reason"]
    goes_on(healthy)


def test_a_worker_that_has_the_state_and_can_connect_with_no_other_saves_it_before_it_leaves(job: Job) -> None:
    alone = job.start("alone", fault=("local", "connect"))
    alone.wait_for_step(15)
    newcomer = job.start("newcomer")
    assert alone.wait() == exit_codes.UNCONNECTED, job.told()
    newcomer.wait_for(lambda worker: worker.last is not None)
    (left,), (loaded,) = alone.events("left"), newcomer.events("checkpoint_loaded")
    assert loaded["step"] == left["step"]


@pytest.mark.parametrize("place", ["connect", "begin", "finish"])
def test_a_worker_that_can_not_even_sum_alone_ends_before_it_joins_and_says_why(
    shared: Job, healthy: Forked, place: str
) -> None:
    broken = shared.start("broken", fault=("local", place), fails_alone=True)
    assert broken.wait() == exit_codes.UNCONNECTED, shared.told()
    (event,) = broken.events("unconnected")
    assert "a group of this worker alone failed" in event["reason"]
    assert "ncclSystemError" in event["reason"]
    assert not broken.events("joined")
    goes_on(healthy)
