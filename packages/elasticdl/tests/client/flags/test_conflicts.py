"""What doesn't fit together in a command line."""

from __future__ import annotations

import pytest
from elasticdl.client.flags import commandline
from elasticdl.client.flags.conflicts import LONGEST_JOB
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.job import JobMode

from packages.elasticdl.tests.client.seed import COMMAND, asked

ALLREDUCE = {"distribution_strategy": "AllreduceStrategy"}
LOCAL = {"distribution_strategy": "Local"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param({"use_async": "true", "grads_to_wait": "3"}, "--use_async with --grads_to_wait=3", id="async"),
        pytest.param({"job_name": "Test_Mnist"}, "--job_name=Test_Mnist can't be part of a pod's name", id="name"),
        pytest.param({"job_name": "a" * (LONGEST_JOB + 1)}, "has 39 characters", id="long-name"),
        pytest.param({"ship": "nothing"}, "--ship=nothing without --image_name", id="code-nowhere"),
        pytest.param({"image_name": "a b"}, "--image_name='a b' has blanks", id="no-image"),
        pytest.param({"max_workers": "3"}, "--max_workers=3 is below --num_workers=4", id="fewer-than-wanted"),
        pytest.param({**ALLREDUCE, "grads_to_wait": "2"}, "--grads_to_wait with AllreduceStrategy", id="allreduce"),
        pytest.param(
            {"sync_version_tolerance": "1", "use_async": "true"},
            "--sync_version_tolerance=1 with --use_async",
            id="nothing-is-refused",
        ),
        pytest.param(
            {"lr_staleness_modulation": "true", "grads_to_wait": "2"},
            "--lr_staleness_modulation with --grads_to_wait=2",
            id="no-age",
        ),
        pytest.param(
            {"worker_resource_limit": "cpu=1,memory=2048Mi"},
            "--worker_resource_limit: cpu=1 is below the request, 2",
            id="limit-below-request",
        ),
        pytest.param(
            {"worker_resource_request": "cpu=2,gpu=1"},
            "--worker_resource_request and _limit differ in gpu",
            id="a-gpu-that-is-only-requested",
        ),
        pytest.param({"restart_policy": "Always"}, "--restart_policy=Always", id="for-ever"),
        pytest.param(
            {"worker_pod_priority": "high=0.5", "ps_pod_priority": "low"},
            "--ps_pod_priority=low with a share of the workers at high",
            id="servers-below-workers",
        ),
        pytest.param({"cluster_spec_json": '{"pods": {}}'}, "--cluster_spec: pods is unknown", id="unknown-addition"),
        pytest.param({**LOCAL, "num_workers": "4"}, "--num_workers with Local", id="workers-of-one-process"),
        pytest.param({**LOCAL, "grads_to_wait": "4"}, "--grads_to_wait with Local", id="gradients-of-one-process"),
        pytest.param({**LOCAL, "get_model_steps": "3"}, "--get_model_steps with Local", id="nothing-is-pulled"),
        pytest.param({**LOCAL, "use_async": "true"}, "--use_async with Local", id="alone-and-async"),
        pytest.param(
            {**LOCAL, "lr_staleness_modulation": "true"}, "--lr_staleness_modulation with Local", id="no-ages"
        ),
        pytest.param({**LOCAL, "sync_version_tolerance": "1"}, "--sync_version_tolerance with Local", id="never-late"),
        pytest.param({**ALLREDUCE, "get_model_steps": "2"}, "--get_model_steps with AllreduceStrategy", id="no-pulls"),
        pytest.param({"job_command": "python3 a.py"}, "--evaluation_steps with --job_command", id="own-script"),
    ],
)
def test_what_does_not_fit_together_is_named_with_the_remedy(changed: dict[str, str], said: str) -> None:
    with pytest.raises(WrongCommand) as caught:
        asked(**changed)
    assert [each for each in caught.value.mistakes if said in each.message]
    assert all(each.remedy for each in caught.value.mistakes)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"use_async": "true"}, id="async"),
        pytest.param({"job_name": "a" * LONGEST_JOB}, id="longest-name"),
        pytest.param({"worker_pod_priority": "high=0.5"}, id="half-of-the-workers-high"),
        pytest.param({"max_workers": "8"}, id="room-to-grow"),
        pytest.param({"worker_resource_request": "cpu=2,gpu=1", "worker_resource_limit": "cpu=4,gpu=1"}, id="gpus"),
        pytest.param({**ALLREDUCE, "num_ps_pods": "0"}, id="allreduce"),
        pytest.param({"sync_version_tolerance": "2", "grads_to_wait": "2"}, id="synchronous"),
        pytest.param({"worker_resource_limit": "cpu=2000m,memory=2Gi"}, id="the-same-in-other-units"),
    ],
)
def test_what_fits_is_accepted(changed: dict[str, str]) -> None:
    asked(**changed)


@pytest.mark.parametrize(
    ("mode", "needed"),
    [
        (JobMode.TRAIN, {"--training_data is missing", "--model_zoo is missing", "--job_name is empty"}),
        (
            JobMode.EVALUATE,
            {
                "--validation_data is missing",
                "--model_zoo is missing",
                "--checkpoint_dir_for_init is missing",
                "--job_name is empty",
            },
        ),
        (
            JobMode.PREDICT,
            {
                "--prediction_data is missing",
                "--model_zoo is missing",
                "--checkpoint_dir_for_init is missing",
                "--job_name is empty",
            },
        ),
    ],
)
def test_a_command_without_flags_says_what_it_needs(mode: JobMode, needed: set[str]) -> None:
    with pytest.raises(WrongCommand) as caught:
        commandline.asked(mode, {}, [])
    assert {each.message for each in caught.value.mistakes} == needed


def test_a_job_in_this_process_may_name_the_defaults_of_servers() -> None:
    given = {name: COMMAND[name] for name in ("model_zoo", "model_def", "training_data", "grads_to_wait")}
    commandline.asked(JobMode.TRAIN, {**given, **LOCAL, "use_async": "false"}, [])


def test_all_reduce_only_trains() -> None:
    given = {name: COMMAND[name] for name in ("job_name", "model_zoo", "model_def", "validation_data")}
    with pytest.raises(WrongCommand, match="`elasticdl evaluate` with AllreduceStrategy"):
        commandline.asked(JobMode.EVALUATE, {**given, **ALLREDUCE, "checkpoint_dir_for_init": "/c"}, [])


def test_the_tutorials_command_has_no_conflict() -> None:
    commandline.asked(JobMode.TRAIN, {**COMMAND, "image_name": "a:1"}, [])
