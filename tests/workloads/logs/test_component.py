"""What keeps the logs of a namespace's jobs: which logs it may read, which files it writes, and what it reaches."""

from __future__ import annotations

from typing import Any

import pytest

from tests import graph
from tests.infra.policies.test_teams import TEAMS
from tests.security.reach import Host, Network, Pod
from tidewater.cli.job.kept import reader
from tidewater.elasticjob import names
from workloads.logs.in_pod import keep

SPACES = ("training", "vision", "speech")
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
API_SERVER = Host("10.0.32.5")


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    """Return the graph of the production example with two teams, which keeps logs."""
    return graph.production(**TEAMS, jobLogDays=14)


def of(made: graph.Graph, type_: str) -> dict[str, Any]:
    """Return the inputs of the objects named `logs` of a kind, by namespace."""
    found = (each.inputs for each in made.all(type_) if each.inputs["metadata"]["name"] == "logs")
    return {each["metadata"]["namespace"]: each for each in found}


def test_each_namespace_has_its_own_and_without_the_setting_none_has(made: graph.Graph) -> None:
    assert of(made, DEPLOYMENT).keys() == {*SPACES}
    assert of(graph.production(**TEAMS), DEPLOYMENT) == {}


def test_it_may_read_pods_and_logs_of_its_namespace_only(made: graph.Graph) -> None:
    group = "kubernetes:rbac.authorization.k8s.io/v1"
    roles, bindings = of(made, f"{group}:Role"), of(made, f"{group}:RoleBinding")
    for space in SPACES:
        allowed = {verb for rule in roles[space]["rules"] for verb in rule["verbs"]}
        assert allowed == {"get", "list", "watch"}
        assert {each for rule in roles[space]["rules"] for each in rule["resources"]} == {"pods", "pods/log"}
        (subject,) = bindings[space]["subjects"]
        assert (subject["name"], subject["namespace"]) == ("logs", space)
    everywhere = made.all(f"{group}:ClusterRoleBinding")
    assert not [each for each in everywhere if "'logs'" in str(each.inputs["subjects"])]


def test_the_program_finds_the_pods_of_jobs_by_the_labels_that_they_have(made: graph.Graph) -> None:
    (container,) = of(made, DEPLOYMENT)["vision"]["spec"]["template"]["spec"]["containers"]
    given = dict(word.removeprefix("--").split("=", 1) for word in container["command"][2:])
    found = keep.Names(given["selector"], given["job-label"], given["uid-label"], given["container"])
    labels = {**names.pod_labels("digits", names.WORKER, 0), names.LABEL_JOB_UID: "uid"}
    key, _, value = found.selector.partition("=")
    assert labels[key] == value
    pod = found.pod(
        {
            "metadata": {"name": "digits-worker-0", "uid": "a", "labels": labels},
            "spec": {"containers": [{"name": names.WORKER_CONTAINER}]},
            "status": {"containerStatuses": [{"name": names.WORKER_CONTAINER, "state": {"running": {}}}]},
        }
    )
    assert pod is not None
    assert (pod.job, pod.job_uid) == ("digits", "uid")
    assert (given["directory"], given["days"]) == ("/data/logs", "14")


@pytest.mark.parametrize("space", SPACES)
def test_it_and_its_readers_mount_the_claim_of_their_namespace(made: graph.Graph, space: str) -> None:
    deployment = of(made, DEPLOYMENT)[space]
    pod = reader(deployment, "tidewater-logs-1", ["--job=digits"])["spec"]
    for spec in (deployment["spec"]["template"]["spec"], pod):
        assert {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} in spec["volumes"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["command"][:2] == ["python3", "/program/read.py"]
    assert {"keep.py", "read.py"} == of(made, "kubernetes:core/v1:ConfigMap")[space]["data"].keys()


def test_it_reaches_the_api_server_and_no_pod_and_no_pod_reaches_it(made: graph.Graph) -> None:
    policies = [each.inputs for each in made.all("kubernetes:networking.k8s.io/v1:NetworkPolicy")]
    spaces = {each: {"kubernetes.io/metadata.name": each} for each in (*SPACES, "kube-system")}
    network = Network(policies, spaces)
    own = of(made, DEPLOYMENT)["vision"]["spec"]["template"]["metadata"]["labels"]
    writer, worker = Pod("vision", own), Pod("vision", dict(names.pod_labels("digits", names.WORKER, 0)))
    assert network.lets(writer, API_SERVER, 443)
    for one, other in ((writer, worker), (worker, writer), (Pod("speech", own), writer)):
        assert not network.lets(one, other, 40123)
