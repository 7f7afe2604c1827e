"""The job's flags mean to the trainer what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elasticdl.allreduce.settings import NEVER, Place, check, trainer_flags
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode, Strategy

from tidewater import Config

ARGS = JobArgs(
    job_name="mnist",
    run_id="7",
    distribution_strategy=Strategy.ALLREDUCE,
    minibatch_size=16,
    num_workers=4,
    num_epochs=3,
)
PLACE = Place("http://a:1,http://b:2", "elasticdl-mnist-worker-0", Path("/scratch"))


def config(**changes: Any) -> Config:
    return Config.parse(trainer_flags(replace(ARGS, **changes), PLACE, changes.get("max_step")), {})


def test_a_step_has_the_minibatches_of_all_workers_however_many_there_are() -> None:
    found = config()
    assert (found.batch_size, found.micro_batch, found.batch_policy) == (64, 16, "keep")
    assert found.step_size(1) == found.step_size(9) == 64
    assert found.lr_factor(3) == 1.0


def test_a_submission_is_a_job_of_its_own() -> None:
    found = config()
    assert (found.job, found.worker, found.etcd) == ("mnist-7", PLACE.worker, ("http://a:1", "http://b:2"))


def test_training_ends_as_the_flags_say() -> None:
    assert (config().epochs, config().max_steps) == (3, 0)
    assert config(max_step=20).max_steps == 20


def test_checkpoints_are_in_a_folder_of_the_submission() -> None:
    found = config(checkpoint_dir="/data/c/", checkpoint_steps=50, keep_checkpoint_max=2)
    assert (found.checkpoints, found.checkpoint_every, found.keep_checkpoints) == ("/data/c/mnist-7", 50, 2)
    assert config(checkpoint_dir="/data/c", keep_checkpoint_max=0).keep_checkpoints == NEVER


def test_without_a_place_for_checkpoints_a_worker_has_one_of_its_own() -> None:
    assert (config().checkpoints, config().checkpoint_every, config().checkpoint_minutes) == ("/scratch", 0, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": JobMode.PREDICT}, "`elasticdl predict` with --distribution_strategy=AllreduceStrategy"),
        ({"mode": JobMode.EVALUATE}, "`elasticdl evaluate` with --distribution_strategy=AllreduceStrategy"),
        ({"distribution_strategy": Strategy.PARAMETER_SERVER}, "--distribution_strategy is ParameterServerStrategy"),
    ],
    ids=["predict", "evaluate", "servers"],
)
def test_what_all_reduce_cant_do_is_refused(changes: dict[str, Any], message: str) -> None:
    check(ARGS)
    with pytest.raises(InputError, match=message):
        check(replace(ARGS, **changes))
