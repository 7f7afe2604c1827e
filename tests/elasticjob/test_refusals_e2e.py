"""A real API server accepts the definition, and refuses every mistake with a sentence that names the field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest

from tests.control_plane import Plane, PlaneError, eventually, running
from tests.elasticjob.manifests import ABSENT, ACCEPTED, POD, WORKER, Manifest, changed, job, replica
from tests.elasticjob.mistakes import MISTAKES, Mistake
from tidewater.elasticjob import codec, crd, names
from tidewater.elasticjob.model import ReplicaStatus, State, Status

pytestmark = pytest.mark.e2e

JOBS = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
INVALID = HTTPStatus.UNPROCESSABLE_ENTITY


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """Yield an API server that has the definition."""
    with running(tmp_path_factory.mktemp("api-server")) as found:
        found.define_jobs()
        yield found


@pytest.fixture
def stored(server: Plane) -> Iterator[Manifest]:
    """Yield imagenet as it is stored."""
    status, found = server.request("POST", JOBS, job())
    assert status == HTTPStatus.CREATED, found
    yield found
    server.request("DELETE", f"{JOBS}/imagenet")


def refusal(answer: Mapping[str, Any], field: str) -> str:
    """Return what a refusal says of a field."""
    causes = answer["details"]["causes"]
    said = [cause["message"] for cause in causes if re.sub(r"\[([A-Za-z]\w*)\]", r".\1", cause["field"]) == field]
    assert said, causes
    return " ".join(said)


@pytest.mark.parametrize("mistake", [pytest.param(mistake, id=mistake.name) for mistake in MISTAKES])
def test_a_mistake_is_refused_with_a_sentence_that_names_the_field(server: Plane, mistake: Mistake) -> None:
    status, answer = server.request("POST", f"{JOBS}?dryRun=All", job(mistake.changes))
    assert status == INVALID, answer
    assert mistake.says in refusal(answer, mistake.field)


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_the_old_controller_accepted_and_what_is_new_is_accepted(
    server: Plane, changes: Mapping[str, object]
) -> None:
    status, answer = server.request("POST", f"{JOBS}?dryRun=All&fieldValidation=Strict", job(changes))
    assert status == HTTPStatus.CREATED, answer
    codec.job_of(answer)


def test_a_generated_name_may_be_as_long_as_the_api_server_makes_it(server: Plane) -> None:
    generated = {"metadata/name": ABSENT, "metadata/generateName": f"1.{'a' * 200}-"}
    status, answer = server.request("POST", f"{JOBS}?dryRun=All", job(generated))
    assert status == HTTPStatus.CREATED, answer
    assert len(names.service_name(codec.job_of(answer).name)) <= len(answer["metadata"]["name"]) == 63


def test_a_template_is_stored_as_it_was_written(stored: Manifest) -> None:
    assert stored["spec"]["replicaSpecs"]["Worker"]["template"] == job()["spec"]["replicaSpecs"]["Worker"]["template"]


def test_defaults_are_filled_in(server: Plane) -> None:
    _, answer = server.request("POST", f"{JOBS}?dryRun=All", job({f"{WORKER}/replicas": ABSENT}))
    assert answer["spec"]["replicaSpecs"]["Worker"]["replicas"] == 1
    assert (answer["spec"]["backoffLimit"], answer["spec"]["cleanPodPolicy"]) == (20, "None")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec/rdzvEndpoint": "elsewhere:2379"}, "spec.rdzvEndpoint"),
        ({"spec/rdzvBackend": "static"}, "spec.rdzvBackend"),
        ({"spec/launcher": "torchrun"}, "spec.launcher"),
        ({"spec/replicaSpecs/PS": replica("a")}, "spec.replicaSpecs"),
        ({f"{WORKER}/podNames": "Successive"}, "spec.replicaSpecs.Worker.podNames"),
        ({f"{WORKER}/indexLabel": "example.com/rank"}, "spec.replicaSpecs.Worker.indexLabel"),
    ],
    ids=["endpoint", "backend", "launcher", "types", "names", "label"],
)
def test_what_is_immutable_cannot_be_changed(
    server: Plane, stored: Manifest, changes: Mapping[str, object], field: str
) -> None:
    status, answer = server.request("PUT", f"{JOBS}/imagenet", changed(stored, changes))
    assert status == INVALID, answer
    assert "immutable" in refusal(answer, field)


@pytest.mark.parametrize(
    "changes",
    [
        {f"{WORKER}/replicas": 3},
        {"spec/minReplicas": 2, "spec/maxReplicas": 5},
        {f"{POD}/containers/0/image": "another"},
        {"spec/suspend": True},
        {"spec/restartScope": "Job", "spec/successPolicy": "AllPods"},
    ],
    ids=["size", "bounds", "template", "suspend", "policies"],
)
def test_everything_else_can_be_changed(server: Plane, stored: Manifest, changes: Mapping[str, object]) -> None:
    status, answer = server.request("PUT", f"{JOBS}/imagenet", changed(stored, changes))
    assert status == HTTPStatus.OK, answer
    assert answer["metadata"]["generation"] == 2


def test_kubectl_scale_changes_the_desired_size(server: Plane, stored: Manifest) -> None:
    server.kubectl("scale", "ej/imagenet", "--replicas=3")
    _, found = server.request("GET", f"{JOBS}/imagenet")
    assert found["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3


def test_kubectl_scale_beyond_the_maximum_is_refused(server: Plane, stored: Manifest) -> None:
    with pytest.raises(PlaneError, match=r"replicaSpecs\.Worker\.replicas \(4\) must not be above maxReplicas \(3\)\."):
        server.kubectl("scale", "ej/imagenet", "--replicas=4")


def test_an_autoscaler_finds_the_size_and_the_selector(server: Plane, stored: Manifest) -> None:
    selector = "job-name=imagenet,replica-type=worker"
    status = codec.status_object(Status(replicas=1, selector=selector, state=State.RUNNING))
    server.request("PUT", f"{JOBS}/imagenet/status", {**stored, "status": status})
    _, scale = server.request("GET", f"{JOBS}/imagenet/scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": selector}


def test_a_status_is_stored_apart_from_the_spec(server: Plane, stored: Manifest) -> None:
    status = codec.status_object(Status(state=State.RUNNING, replica_statuses={"Worker": ReplicaStatus(active=2)}))
    both = changed(stored, {"spec/suspend": True, "status": status})
    _, found = server.request("PUT", f"{JOBS}/imagenet/status", both)
    assert found["spec"]["suspend"] is False
    assert found["metadata"]["generation"] == 1
    assert codec.job_of(found).status.replica_statuses["Worker"].active == 2


def test_kubectl_get_shows_state_and_numbers(server: Plane, stored: Manifest) -> None:
    status = codec.status_object(Status(state=State.RUNNING, replica_statuses={"Worker": ReplicaStatus(active=2)}))
    server.request("PUT", f"{JOBS}/imagenet/status", {**stored, "status": status})
    header, row = server.kubectl("get", "ej").splitlines()
    assert header.split() == ["NAME", "STATE", "DESIRED", "ACTIVE", "MIN", "MAX", "WAITING", "AGE"]
    assert row.split()[:6] == ["imagenet", "Running", "2", "2", "1", "3"]


def test_kubectl_explain_shows_the_models_text(server: Plane) -> None:
    published = f"/openapi/v3/apis/{names.API_VERSION}"
    eventually(lambda: server.request("GET", published)[0] == HTTPStatus.OK)
    shown = " ".join(server.kubectl("explain", "elasticjob.spec.minReplicas").split())
    assert "Fewest workers with which the training can run." in shown


def test_kubectl_apply_twice_changes_nothing(server: Plane) -> None:
    server.apply(crd.definition())
    before = server.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.CRD_NAME}")[1]
    server.apply(crd.definition())
    after = server.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.CRD_NAME}")[1]
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


def without_rules(schema: Any) -> Any:
    """Return a schema that has types alone, as the old controller's definition had."""
    if isinstance(schema, list):
        return [without_rules(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: without_rules(value) for key, value in schema.items() if key != "x-kubernetes-validations"}


def test_a_job_of_an_older_definition_that_breaks_a_rule_can_be_mended_and_not_changed_otherwise(
    server: Plane,
) -> None:
    beyond = job({f"{WORKER}/replicas": 7})
    another = {**beyond, "metadata": {**beyond["metadata"], "name": "another"}}

    def accepts_it() -> bool:
        return server.request("POST", f"{JOBS}?dryRun=All", another)[0] == HTTPStatus.CREATED

    server.apply(without_rules(crd.definition()))
    eventually(accepts_it)
    _, stored = server.request("POST", JOBS, beyond)
    server.apply(crd.definition())
    eventually(lambda: not accepts_it())
    status = codec.status_object(Status(state=State.RUNNING, replica_statuses={"Worker": ReplicaStatus(active=7)}))
    code, answer = server.request("PUT", f"{JOBS}/imagenet/status", {**stored, "status": status})
    assert code == INVALID, answer
    assert "must not be above maxReplicas" in refusal(answer, "spec.replicaSpecs.Worker.replicas")
    server.kubectl("scale", "ej/imagenet", "--replicas=3")
    code, answer = server.request("DELETE", f"{JOBS}/imagenet")
    assert code == HTTPStatus.OK, answer
