"""TorchX's scheduler for Ray says what is missing."""

from __future__ import annotations

import importlib.util

import pytest
from tidewater_torchx import ray


def test_without_ray_it_says_so_as_torchx_other_schedulers_do() -> None:
    assert importlib.util.find_spec("ray") is None
    with pytest.raises(ModuleNotFoundError, match="No module named 'ray'"):
        ray.create_scheduler("session")
