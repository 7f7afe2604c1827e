"""Scripts with Accelerate in this process, as a worker alone."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from tidewater_accelerate import Accelerator

from tests.elastic.conftest import etcd
from tests.elastic.script.conftest import Alone, alone
from tidewater.contract import env

__all__ = ["alone", "etcd"]


@pytest.fixture
def begin(alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Accelerator]]:
    """Return what makes an accelerator, with the runtime's flags and its own arguments."""
    for name, value in {
        env.JOB: "j",
        env.ETCD: "http://e:2379",
        env.CHECKPOINTS: str(tmp_path / "checkpoints"),
    }.items():
        monkeypatch.setenv(name, value)

    def begin(*flags: str, **arguments: object) -> Accelerator:
        common = ("--threads", str(torch.get_num_threads()), "--checkpoint-minutes", "0")
        monkeypatch.setattr(sys, "argv", ["script.py", *common, *flags])
        made.append(Accelerator(**arguments))
        return made[-1]

    made: list[Accelerator] = []
    yield begin
    for each in made:  # not all tests end training
        atexit.unregister(each.job._close)
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
