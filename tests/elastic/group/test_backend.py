"""Whether a group can be given new peers: torch says so by what it registers as "nccl", not by its version."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = "from tidewater.elastic.group import backend as b; print(b.can_reconfigure('nccl'), b.can_reconfigure('gloo'))"


@pytest.mark.parametrize(
    ("chosen", "answer"),
    [pytest.param("0", "False True", id="older"), pytest.param("1", "True True", id="newer")],
)
def test_only_the_newer_of_the_two_nccls_of_torch_is_asked_to_reconfigure(chosen: str, answer: str) -> None:
    environment = {**os.environ, "TORCH_DIST_USE_NCCL2": chosen}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == answer


def test_what_is_registered_counts_if_nothing_is_chosen() -> None:
    script = (
        f"{SCRIPT}; from torch.distributed import distributed_c10d as c10d;"
        "print(c10d.Backend._plugins['NCCL'].creator_fn.__name__)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DIST_USE_NCCL2"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() in (
        ["False True", "_create_nccl_process_group"],
        ["True True", "_create_nccl2_process_group"],
    )
