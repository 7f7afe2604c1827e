"""The flags of a job: what is wrong is said before anything is made; JSON carries the rest to the processes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode, Strategy

GOOD = JobArgs(
    job_name="mnist",
    model_zoo="zoo",
    model_def="mnist.custom_model",
    training_data="/data/train",
    validation_data="/data/test",
)


def test_arguments_survive_json() -> None:
    args = dataclasses.replace(GOOD, mode=JobMode.EVALUATE, max_step=7, seed=3, relaunch_timeout_worker=5)
    again = JobArgs.from_json(args.to_json())
    assert again == args
    assert again.mode is JobMode.EVALUATE
    assert again.distribution_strategy is Strategy.PARAMETER_SERVER


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"job_command": "python train.py", "model_zoo": "", "training_data": ""}, id="script"),
        pytest.param({"mode": JobMode.EVALUATE, "checkpoint_dir_for_init": "/c", "training_data": ""}, id="evaluate"),
        pytest.param({"distribution_strategy": Strategy.ALLREDUCE, "num_ps_pods": 0}, id="no-servers"),
        pytest.param({"max_step": 1}, id="one-step"),
    ],
)
def test_good_arguments_are_accepted(changes: dict[str, Any]) -> None:
    dataclasses.replace(GOOD, **changes).checked()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"job_name": ""}, "--job_name"),
        ({"training_data": ""}, "--training_data is missing"),
        ({"mode": JobMode.EVALUATE, "validation_data": "", "evaluation_steps": 0}, "--validation_data is missing"),
        ({"mode": JobMode.PREDICT}, "--prediction_data is missing"),
        ({"mode": JobMode.EVALUATE}, "--checkpoint_dir_for_init is missing"),
        ({"model_def": ""}, "--model_def is missing"),
        ({"model_zoo": ""}, "--model_zoo is missing"),
        ({"minibatch_size": 0}, "--minibatch_size is 0"),
        ({"minibatch_size": -3}, "--minibatch_size is -3"),
        ({"num_minibatches_per_task": 0}, "--num_minibatches_per_task is 0"),
        ({"num_epochs": 0}, "--num_epochs is 0"),
        ({"max_step": 0}, "--max_step is 0"),
        ({"max_step": -1}, "--max_step is -1"),
        ({"num_ps_pods": 0}, "--num_ps_pods is 0"),
        ({"num_workers": 0}, "--num_workers is 0"),
        ({"grads_to_wait": 0}, "--grads_to_wait is 0"),
        ({"get_model_steps": 0}, "--get_model_steps is 0"),
        ({"use_async": True, "grads_to_wait": 2}, "--use_async with --grads_to_wait=2"),
        ({"evaluation_steps": -1}, "--evaluation_steps is -1"),
        ({"evaluation_steps": 5, "validation_data": ""}, "--validation_data"),
        ({"evaluation_steps": 5, "job_command": "python x.py"}, "--evaluation_steps with --job_command"),
        ({"mode": JobMode.PREDICT, "job_command": "python x.py"}, "--job_command with `elasticdl predict`"),
        ({"checkpoint_steps": 5}, "--checkpoint_dir"),
        (
            {"checkpoint_steps": 5, "checkpoint_dir": "/data/c", "checkpoint_dir_for_init": "/data/c/"},
            "--checkpoint_dir and --checkpoint_dir_for_init are both /data/c",
        ),
        ({"checkpoint_steps": -5}, "--checkpoint_steps is -5"),
        ({"keep_checkpoint_max": -1}, "--keep_checkpoint_max is -1"),
        ({"max_task_retries": -1}, "--max_task_retries is -1"),
        ({"log_level": "LOUD"}, "--log_level is 'LOUD'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_wrong_flag_is_named_with_a_remedy(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        dataclasses.replace(GOOD, **changes).checked()
    assert named in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not the JSON"),
        ("[]", "not the JSON"),
        ('{"job_name": "a"}', "not the JSON"),
        ('{"version": 99, "job_name": "a"}', "version 99"),
        ('{"version": 1}', "no job_name"),
        ('{"version": 1, "job_name": "a", "colour": 1}', "unknown fields colour"),
        ('{"version": 1, "job_name": "a", "mode": "dance"}', "--mode is 'dance'"),
        ('{"version": 1, "job_name": "a", "distribution_strategy": "x"}', "--distribution_strategy is 'x'"),
        ('{"version": 1, "job_name": "a", "minibatch_size": "8"}', "--minibatch_size is '8'"),
        ('{"version": 1, "job_name": "a", "minibatch_size": true}', "--minibatch_size is True"),
        ('{"version": 1, "job_name": "a", "max_step": "8"}', "--max_step is '8'"),
        ('{"version": 1, "job_name": 5}', "--job_name is 5"),
    ],
)
def test_json_that_is_not_a_jobs_arguments_is_refused(text: str, named: str) -> None:
    with pytest.raises(InputError) as caught:
        JobArgs.from_json(text)
    assert named in caught.value.message


def test_every_field_may_be_given_in_json_alone() -> None:
    for name, value in json.loads(GOOD.to_json()).items():
        if name not in ("version", "job_name"):
            assert getattr(JobArgs.from_json(json.dumps({"version": 1, "job_name": "a", name: value})), name) == value
