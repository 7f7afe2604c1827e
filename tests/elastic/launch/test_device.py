"""A worker computes on its GPU, and ends if that one can't be used, instead of training on the CPU or waiting."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from tests.elastic.group.faulty import ERRORS
from tests.elastic.launch.machines import NULL, device_node
from tidewater.elastic.errors import DeviceFailed
from tidewater.elastic.launch.device import own_device, start_device

GPU = torch.device("cuda", 0)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """Return a directory like /dev of a machine with a GPU, for a torch that is built for CUDA."""
    device_node(tmp_path / "nvidia0")
    return tmp_path


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Replace parts of CUDA; there is none here."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return monkeypatch


def forever(*_: object, **__: object) -> NoReturn:
    """A call of a driver that hangs."""
    threading.Event().wait()
    raise AssertionError


def test_a_machine_without_gpus_trains_on_the_cpu(tmp_path: Path, cuda: pytest.MonkeyPatch) -> None:
    assert own_device({}, nodes=tmp_path) == torch.device("cpu")


def test_a_gpu_that_cuda_can_use_is_used(dev: Path, cuda: pytest.MonkeyPatch) -> None:
    cuda.setattr(torch.cuda, "is_available", lambda: True)
    assert own_device({}, nodes=dev) == GPU


def test_a_gpu_that_cuda_can_not_use_is_an_error_with_its_reason(dev: Path, cuda: pytest.MonkeyPatch) -> None:
    def no_driver() -> NoReturn:
        raise RuntimeError("No CUDA GPUs are available\nsecond line")

    cuda.setattr(torch.cuda, "init", no_driver)
    with pytest.raises(DeviceFailed, match=r"\(No CUDA GPUs are available\). .* set CUDA_VISIBLE_DEVICES"):
        own_device({}, nodes=dev)


def test_the_cpu_can_be_chosen_on_a_machine_with_gpus(dev: Path, cuda: pytest.MonkeyPatch) -> None:
    assert own_device({"CUDA_VISIBLE_DEVICES": ""}, nodes=dev) == torch.device("cpu")


def test_a_device_node_that_only_looks_like_that_of_a_gpu_is_none(tmp_path: Path, cuda: pytest.MonkeyPatch) -> None:
    """The simulated hosts of the one-machine cloud have such ones."""
    device_node(tmp_path / "nvidia0", NULL)
    assert own_device({}, nodes=tmp_path) == torch.device("cpu")


def test_a_torch_without_cuda_trains_on_the_cpu(dev: Path, cuda: pytest.MonkeyPatch) -> None:
    cuda.setattr(torch.version, "cuda", None)
    assert own_device({}, nodes=dev) == torch.device("cpu")


def test_a_driver_that_never_answers_ends_the_worker(dev: Path, cuda: pytest.MonkeyPatch) -> None:
    cuda.setattr(torch.cuda, "is_available", forever)
    with pytest.raises(DeviceFailed, match="did not answer within"):
        own_device({}, nodes=dev, seconds=0.01)


def test_a_gpu_that_never_starts_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "zeros", forever)
    with pytest.raises(DeviceFailed, match="did not answer within"):
        start_device(GPU, seconds=0.01)
    start_device(torch.device("cpu"))


def test_an_error_of_the_gpu_at_its_start_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> NoReturn:
        raise ERRORS["device"]()

    monkeypatch.setattr(torch, "zeros", fails)
    with pytest.raises(torch.AcceleratorError):
        start_device(GPU)
