"""The reader applies the model's defaults, and names the field of what it can't read; the writer loses nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elasticjob.manifests import ABSENT, ACCEPTED, POD, WORKER, Manifest, container, job, replica
from tests.elasticjob.mistakes import MISTAKES, Mistake
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.codec import InvalidJob
from tidewater.elasticjob.model import (
    CleanPodPolicy,
    Condition,
    Launcher,
    PodNames,
    ReplicaStatus,
    RestartPolicy,
    RestartScope,
    SchedulingPolicy,
    State,
    Status,
    SuccessPolicy,
)

MOMENTS = st.none() | st.datetimes(
    min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(UTC)
).map(lambda moment: moment.replace(microsecond=0))
COUNTS = st.integers(min_value=0, max_value=5000)
KEYS = st.text("abcdef-", min_size=1, max_size=9)
CONDITIONS = st.builds(
    Condition,
    type=st.sampled_from(list(names.ConditionType)).map(str),
    status=st.sampled_from(["True", "False", "Unknown"]),
    reason=st.sampled_from(["", "ElasticJobRunning"]),
    message=st.text(max_size=20),
    observed_generation=COUNTS,
    last_update_time=MOMENTS,
    last_transition_time=MOMENTS,
)
STATUSES = st.builds(
    Status,
    state=st.none() | st.sampled_from(State),
    conditions=st.lists(CONDITIONS, max_size=3).map(tuple),
    replica_statuses=st.dictionaries(
        KEYS, st.builds(ReplicaStatus, active=COUNTS, failed=COUNTS, next_index=st.none() | COUNTS), max_size=3
    ),
    replicas=COUNTS,
    selector=st.text(max_size=20),
    settled_replicas=st.none() | COUNTS,
    restarts=COUNTS,
    counted=st.dictionaries(KEYS, COUNTS, max_size=3),
    job_restarts=st.none() | COUNTS,
    restart_time=MOMENTS,
    start_time=MOMENTS,
    snoozed_until=MOMENTS,
)


def path_of(mistake: Mistake | Manifest) -> InvalidJob:
    """Return the error that the reader raises."""
    manifest = job(mistake.changes) if isinstance(mistake, Mistake) else mistake
    with pytest.raises(InvalidJob) as caught:
        codec.job_of(manifest)
    return caught.value


def test_the_blog_posts_job_is_read() -> None:
    found = codec.job_of(job())
    assert (found.name, found.namespace) == ("imagenet", "default")
    assert found.spec.rdzv_endpoint == "etcd-service:2379"
    assert found.bounds(names.WORKER) == (1, 3)
    assert found.spec.worker.replicas == 2
    assert found.spec.worker.restart_policy is RestartPolicy.EXIT_CODE
    assert found.spec.worker.template["kind"] == "Pod"


def test_what_is_absent_has_the_models_default() -> None:
    found = codec.job_of(job({f"{WORKER}/replicas": ABSENT, f"{WORKER}/restartPolicy": ABSENT}))
    assert found.spec.worker.replicas == 1
    assert found.spec.worker.restart_policy is RestartPolicy.EXIT_CODE
    assert found.spec.clean_pod_policy is CleanPodPolicy.NONE
    assert found.spec.success_policy is SuccessPolicy.RANK0
    assert found.spec.restart_scope is RestartScope.POD
    assert (found.spec.worker.pod_names, found.spec.worker.index_label) == (PodNames.INDEXED, None)
    assert found.spec.scheduling_policy == SchedulingPolicy()
    assert found.status == Status()


def test_an_empty_choice_of_the_old_controller_is_the_default() -> None:
    found = codec.job_of(job({f"{WORKER}/restartPolicy": "", "spec/cleanPodPolicy": ""}))
    assert found.spec.worker.restart_policy is RestartPolicy.EXIT_CODE
    assert found.spec.clean_pod_policy is CleanPodPolicy.NONE
    assert path_of(job({"spec/successPolicy": ""})).path == "spec.successPolicy"


@pytest.mark.parametrize(("launcher", "refused"), [("torchrun", True), ("tidewater", True), ("none", False)])
def test_it_must_be_clear_which_container_trains_if_the_launcher_needs_it(launcher: str, refused: bool) -> None:
    two = {f"{POD}/containers": [container("a"), container("b")]}
    named = job({**two, "metadata/annotations": {names.ANNOTATION_LAUNCHER: launcher}})
    if refused:
        assert path_of(named).path == "spec.replicaSpecs[Worker].template.spec.containers"
    else:
        assert codec.job_of(named).launcher is Launcher.NONE


def test_null_is_the_same_as_absent() -> None:
    assert codec.job_of(job({"spec/minReplicas": None, "status": None})).spec.min_replicas is None


def test_a_field_that_is_not_known_is_ignored() -> None:
    assert codec.job_of(job({"spec/fromTheFuture": 1})) == codec.job_of(job())


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_the_api_server_accepts_is_read(changes: Mapping[str, object]) -> None:
    codec.job_of(job(changes))


@pytest.mark.parametrize("mistake", [pytest.param(mistake, id=mistake.name) for mistake in MISTAKES if mistake.read])
def test_a_mistake_is_refused_by_the_name_of_its_field(mistake: Mistake) -> None:
    error = path_of(mistake)
    assert re.sub(r"\[([A-Za-z]\w*)\]", r".\1", error.path).startswith(mistake.field)
    assert str(error).startswith(f"{error.path}: ")


def test_a_single_pod_of_which_there_may_be_two_is_refused() -> None:
    error = path_of(job({"spec/replicaSpecs/PS": replica("a", podNames="Single", replicas=2)}))
    assert str(error) == "spec.replicaSpecs[PS].podNames: Single is for one pod, and the maximum is 2"


def test_a_pod_of_a_single_type_has_no_number_in_its_name() -> None:
    found = codec.job_of(job({"spec/replicaSpecs/Master": replica("a", podNames="Single")}))
    assert found.pod_name("Master", 0) == "imagenet-master"
    assert found.pod_name("Worker", 1) == "imagenet-worker-1"


def test_two_types_whose_pods_would_have_the_same_names_are_refused() -> None:
    error = path_of(job({"spec/replicaSpecs/PS": replica("a"), "spec/replicaSpecs/Ps": replica("a")}))
    assert (error.path, error.problem[:9]) == ("spec.replicaSpecs", "PS and Ps")


def test_an_unknown_launcher_in_the_annotation_is_refused() -> None:
    error = path_of(job({"metadata/annotations": {"tidewater.dev/launcher": "mpi"}}))
    assert error.path == "metadata.annotations[tidewater.dev/launcher]"
    assert "torchelastic, torchrun, tidewater, none" in error.problem


@pytest.mark.parametrize(
    ("annotation", "field", "launcher"),
    [
        (None, None, Launcher.TORCHELASTIC),
        ("none", None, Launcher.NONE),
        (None, "torchrun", Launcher.TORCHRUN),
        ("none", "tidewater", Launcher.TIDEWATER),
    ],
)
def test_the_launcher_is_the_fields_else_the_annotations_else_the_old_one(
    annotation: str | None, field: str | None, launcher: Launcher
) -> None:
    annotations = {names.ANNOTATION_LAUNCHER: annotation} if annotation else {}
    assert codec.job_of(job({"metadata/annotations": annotations, "spec/launcher": field})).launcher is launcher


@pytest.mark.parametrize(
    ("type", "bounds"), [("Worker", (1, 3)), ("Master", (1, 1)), ("PS", (1, 4))], ids=["worker", "fixed", "elastic"]
)
def test_bounds_take_the_defaults_into_account(type: str, bounds: tuple[int, int]) -> None:
    types = {"Master": replica("a"), "PS": replica("a", replicas=2, minReplicas=1, maxReplicas=4)}
    assert codec.job_of(job({f"spec/replicaSpecs/{name}": spec for name, spec in types.items()})).bounds(type) == bounds


def test_a_job_without_bounds_has_its_desired_size_only() -> None:
    assert codec.job_of(job({"spec/minReplicas": ABSENT, "spec/maxReplicas": ABSENT})).bounds("Worker") == (2, 2)


def test_metadata_is_read() -> None:
    metadata = {
        "name": "a",
        "namespace": "b",
        "uid": "c",
        "generation": 3,
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "deletionTimestamp": "2026-01-31T13:00:00Z",
        "labels": {"d": "e"},
    }
    found = codec.job_of(job({"metadata": metadata}))
    assert (found.uid, found.generation, found.resource_version, found.deleting) == ("c", 3, "7", True)
    assert found.created == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.labels == {"d": "e"}


@given(STATUSES)
def test_a_status_that_is_written_is_read_back(status: Status) -> None:
    written = json.loads(json.dumps(codec.status_object(status)))
    assert codec.job_of(job({"status": written})).status == status


def test_what_is_not_set_is_not_written() -> None:
    written = codec.status_object(Status(conditions=(Condition(type="Running", status="True"),)))
    assert written["conditions"] == [{"type": "Running", "status": "True", "observedGeneration": 0}]
    assert not {"startTime", "selector", "counted", "state"} & written.keys()


def test_times_are_written_in_utc_and_whole_seconds() -> None:
    moment = datetime(2026, 1, 31, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert codec.status_object(Status(start_time=moment))["startTime"] == "2026-01-31T12:00:00Z"


def test_a_status_of_the_old_controller_is_read() -> None:
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "ElasticJobRunning",
        "message": "ElasticJob imagenet is running.",
        "lastUpdateTime": "2020-03-10T18:32:17Z",
        "lastTransitionTime": "2020-03-10T18:32:17Z",
    }
    old = {"conditions": [condition], "replicaStatuses": {"Worker": {"active": 1}}}
    found = codec.job_of(job({"status": old})).status
    assert found.conditions[0].message == "ElasticJob imagenet is running."
    assert found.replica_statuses["Worker"] == ReplicaStatus(active=1)


def test_a_time_that_is_none_is_refused() -> None:
    assert path_of(job({"status": {"startTime": "yesterday"}})).path == "status.startTime"
