"""A checkpoint can be read without this package."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.elastic.checkpoint.conftest import at, trained
from tests.elastic.checkpoint.conftest import same as same_bits
from tidewater.elastic.checkpoint import Checkpoints

SCRIPT = """
    import json, sys
    import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp

    rank, size, store, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
    state = {"model": {"weight": torch.empty(4, 3)}, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    assert "trainer" not in sys.modules
    dist.barrier()  # or the first to end may take the other's answers along
    dist.destroy_process_group()
    print(json.dumps([state["step"], state["model"]["weight"].tolist()]))
"""


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_plain_dcp_loads_model_and_optimizer_of_a_checkpoint(checkpoints: Checkpoints, folder: Path) -> None:
    model, optimizer = trained()
    checkpoints.save(at(3), {"step": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, wait=True)
    other, other_optimizer = trained()
    for value in other.state_dict().values():
        value.zero_()
    wanted: dict[str, Any] = {"step": 0, "model": other.state_dict(), "optimizer": other_optimizer.state_dict()}
    for each in wanted["optimizer"]["param_groups"]:
        each["lr"] = 0.0
    dcp.load(wanted, checkpoint_id=folder / "step-000000000003")  # type: ignore[attr-defined]
    assert wanted["step"] == 3
    assert same_bits(dict(other.state_dict()), dict(model.state_dict()))
    assert [group["lr"] for group in wanted["optimizer"]["param_groups"]] == [3e-4, 1e-3]
    assert same_bits(wanted["optimizer"]["state"], optimizer.state_dict()["state"])


def test_torchs_converter_makes_one_file_that_torch_loads(
    checkpoints: Checkpoints, folder: Path, tmp_path: Path
) -> None:
    model, _ = trained()
    checkpoints.save(at(3), {"model": model.state_dict(), "cursor": (1, 64)}, wait=True)
    dcp_to_torch_save(folder / "step-000000000003", tmp_path / "one.pt")
    loaded = torch.load(tmp_path / "one.pt", weights_only=True)
    assert same_bits(loaded["model"], dict(model.state_dict()))
    assert loaded["cursor"] == (1, 64)


def test_any_number_of_processes_can_load_a_checkpoint_without_the_trainer(
    checkpoints: Checkpoints, folder: Path, tmp_path: Path
) -> None:
    weight = torch.arange(12.0).reshape(4, 3)
    checkpoints.save(at(5), {"step": 5, "model": {"weight": weight}}, wait=True)
    arguments = ["2", str(tmp_path / "store"), str(folder / "step-000000000005")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), str(rank), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        for rank in range(2)
    ]
    for process in processes:
        out, _ = process.communicate(timeout=180)
        assert process.returncode == 0
        assert json.loads(out.splitlines()[-1]) == [5, weight.tolist()]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("then", [1.0, True, 2, 2**40, "one", None, [1, 2.0]], ids=repr)
def test_a_number_that_changes_between_checkpoints_is_saved_anew(
    then: object, checkpoints: Checkpoints, folder: Path
) -> None:
    for step, value in ((1, 1), (2, then)):
        checkpoints.save(at(step), {"value": value, "after": torch.full((3,), float(step)), "step": step}, wait=True)
    wanted: dict[str, Any] = {"value": 0, "after": torch.zeros(3), "step": 0}
    dcp.load(wanted, checkpoint_id=folder / "step-000000000002")  # type: ignore[attr-defined]
    assert same_bits(wanted, {"value": then, "after": torch.full((3,), 2.0), "step": 2})
