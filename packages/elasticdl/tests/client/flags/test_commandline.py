"""The words of a command line become values, or one error with all that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.client.flags import commandline, table
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.flags.refused import REFUSED
from elasticdl.client.flags.request import PullPolicy, Restart
from elasticdl.client.flags.values import Volume, WorkerPriority
from elasticdl.job import JobArgs, JobMode, Strategy

from packages.elasticdl.tests.client.seed import COMMAND, asked


def wrong(mode: JobMode = JobMode.TRAIN, more: tuple[str, ...] = (), **changed: str) -> list[str]:
    """Return the messages of the mistakes in the tutorial's command with some flags changed."""
    with pytest.raises(WrongCommand) as caught:
        commandline.asked(mode, {**COMMAND, **changed}, more)
    assert all(each.remedy for each in caught.value.mistakes)
    return [each.message for each in caught.value.mistakes]


def test_every_flag_of_the_tutorial_has_its_meaning() -> None:
    found = asked(image_name="registry/elasticdl:mnist")
    assert found.args == JobArgs(
        job_name="test-mnist",
        model_zoo="model_zoo",
        model_def="mnist.mnist_functional_api.custom_model",
        training_data="/data/mnist/train",
        validation_data="/data/mnist/test",
        num_epochs=5,
        minibatch_size=64,
        num_minibatches_per_task=64,
        num_ps_pods=2,
        num_workers=4,
        evaluation_steps=200,
        grads_to_wait=1,
        log_level="INFO",
    )
    deployment = found.deployment
    two = {"cpu": "2", "memory": "2048Mi"}
    assert [each.request for each in (deployment.master, deployment.ps, deployment.worker)] == [two] * 3
    assert [each.limits for each in (deployment.master, deployment.ps, deployment.worker)] == [two] * 3
    assert (deployment.master_pod_priority, deployment.ps_pod_priority) == ("high", "high")
    assert deployment.worker_pod_priority == WorkerPriority("low")
    assert deployment.image_pull_policy is PullPolicy.ALWAYS
    assert deployment.volumes == (Volume(mount_path="/data", claim_name="fileserver-claim"),)
    assert (deployment.image_name, deployment.ship) == ("registry/elasticdl:mnist", None)


def test_the_image_may_stand_without_a_flag() -> None:
    found = commandline.asked(JobMode.TRAIN, COMMAND, ["registry/elasticdl:mnist"])
    assert found.deployment.image_name == "registry/elasticdl:mnist"


def test_two_images_are_a_mistake() -> None:
    assert wrong(more=("a:1",), image_name="b:1") == ["two images: a:1 and --image_name=b:1"]
    assert wrong(more=("a:1", "b:1")) == ["b:1 after the image a:1"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["--num-workers=4"], ["--num_workers=4"]),
        (["--num-workers", "4"], ["--num_workers", "4"]),
        (["--use_async", "--log-level", "INFO"], ["--use_async=true", "--log_level", "INFO"]),
        (["--use_async", "false"], ["--use_async", "false"]),
        (["--use_async", "image:1"], ["--use_async=true", "image:1"]),
        (["--envs=A-B=1"], ["--envs=A-B=1"]),
        (["\n--num_workers=4", " ", "\n"], ["--num_workers=4"]),
        (["--no-such=1", "-h", ""], ["--no-such=1", "-h", ""]),
    ],
)
def test_a_command_line_has_one_spelling(given: list[str], found: list[str]) -> None:
    assert commandline.words(["train", *given]) == ["train", *found]


def test_a_flag_that_is_true_by_default_wants_a_value() -> None:
    assert commandline.words(["--need_pod_manager"]) == ["--need_pod_manager="]
    (said,) = wrong(need_pod_manager="")
    assert said == "--need_pod_manager: '' is neither true nor false"


def test_all_mistakes_are_reported_at_once() -> None:
    found = wrong(
        more=("--nothing=1", "--use_go_ps=true", "--prediction_data=/x"),
        num_workers="many",
        worker_resource_request="cpu=a",
        image_pull_policy="sometimes",
        use_async="true",
        grads_to_wait="2",
    )
    assert [each.partition(":")[0] for each in found] == [
        "--nothing is unknown",
        "--use_go_ps has no meaning here",
        "--prediction_data is no flag of `elasticdl train`",
        "--num_workers",
        "--image_pull_policy",
        "--worker_resource_request",
        "--use_async with --grads_to_wait=2",
    ]


def test_an_unknown_flag_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(WrongCommand, match="did you mean --num_workers"):
        commandline.asked(JobMode.TRAIN, COMMAND, ["--num_worker=4"])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_flag_without_meaning_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(WrongCommand) as caught:
        commandline.asked(JobMode.TRAIN, COMMAND, [f"--{name}=1"])
    assert caught.value.message == f"--{name} has no meaning here"
    assert caught.value.remedy == REFUSED[name]


def test_no_flag_is_both_refused_and_known() -> None:
    assert not REFUSED.keys() & table.known().keys()


REFERENCE = (
    "model_zoo model_def optimizer loss feed eval_metrics_fn callbacks custom_data_reader data_reader_params output "
    "prediction_outputs_processor aux_params training_data validation_data prediction_data minibatch_size "
    "num_minibatches_per_task num_epochs max_step namespace job_name image_name worker_image image_pull_policy "
    "restart_policy volume envs master_resource_request master_resource_limit master_pod_priority "
    "worker_resource_request worker_resource_limit worker_pod_priority ps_resource_request ps_resource_limit "
    "ps_pod_priority num_workers num_ps_pods cluster_spec cluster_spec_json force_use_kube_config_file yaml "
    "distribution_strategy use_async grads_to_wait get_model_steps lr_staleness_modulation sync_version_tolerance "
    "task_fault_tolerance relaunch_on_worker_failure relaunch_timeout_worker need_pod_manager need_task_manager "
    "checkpoint_steps checkpoint_dir checkpoint_dir_for_init keep_checkpoint_max log_level log_file_path "
    "log_loss_steps evaluation_steps job_command"
).split()
"""Of ElasticDL's client, version 0.3."""


@pytest.mark.parametrize("name", REFERENCE)
def test_every_flag_of_elasticdls_client_is_known_or_refused(name: str) -> None:
    assert name in table.known() or name in REFUSED


def test_what_was_not_given_has_the_default_of_the_processes() -> None:
    found = commandline.asked(
        JobMode.TRAIN, {"job_name": "a", "model_zoo": "z", "model_def": "m.f", "training_data": "/d"}, []
    )
    assert found.args == JobArgs(job_name="a", model_zoo="z", model_def="m.f", training_data="/d")
    assert found.deployment.ship is None
    assert found.deployment.master.request == {"cpu": "0.1", "memory": "1024Mi"}
    assert found.deployment.restart_policy is Restart.NEVER
    assert found.deployment.volumes is None


def test_a_job_in_this_process_needs_no_name() -> None:
    found = commandline.asked(
        JobMode.TRAIN,
        {"distribution_strategy": "Local", "model_zoo": "z", "model_def": "m.f", "training_data": "/d"},
        [],
    )
    assert (found.args.distribution_strategy, found.args.job_name) == (Strategy.LOCAL, "local")


def test_a_strategy_that_can_not_be_read_says_nothing_about_the_name() -> None:
    given = {"distribution_strategy": "Foo", "model_zoo": "z", "model_def": "m.f", "training_data": "/d"}
    with pytest.raises(WrongCommand) as caught:
        commandline.asked(JobMode.TRAIN, given, [])
    assert [each.message for each in caught.value.mistakes] == ["--distribution_strategy: 'Foo' is unknown"]


def test_the_home_folder_is_that_of_who_gives_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "spec.yaml").write_text("pod_spec: {labels: {team: vision}}")
    found = asked(model_zoo="~/zoo", training_data="~/data", output="s3://bucket//~/x", yaml="~/job.yaml")
    assert (found.args.model_zoo, found.args.training_data) == (f"{tmp_path}/zoo", f"{tmp_path}/data")
    assert (found.args.output, found.target.yaml) == ("s3://bucket//~/x", f"{tmp_path}/job.yaml")
    assert asked(cluster_spec="~/spec.yaml").deployment.cluster_spec == {"pod_spec": {"labels": {"team": "vision"}}}


def test_no_last_step_is_none() -> None:
    assert asked(max_step="0").args.max_step is None
    assert asked(max_step="9").args.max_step == 9


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("spec.py", "cluster = 1", "Python is not run here"),
        ("spec.yaml", "[1]", "it is no mapping"),
        ("spec.yaml", None, "can't be read: No such file"),
    ],
)
def test_a_wrong_file_of_additions_is_named(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    (found,) = wrong(cluster_spec=str(file))
    assert found.startswith(f"--cluster_spec={file}")
    assert said in found
