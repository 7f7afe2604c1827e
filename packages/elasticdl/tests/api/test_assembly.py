"""What a script's process reads from the variables that the job's manifest sets."""

from __future__ import annotations

from typing import NoReturn

import pytest
import torch
from elasticdl.api import assembly
from elasticdl.api.assembly import read
from elasticdl.client.job import manifest
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, Strategy
from torch import nn

from tidewater.contract import env
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.training import Learner

ARGS = JobArgs(job_name="digits", job_command="python3 a.py", distribution_strategy=Strategy.ALLREDUCE)
TOLD = {
    manifest.MASTER_ADDR: "elasticdl-digits-master:50001",
    manifest.JOB_ARGS: ARGS.to_json(),
    env.ETCD: "http://etcd:2379",
    env.WORKER: "elasticdl-digits-worker-3",
}


def test_a_script_finds_its_job_by_the_variables_of_the_manifest() -> None:
    found = read(TOLD)
    assert (found.master, found.args, found.worker) == (
        "elasticdl-digits-master:50001",
        ARGS,
        "elasticdl-digits-worker-3",
    )


@pytest.mark.parametrize("name", [manifest.MASTER_ADDR, manifest.JOB_ARGS, env.ETCD])
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is not set"):
        read({**TOLD, name: ""})


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (nn.SyncBatchNorm(2), "the model's layer 0 is a SyncBatchNorm"),
        (nn.DataParallel(nn.Linear(1, 1)), "the layer 0 of the training's model is a DataParallel"),
    ],
    ids=["SyncBatchNorm", "DataParallel"],
)
def test_a_model_that_would_wait_for_a_lost_worker_is_refused_before_anything_is_asked(
    layer: nn.Module, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TOLD.items():
        monkeypatch.setenv(name, value)
    model = nn.Sequential(layer, nn.Linear(2, 1))
    learner = Learner(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def opened(*given: object) -> NoReturn:
        pytest.fail("the session was opened")

    monkeypatch.setattr(assembly, "open_session", opened)
    with pytest.raises(ConfigError, match=named), assembly.open_script(read(TOLD), learner):
        pytest.fail("the session was given")
