"""A job is sent after everything has been checked that the cluster can tell; the cluster is one in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.flags.request import Asked
from elasticdl.client.job import shipping
from elasticdl.client.job.preflight import facts_of
from elasticdl.client.job.submit import Steps, needs_no_cluster, submit
from elasticdl.job import JobArgs, JobMode

from packages.elasticdl.tests.client import seed
from tidewater.cli.errors import CliError
from tidewater.contract import code
from tidewater.elasticjob.names import JOBS
from tidewater.kube.advice import advised
from tidewater.kube.cluster import Object
from tidewater.kube.errors import Forbidden, error_of
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, PRIORITY_CLASSES


class World:
    """A cluster in memory, and what else the command does."""

    def __init__(self) -> None:
        self.cluster = seed.Cluster()
        self.said: list[str] = []
        self.uploaded: list[str] = []
        self.steps = Steps(self.said.append, self._upload, lambda: "a1b2")

    def _upload(self, archive: code.Archive, bucket: str) -> None:
        self.uploaded.append(shipping.address(archive, bucket))

    def submit(self, asked: Asked) -> Object:
        return submit(asked, self.cluster, self.steps)

    def mistakes(self, asked: Asked) -> list[str]:
        with pytest.raises(WrongCommand) as caught:
            self.submit(asked)
        assert not self.cluster.list(JOBS).items
        assert not self.uploaded
        assert all(each.remedy for each in caught.value.mistakes)
        return [each.message for each in caught.value.mistakes]


@pytest.fixture
def world() -> World:
    """A cluster with the priority classes and the claim of the tutorial."""
    made = World()
    for name in ("high", "low"):
        made.cluster.put(PRIORITY_CLASSES, {"metadata": {"name": name}})
    made.cluster.put(CLAIMS, {"metadata": {"name": "fileserver-claim"}})
    return made


@pytest.fixture
def stack(world: World) -> World:
    """The same in a stack's namespace."""
    world.cluster.put(CONFIG_MAPS, seed.config_map())
    world.cluster.put(CLAIMS, {"metadata": {"name": seed.FACTS.data_claim}})
    return world


def in_image(**changed: str) -> Asked:
    return seed.asked(image_name="registry/elasticdl:mnist", **changed)


def with_zoo(folder: Path, **changed: str) -> Asked:
    return seed.asked(model_zoo=seed.zoo(folder), **changed)


def job_args(job: Object) -> JobArgs:
    command = job["spec"]["replicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["command"]
    return JobArgs.from_json(command[command.index("--job_args") + 1])


def test_in_a_stacks_namespace_code_and_zoo_go_with_the_job(stack: World, tmp_path: Path) -> None:
    made = stack.submit(with_zoo(tmp_path))
    assert stack.cluster.get(JOBS, "elasticdl-test-mnist")["spec"] == made["spec"]
    (address,) = stack.uploaded
    pod = made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    assert address in pod["initContainers"][0]["command"]
    assert job_args(made).model_zoo == "/elasticdl/zoo"
    assert any("kubectl logs -n training elasticdl-test-mnist-worker-0 | grep Loss" in line for line in stack.said)


def test_with_an_image_of_zoo_build_only_code_goes_with_the_job(stack: World) -> None:
    made = stack.submit(in_image())
    assert len(stack.uploaded) == 1
    assert job_args(made).model_zoo == "model_zoo"


def test_elsewhere_everything_is_in_the_image(world: World) -> None:
    made = world.submit(in_image())
    assert not world.uploaded
    assert "initContainers" not in made["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    assert "no --etcd: a master that is replaced begins the job anew" in world.said


def test_each_submission_is_another_run(world: World) -> None:
    assert job_args(world.submit(in_image())).run_id == "a1b2-$(ELASTICDL_JOB_UID)"


def test_elsewhere_a_job_needs_an_image(world: World, tmp_path: Path) -> None:
    (found,) = world.mistakes(with_zoo(tmp_path))
    assert found == ("code and zoo can't go with the job: namespace training has no ConfigMap `tidewater` of a stack")


def test_what_the_cluster_lacks_is_named_all_at_once(stack: World, tmp_path: Path) -> None:
    asked = with_zoo(
        tmp_path,
        master_pod_priority="urgent",
        volume="claim_name=none,mount_path=/a;host_path=/b,mount_path=/b",
        loss="no_loss",
    )
    found = stack.mistakes(asked)
    assert [each.partition(": ")[2] or each for each in found[1:]] == [
        "host_path=/b: namespace training accepts only pods without privileges",
        "there is no priority class urgent",
        "there is no claim none in namespace training",
    ]
    assert found[0].endswith("has no no_loss")


def test_what_the_api_server_refuses_is_named_before_anything_is_made(stack: World, tmp_path: Path) -> None:
    stack.cluster.failures["create", "Pod"] = advised(error_of(403, "Forbidden", 'pods "x" is forbidden: violates X'))
    found = stack.mistakes(with_zoo(tmp_path))
    assert len(found) == 3
    assert found[0].startswith("the API server refuses Pod elasticdl-test-mnist-master-0: ")


def test_who_may_not_make_pods_may_submit(stack: World, tmp_path: Path) -> None:
    text = 'pods is forbidden: User "a" cannot create resource "pods"'
    stack.cluster.failures["create", "Pod"] = advised(error_of(403, "Forbidden", text))
    stack.submit(with_zoo(tmp_path))


def test_the_classes_of_a_share_are_looked_for(world: World) -> None:
    world.cluster.remove(PRIORITY_CLASSES, "low")
    found = world.mistakes(in_image(worker_pod_priority="high=0.5"))
    assert found == ["there is no priority class low"]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        pytest.param({"output": "/model"}, ["--output=/model is on no volume of the pods"], id="nowhere"),
        pytest.param({"output": "model"}, ["--output=model is on no volume of the pods"], id="relative"),
        pytest.param({"output": "/database"}, ["--output=/database is on no volume of the pods"], id="beside"),
        pytest.param({"output": "/data/../model"}, ["--output=/data/../model is on no volume of the pods"], id="above"),
        pytest.param(
            {"checkpoint_dir": "file:///c", "checkpoint_steps": "5"},
            ["--checkpoint_dir=file:///c is on no volume of the pods"],
            id="file",
        ),
        pytest.param({"output": "/data/model"}, [], id="volume"),
        pytest.param({"output": "file:///data/model"}, [], id="file-on-volume"),
        pytest.param({"output": "/data"}, [], id="mount"),
        pytest.param({"output": "s3://bucket/model"}, [], id="s3"),
        pytest.param({"checkpoint_dir_for_init": "/zoo/model"}, [], id="init-in-the-image"),
        pytest.param(
            {"output": "/r/m", "volume": "claim_name=fileserver-claim,mount_path=/r,read_only=true"},
            ["--output=/r/m is on no volume of the pods"],
            id="read-only",
        ),
    ],
)
def test_what_is_shared_must_be_on_a_volume_or_in_s3(world: World, changed: dict[str, str], found: list[str]) -> None:
    if found:
        assert world.mistakes(in_image(**changed)) == found
    else:
        world.submit(in_image(**changed))


def test_without_an_image_of_ones_own_a_model_to_begin_with_is_on_the_stacks_file_system(
    stack: World, tmp_path: Path
) -> None:
    def begun(folder: str, init: str) -> Asked:
        return seed.asked(("volume",), model_zoo=seed.zoo(tmp_path / folder), checkpoint_dir_for_init=init)

    with pytest.raises(WrongCommand) as caught:
        stack.submit(begun("a", "/model"))
    (mistake,) = caught.value.mistakes
    assert mistake.message == "--checkpoint_dir_for_init=/model is on no volume of the pods"
    assert mistake.remedy == "name a folder below /data, or s3://BUCKET/PREFIX"
    stack.submit(begun("b", "/data/model"))


def test_who_may_not_read_priority_classes_may_submit(world: World) -> None:
    error = advised(error_of(403, "Forbidden", "no"))
    assert isinstance(error, Forbidden)
    world.cluster.failures["get", "PriorityClass"] = error
    world.submit(in_image())


@pytest.mark.parametrize(
    "more", [{"distribution_strategy": "AllreduceStrategy"}, {"job_command": "python3 a.py", "evaluation_steps": "0"}]
)
def test_workers_that_train_together_need_etcd(world: World, more: dict[str, str]) -> None:
    assert world.mistakes(seed.asked(("num_ps_pods",), image_name="a:1", **more)) == ["--etcd is missing"]


def test_a_job_that_is_there_is_an_error_with_the_remedy(world: World) -> None:
    world.submit(in_image())
    with pytest.raises(CliError, match="there is a job elasticdl-test-mnist") as caught:
        world.submit(in_image())
    assert "kubectl delete ej/elasticdl-test-mnist -n training" in caught.value.remedy


def test_a_file_has_what_would_be_sent(stack: World, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    made = stack.submit(with_zoo(tmp_path, yaml=str(file)))
    assert yaml.safe_load(file.read_text()) == made
    assert not stack.cluster.list(JOBS).items
    assert len(stack.uploaded) == 1  # the file refers to it
    assert stack.submit(with_zoo(tmp_path / "b"))["spec"].keys() == made["spec"].keys()


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({}, ["worker-0 | grep Loss", "master | grep Evaluation"]),
        ({"validation_data": "", "evaluation_steps": 0}, ["worker-0 | grep Loss"]),
        ({"log_loss_steps": 0}, ["master | grep Evaluation"]),
        ({"mode": JobMode.EVALUATE}, ["master | grep Evaluation"]),
        ({"mode": JobMode.PREDICT, "prediction_data": "/data/x"}, []),
    ],
    ids=str,
)
def test_only_lines_that_come_are_looked_for(world: World, changed: dict[str, Any], lines: list[str]) -> None:
    asked = in_image()
    world.submit(replace(asked, args=replace(asked.args, **changed)))
    assert [each.rpartition("test-mnist-")[2] for each in world.said if "grep" in each] == lines


def test_a_job_whose_image_has_everything_needs_no_cluster_for_its_file(tmp_path: Path) -> None:
    world, file = World(), tmp_path / "job.yaml"
    asked = in_image(yaml=str(file))
    assert needs_no_cluster(asked)
    made = submit(asked, None, world.steps)
    assert yaml.safe_load(file.read_text()) == made
    assert made["metadata"]["namespace"] == "default"
    assert "not checked against a cluster" in world.said[-1]
    assert submit(in_image(yaml=str(file), namespace="other"), None, world.steps)["metadata"]["namespace"] == "other"


@pytest.mark.parametrize(
    ("changed", "alone"),
    [
        ({}, False),
        ({"yaml": "j"}, False),
        ({"yaml": "j", "image_name": "a"}, True),
        ({"image_name": "a"}, False),
        ({"yaml": "j", "image_name": "a", "ship": "nothing"}, True),
        ({"yaml": "j", "image_name": "a", "ship": "code"}, False),
        ({"yaml": "j", "image_name": "a", "distribution_strategy": "AllreduceStrategy"}, False),
        ({"yaml": "j", "image_name": "a", "distribution_strategy": "AllreduceStrategy", "etcd": "http://e:2379"}, True),
    ],
    ids=str,
)
def test_what_only_the_cluster_knows_needs_one(changed: dict[str, str], alone: bool) -> None:
    assert needs_no_cluster(seed.asked(("num_ps_pods",), **changed)) is alone


def test_a_file_that_can_not_be_written_is_an_error(world: World, tmp_path: Path) -> None:
    with pytest.raises(CliError, match="can't be written: Is a directory"):
        world.submit(in_image(yaml=str(tmp_path)))


def test_a_stack_of_another_version_is_an_error(world: World) -> None:
    world.cluster.put(CONFIG_MAPS, {**seed.config_map(), "data": {"bucket": "b"}})
    with pytest.raises(CliError, match="the stack is of another version"):
        facts_of(world.cluster, "training")


def test_the_namespace_of_the_flag_wins(world: World) -> None:
    world.cluster.put(CLAIMS, {"metadata": {"name": "fileserver-claim", "namespace": "other"}})
    assert world.submit(in_image(namespace="other"))["metadata"]["namespace"] == "other"
