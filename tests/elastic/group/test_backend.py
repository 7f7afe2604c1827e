"""Whether a group can be given new peers: torch says so by what it registers as "nccl", not by its version."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from torch.distributed import distributed_c10d as c10d

from tidewater.elastic.group import backend

SCRIPT = "from tidewater.elastic.group import backend as b; print(b.can_reconfigure('nccl'), b.can_reconfigure('gloo'))"

MADE = """
import os, torch
from tidewater.elastic.group import nccl
made = nccl.Reconfigured(torch.device("cuda", 0), 30.0)
given = made.pg._get_backend(made.device)
print(given.bound_device_id, given.options._timeout.days, given.options.config.blocking, flush=True)
os._exit(0)  # without a driver torch can't end a group
"""


@pytest.mark.parametrize(
    ("chosen", "answer"),
    [pytest.param("0", "False True", id="older"), pytest.param("1", "True True", id="newer")],
)
def test_only_the_newer_of_the_two_nccls_of_torch_is_asked_to_reconfigure(chosen: str, answer: str) -> None:
    environment = {**os.environ, "TORCH_DIST_USE_NCCL2": chosen}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == answer


def test_what_is_registered_counts_if_nothing_is_chosen() -> None:
    assert "TORCH_DIST_USE_NCCL2" not in os.environ
    answers = backend.can_reconfigure("nccl"), backend.can_reconfigure("gloo")
    registry: Any = c10d.Backend
    newer = {"_create_nccl_process_group": False, "_create_nccl2_process_group": True}
    assert answers == (newer[registry._plugins["NCCL"].creator_fn.__name__], True)


def test_a_group_of_nccl_has_its_device_a_time_out_of_a_week_and_connects_without_blocking() -> None:
    environment = {**os.environ, "TORCH_DIST_USE_NCCL2": "1"}  # the older one can't be made without a GPU
    ran = subprocess.run([sys.executable, "-c", MADE], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["cuda:0", "7", "0"]
