"""The compared systems do the same work, and the stand-in for an accelerator takes time for samples, not for steps."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.elastic.systems import ROOT, SYSTEMS
from benchmarks.elastic.workers import names, task

MEGABYTE = 1 << 20
KIND = """
import torch
from benchmarks.gpu.one_rank import kind_of, opened
for kind in ("reconfigured", "restarted"):
    group = opened(torch.device("cpu"), kind)
    print(kind_of(group))
    group.close()
"""


def test_half_of_the_batch_takes_an_accelerator_twice_as_long_as_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.DEVICE_SECONDS, "0.3")
    whole = names.GLOBAL_BATCH
    assert task.device_seconds(whole // 2) == 2 * task.device_seconds(whole // 4)
    assert task.device_seconds(whole) == 0.3


def test_the_large_model_has_gradients_of_several_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(names.MODEL, names.LARGE)
    sizes = [4 * parameter.numel() / MEGABYTE for parameter in task.model().parameters()]
    assert sum(sizes) > 100
    assert max(sizes) < 25  # otherwise one parameter would be one bucket


def test_on_an_older_torch_the_trainer_makes_new_groups() -> None:
    done = subprocess.run([sys.executable, "-c", KIND], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip().split() == ["reconfigured", "restarted"]


def test_every_system_names_the_time_outs_of_its_column() -> None:
    assert all("heartbeat" in system.timeouts and "gloo" in system.timeouts for system in SYSTEMS.values())
    assert SYSTEMS["tidewater"].timeouts["lease"] == "10 s"
    assert SYSTEMS["torchft"].timeouts["heartbeat"] == "5 s"
