"""The command line as a user runs it, against a cluster in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from elasticdl.client.app import app
from elasticdl.client.commands import Tools, connected
from elasticdl.client.flags import commandline, table
from elasticdl.client.flags.refused import REFUSED
from elasticdl.client.flags.request import Target
from elasticdl.client.job.submit import Steps
from elasticdl.data.opening import open_reader
from elasticdl.errors import ElasticDLError
from elasticdl.job import JobArgs, JobMode
from typer.testing import CliRunner, Result

from packages.elasticdl.tests.client import seed
from tests.cli.fake import FakeCluster
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Cluster
from tidewater.kube.errors import NoKubeconfig, Unreachable
from tidewater.kube.kinds import CLAIMS, PRIORITY_CLASSES
from tidewater.kube.kubeconfig import Access

Run = Callable[..., Result]
TUTORIAL = [f"--{name}={text}" for name, text in seed.COMMAND.items()]


@pytest.fixture
def cluster() -> FakeCluster:
    """A cluster with what the tutorial's command names."""
    made = seed.Cluster(namespace="default")
    for name in ("high", "low"):
        made.put(PRIORITY_CLASSES, {"metadata": {"name": name}})
    made.put(CLAIMS, {"metadata": {"name": "fileserver-claim"}})
    return made


@pytest.fixture
def ran() -> list[JobArgs]:
    """The jobs that were run in this process."""
    return []


@pytest.fixture
def run(cluster: FakeCluster, ran: list[JobArgs]) -> Run:
    """Run a command line, given as words."""

    def invoke(*words: str, code: int = 0) -> Result:
        def connect(access: Access) -> Cluster:
            return cluster

        def run_here(args: JobArgs) -> int:
            ran.append(args)
            if args.seed == 13:
                raise ElasticDLError("unlucky", "take another seed")
            return code

        tools = Tools(connect=connect, run_here=run_here, steps=Steps(print))
        return CliRunner().invoke(app, commandline.words(words), obj=tools, env={"COLUMNS": "200"})

    return invoke


def test_the_tutorials_command_submits_its_job(run: Run, cluster: FakeCluster) -> None:
    done = run("train", "--image_name=registry/elasticdl:mnist", *TUTORIAL)
    assert done.exit_code == 0, done.output
    assert cluster.get(JOBS, "elasticdl-test-mnist")["spec"]["replicaSpecs"]["Worker"]["replicas"] == 4
    assert "job elasticdl-test-mnist is submitted to namespace default" in done.output


def test_it_does_so_with_the_backslashes_of_the_tutorial(run: Run, cluster: FakeCluster) -> None:
    done = run("train", " registry/elasticdl:mnist".strip(), *(f" {word}" for word in TUTORIAL), " ")
    assert done.exit_code == 0, done.output
    pod = cluster.get(JOBS, "elasticdl-test-mnist")["spec"]["replicaSpecs"]["PS"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry/elasticdl:mnist"


def test_mistakes_are_printed_with_their_remedies(run: Run, cluster: FakeCluster) -> None:
    done = run("train", *TUTORIAL, "--num-workers=0", "--use_async", "--grads_to_wait=2", "--log_file_path=/x")
    assert done.exit_code == 2
    assert "error: 3 mistakes" in done.stderr
    for text in ("--num_workers: '0'", "--use_async with --grads_to_wait=2", REFUSED["log_file_path"]):
        assert text in done.stderr
    assert not cluster.sent


def test_one_mistake_is_a_sentence_and_a_remedy(run: Run) -> None:
    done = run("train", "--image_name=a", *TUTORIAL, "--restart_policy=Always")
    lines = done.stderr.splitlines()
    assert lines[0] == "error: --restart_policy=Always would start processes again that are done"
    assert lines[1] == "use OnFailure, or leave it out"


def test_a_cluster_that_does_not_answer_is_a_sentence(run: Run, cluster: FakeCluster) -> None:
    cluster.failures["get", "ConfigMap"] = Unreachable("the API server can't be reached", "Is it running?")
    done = run("train", "--image_name=a", *TUTORIAL)
    assert (done.exit_code, done.stderr) == (1, "error: the API server can't be reached\nIs it running?\n")


def test_a_file_is_written_where_no_cluster_answers(run: Run, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.failures["get", "ConfigMap"] = Unreachable("the API server can't be reached", "Is it running?")
    file = tmp_path / "job.yaml"
    done = run("train", "registry/elasticdl:mnist", *TUTORIAL, f"--yaml={file}")
    assert (done.exit_code, "not checked against a cluster" in done.output) == (0, True)
    assert "namespace: default" in file.read_text()


@pytest.mark.parametrize(("more", "code"), [((), 0), (("--kubeconfig=/no/such",), 1)])
def test_a_file_is_written_where_there_is_no_kubeconfig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: tuple[str, ...], code: int
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "job.yaml"
    words = commandline.words(["train", "registry/elasticdl:mnist", *TUTORIAL, f"--yaml={file}", *more])
    done = CliRunner().invoke(app, words, obj=Tools(steps=Steps(print)))
    assert (done.exit_code, file.exists()) == (code, not code), done.output


def test_a_job_in_this_process_makes_nothing_on_a_cluster(
    run: Run, cluster: FakeCluster, ran: list[JobArgs], tmp_path: Path
) -> None:
    local = ["train", "--distribution_strategy=local", f"--model_zoo={seed.zoo(tmp_path)}", "--training_data=/d"]
    model = f"--model_def={seed.COMMAND['model_def']}"
    assert run(*local, model, code=0).exit_code == 0
    assert run(*local, model, code=1).exit_code == 1
    assert [each.training_data for each in ran] == ["/d", "/d"]
    assert not cluster.list(JOBS).items
    missing = run(*local, "--model_def=mnist.no.model")
    assert (missing.exit_code, len(ran)) == (2, 2)
    unlucky = run(*local, model, "--seed=13")
    assert (unlucky.exit_code, unlucky.stderr) == (1, "error: unlucky\ntake another seed\n")


@pytest.mark.parametrize("mode", list(JobMode))
def test_the_help_of_a_command_describes_each_of_its_flags(run: Run, mode: JobMode) -> None:
    shown = run(mode.value, "--help").output
    assert not [flag.name for flag in table.of(mode) if f"--{flag.name} " not in shown]


def test_a_zoo_is_written_with_working_examples(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("zoo", "init", str(tmp_path / "zoo"), "--base_image=my/base:1")
    assert done.exit_code == 0, done.output
    assert "FROM my/base:1" in (tmp_path / "zoo" / "Dockerfile").read_text()
    assert run("zoo", "init", "--model-zoo", str(tmp_path / "zoo"), "--base_image=your/base:1").exit_code == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run("zoo", "init", "--model-zoo=~/mine").exit_code == 0
    assert (tmp_path / "mine" / "Dockerfile").is_file()


def test_an_image_needs_docker(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("zoo", "init", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for words in (["zoo", "build", "--image=a:1", str(tmp_path)], ["zoo", "push", "a:1"]):
        done = run(*words)
        assert done.exit_code == 2
        assert "error: there is no Docker on this machine" in done.stderr
        assert "ships the folder of --model_zoo itself" in done.stderr


def test_a_program_called_docker_builds_and_pushes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("zoo", "init", str(tmp_path / "zoo"))
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\ntest "$2" != b:1\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(docker.parent))
    assert run("zoo", "build", "--image=a:1", str(tmp_path / "zoo")).exit_code == 0
    assert run("zoo", "push", "a:1").exit_code == 0
    failed = run("zoo", "push", "b:1")
    assert failed.exit_code == 1
    assert "`docker push b:1` failed with exit code 1" in failed.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == [f"build -t a:1 {tmp_path}/zoo", "push a:1", "push b:1"]


def test_data_is_written_as_recordio(run: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "digits")
    done = run("data", "write", "digits", out, "--records_per_shard=500", "--test-share=0.1")
    assert done.exit_code == 0, done.output
    with open_reader(f"{out}/train") as train, open_reader(f"{out}/test") as test:
        assert sum(each.end - each.start for reader in (train, test) for each in reader.shards()) == 1797
    wrong = run("data", "write", "digits", out, "--in_pod", "--volume=mount_path=/data")
    assert wrong.exit_code == 2
    assert "exactly one of claim_name and host_path" in wrong.stderr
    elsewhere = run("data", "write", "digits", out, "--in-pod")
    assert elsewhere.exit_code == 1
    assert "--in_pod: namespace default has no ConfigMap" in elsewhere.stderr
    again = run("data", "write", "digits", out)
    assert again.exit_code == 2
    assert "is there already" in again.stderr


def test_the_kubeconfig_may_be_the_only_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text(
        "{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], "
        "contexts: [{name: a, context: {cluster: c, namespace: there}}], current-context: a}"
    )
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert connected(Target(in_cluster=False), Tools()).namespace == "there"
    assert connected(Target(namespace="other"), Tools()).namespace == "other"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoKubeconfig):
        connected(Target(in_cluster=False), Tools())


def test_importing_the_command_does_not_import_torch() -> None:
    text = "import sys, elasticdl.client.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
