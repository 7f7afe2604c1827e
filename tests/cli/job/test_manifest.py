"""Flags and files become jobs; wrong ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewater.cli.errors import UsageError
from tidewater.cli.job.manifest import Flags, from_file, from_flags
from tidewater.elasticjob.choices import Launcher
from tidewater.kube.cluster import Object


def container(found: Object) -> Object:
    (only,) = found["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    result: Object = only
    return result


def test_flags_become_a_job_with_its_bounds() -> None:
    found = from_flags("digits", Flags(image="i", workers=2, min=1, max=4), [])
    assert found["spec"]["minReplicas"] == 1
    assert found["spec"]["replicaSpecs"]["Worker"]["replicas"] == 2
    assert found["spec"]["maxReplicas"] == 4


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(Flags(image="i"), (1, 1, 1), id="one-worker-by-default"),
        pytest.param(Flags(image="i", workers=3), (3, 3, 3), id="fixed"),
        pytest.param(Flags(image="i", max=4), (1, 1, 4), id="only-the-most"),
        pytest.param(Flags(image="i", min=2), (2, 2, 2), id="only-the-fewest"),
        pytest.param(Flags(image="i", min=2, max=4), (2, 2, 4), id="begins-with-the-fewest"),
    ],
)
def test_sizes_that_are_left_out_follow_from_the_others(flags: Flags, expected: tuple[int, int, int]) -> None:
    spec = from_flags("digits", flags, [])["spec"]
    assert (spec["minReplicas"], spec["replicaSpecs"]["Worker"]["replicas"], spec["maxReplicas"]) == expected


@pytest.mark.parametrize(
    ("flags", "words", "command", "arguments"),
    [
        pytest.param(
            Flags(image="i", script="t.py", gpus=2),
            ["--lr", "1"],
            ["torchrun"],
            ["--nproc-per-node=2", "t.py", "--lr", "1"],
            id="torchrun-runs-the-script-once-per-gpu",
        ),
        pytest.param(
            Flags(image="i", script="t.py", launcher=Launcher.NONE),
            ["a"],
            ["python3"],
            ["t.py", "a"],
            id="plain",
        ),
        pytest.param(Flags(image="i"), ["torchrun", "-m", "x"], ["torchrun"], ["-m", "x"], id="own-command-line"),
        pytest.param(Flags(image="i"), [], None, None, id="the-image's-entry-point"),
    ],
)
def test_what_a_worker_runs(
    flags: Flags, words: list[str], command: list[str] | None, arguments: list[str] | None
) -> None:
    found = container(from_flags("digits", flags, words))
    assert found.get("command") == command
    assert found.get("args") == arguments


def test_the_first_worker_is_where_torchrun_meets() -> None:
    assert from_flags("digits", Flags(image="i"), [])["spec"]["rdzvEndpoint"] == "digits-worker-0:29400"


def test_resources_and_environment_go_into_the_container() -> None:
    found = container(from_flags("d", Flags(image="i", gpus=1, cpu="2", memory="8Gi", env=["A=b=c", "E="]), []))
    assert found["resources"] == {
        "requests": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"},
    }
    assert found["env"] == [{"name": "A", "value": "b=c"}, {"name": "E", "value": ""}]


def test_a_worker_of_the_trainer_starts_a_process_for_each_gpu_and_each_serves_metrics() -> None:
    flags = Flags(image="i", gpus=4, launcher=Launcher.TIDEWATER, rdzv_endpoint="etcd:2379")
    found = container(from_flags("d", flags, []))
    assert found["env"] == [
        {"name": "TIDEWATER_PROCESSES", "value": "4"},
        {"name": "TIDEWATER_METRICS_PORT", "value": "9464"},
    ]
    assert [port["containerPort"] for port in found["ports"]] == [9464, 9465, 9466, 9467]


def test_a_metrics_port_of_the_users_own_is_left_alone() -> None:
    flags = Flags(
        image="i", launcher=Launcher.TIDEWATER, rdzv_endpoint="etcd:2379", env=["TIDEWATER_METRICS_PORT=9000"]
    )
    found = container(from_flags("d", flags, []))
    assert found["env"] == [{"name": "TIDEWATER_METRICS_PORT", "value": "9000"}]
    assert "ports" not in found


def test_without_a_stack_too_a_pool_is_a_node_selector_with_the_toleration_of_its_nodes() -> None:
    pod = from_flags("d", Flags(image="i", pool="big"), [])["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["nodeSelector"] == {"tidewater.dev/pool": "big"}
    assert "tidewater.dev/worker" in {each["key"] for each in pod["tolerations"]}
    plain = from_flags("d", Flags(image="i"), [])["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    assert plain.keys() == {"containers"}


def test_queue_and_priority_become_a_scheduling_policy() -> None:
    found = from_flags("d", Flags(image="i", queue="q", priority=0), [])
    assert found["spec"]["schedulingPolicy"] == {"queue": "q", "priority": 0}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        pytest.param(Flags(), "--image is missing", id="no-image"),
        pytest.param(Flags(image="i", workers=1, min=2), "--workers 1 is fewer than --min 2", id="too-few"),
        pytest.param(Flags(image="i", workers=5, max=4), "--workers 5 is more than --max 4", id="too-many"),
        pytest.param(Flags(image="i", min=3, max=2), "--min 3 is more than --max 2", id="crossed"),
        pytest.param(Flags(image="i", autoscale=True), "--autoscale has no room", id="autoscale-fixed"),
        pytest.param(Flags(image="i", priority=1), "--priority", id="priority-without-queue"),
        pytest.param(Flags(image="i", env=["A"]), "--env 'A' is not NAME=VALUE", id="environment"),
        pytest.param(Flags(image="i", memory="8 GB"), "--memory '8 GB' is not an amount", id="memory"),
        pytest.param(Flags(image="i", launcher=Launcher.TIDEWATER), "--rdzv-endpoint is missing", id="no-etcd"),
        pytest.param(
            Flags(image="i", launcher=Launcher.NONE, rdzv_backend="c10d"), "--rdzv-backend does not fit", id="backend"
        ),
    ],
)
def test_a_wrong_flag_is_named(flags: Flags, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        from_flags("digits", flags, [])


@pytest.mark.parametrize("first", ["python", "python3.11", "/usr/bin/python3", "bash"])
def test_launcher_flags_are_not_given_to_what_is_no_launcher(first: str) -> None:
    with pytest.raises(UsageError, match="does not take the flags of --launcher torchrun"):
        from_flags("digits", Flags(image="i"), [first, "train.py"])


@pytest.mark.parametrize("name", ["Digits", "-a", "a.b", "a_b", ""])
def test_a_name_that_no_pod_can_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a name for a job"):
        from_flags(name, Flags(image="i"), [])


def test_a_name_too_long_for_the_last_pod_says_by_how_much() -> None:
    from_flags("x" * 54, Flags(image="i", max=10), [])
    with pytest.raises(UsageError, match="too long") as caught:
        from_flags("x" * 54, Flags(image="i", max=11), [])
    assert "take 1 off" in caught.value.remedy


JOB = """\
apiVersion: elastic.pytorch.org/v1alpha1
kind: ElasticJob
metadata: {name: imagenet, namespace: elastic-job}
spec: {rdzvEndpoint: "etcd:2379"}
"""
METADATA = "{name: imagenet, namespace: elastic-job}"


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"---\n{JOB}---\n")
    (found,) = from_file(str(file))
    assert found["spec"] == {"rdzvEndpoint": "etcd:2379"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: [", "is not YAML", id="no-yaml"),
        pytest.param("", "there is no ElasticJob", id="empty"),
        pytest.param("kind: Service", "document 1 is Service, not ElasticJob", id="another-kind"),
        pytest.param(JOB + "---\n- a", "document 2 is list, not ElasticJob", id="a-list"),
        pytest.param(JOB.replace("v1alpha1", "v1"), "apiVersion elastic.pytorch.org/v1", id="version"),
        pytest.param(JOB.replace("name: imagenet, ", ""), "has no metadata.name", id="nameless"),
        pytest.param(JOB.replace(METADATA, ""), "has no metadata.name", id="metadata-is-null"),
        pytest.param(
            JOB.replace(METADATA, "foo"), "metadata of document 1 is str, not a mapping", id="metadata-is-text"
        ),
        pytest.param(
            JOB.replace(METADATA, "[]"), "metadata of document 1 is list, not a mapping", id="metadata-is-a-list"
        ),
        pytest.param(JOB + "x: !!binary aGk=", "document 1 has what JSON can't express", id="bytes"),
        pytest.param(JOB + "x: .inf", "document 1 has what JSON can't express", id="infinity"),
        pytest.param(JOB + "x: &a [*a]", "document 1 has what JSON can't express", id="recursive"),
        pytest.param(JOB + "x: !!int z", "is not YAML", id="wrong-tag"),
    ],
)
def test_a_wrong_file_is_named_with_its_document(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=expected) as caught:
        from_file(str(file))
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"-f nowhere\.yaml can't be read: No such file"):
        from_file("nowhere.yaml")


def test_a_namespace_other_than_the_files_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with pytest.raises(UsageError, match="--namespace other is not the namespace of imagenet, elastic-job"):
        from_file(str(file), "other")


def test_dates_and_times_of_day_stay_text(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace('"etcd:2379"', '"etcd:2379", args: [--from, 2024-01-01, 12:30:45]'))
    (found,) = from_file(str(file))
    assert found["spec"]["args"] == ["--from", "2024-01-01", "12:30:45"]


def test_a_null_namespace_is_none(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("namespace: elastic-job", "namespace:"))
    (found,) = from_file(str(file), "other")
    assert found["metadata"] == {"name": "imagenet", "namespace": "other"}
    (found,) = from_file(str(file))
    assert found["metadata"] == {"name": "imagenet"}
