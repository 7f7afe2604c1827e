"""Flags become jobs; wrong ones are named."""

from __future__ import annotations

import pytest

from tidewater.cli.errors import UsageError
from tidewater.cli.job.manifest import Flags, from_flags
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


def several(**flags: object) -> Flags:
    """Return flags of a job with replicas of several pods."""
    return Flags(image="i", launcher=Launcher.TIDEWATER, rdzv_endpoint="etcd:2379", **flags)  # type: ignore[arg-type]


def test_numbers_of_workers_count_replicas_of_several_pods() -> None:
    spec = from_flags("d", several(workers=2, max=3, workers_per_replica=4), [])["spec"]
    assert (spec["minReplicas"], spec["replicaSpecs"]["Worker"]["replicas"], spec["maxReplicas"]) == (2, 2, 3)
    assert spec["workersPerReplica"] == 4
    assert "topologyKey" not in spec
    assert "workersPerReplica" not in from_flags("d", several(), [])["spec"]


@pytest.mark.parametrize("required", [False, True])
def test_pods_of_a_replica_are_kept_together_as_firmly_as_the_flags_say(required: bool) -> None:
    flags = several(workers_per_replica=2, topology_key="topology.kubernetes.io/zone", topology_required=required)
    spec = from_flags("d", flags, [])["spec"]
    assert spec["topologyKey"] == "topology.kubernetes.io/zone"
    assert spec.get("topologyRequired", False) is required


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (Flags(image="i", workers_per_replica=2), "--workers-per-replica 2 does not fit --launcher torchrun"),
        (several(topology_key="zone"), "--topology-key is about the pods of a replica"),
        (several(workers_per_replica=2, topology_required=True), "--topology-required is about --topology-key"),
    ],
)
def test_flags_of_replicas_that_there_are_not_are_refused(flags: Flags, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        from_flags("d", flags, [])


def test_a_jobs_name_has_room_for_the_number_of_its_last_pod() -> None:
    from_flags("a" * 54, several(max=5, workers_per_replica=2), [])
    with pytest.raises(UsageError, match=r"is too long: its pod a+-worker-11"):
        from_flags("a" * 54, several(max=6, workers_per_replica=2), [])
