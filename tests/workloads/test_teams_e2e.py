"""A team with a real API server: which pods its quotas refuse and let through, and what its people may do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import settings
from tests.control_plane import Plane, eventually, named, running
from tests.infra.preflight.world import region, stack
from tidewater.elasticjob import names
from tidewater.elasticjob.install.access import users_roles
from tidewater.kube.cluster import Selection
from tidewater.kube.kinds import NAMESPACES, SERVICE_ACCOUNTS, Kind
from workloads import people
from workloads.namespace import PriorityClasses, priority_class_manifest
from workloads.teams import limits_manifest, people_manifest, quota_manifests

pytestmark = pytest.mark.e2e

TEAM = settings.Team("vision", (), 1, 2)
CLASSES = PriorityClasses("training")
ROLES = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False)
QUOTAS = Kind("v1", "ResourceQuota", "resourcequotas")
USUAL = "usual"
"""The priority class that the cluster's owner gives to pods that name none."""


def class_of_owner(name: str) -> dict[str, Any]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": 900_000, "globalDefault": name == USUAL}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane with a team's namespace, the stack's priority classes and those of the cluster's owner."""
    wanted = stack()
    workers = wanted.with_hardware(region(wanted).types).workers
    with running(tmp_path_factory.mktemp("teams")) as found:
        found.start_controllers()
        found.apply(
            named(TEAM.name, NAMESPACES),
            *(priority_class_manifest(name, wanted) for name, wanted in CLASSES.values().items()),
            *(class_of_owner(name) for name in ("critical", USUAL)),
            *quota_manifests(TEAM, workers, 3, CLASSES, USUAL),
            limits_manifest(TEAM.name, workers),
            *people.role_manifests(),
            *users_roles({}),
            people_manifest(TEAM),
        )
        server = found.server()
        eventually(lambda: server.get(SERVICE_ACCOUNTS, "default", TEAM.name))
        quotas = Selection(namespace=TEAM.name)
        eventually(lambda: all(each["status"]["hard"] for each in server.list(QUOTAS, quotas).items))
        yield found


def refusal(plane: Plane, name: str, priority: str) -> str:
    """Make a pod of the team's; return why it is refused, or an empty text."""
    container = {"name": "main", "image": "any", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
    named_class = {"priorityClassName": priority} if priority else {}
    metadata = {"name": name, "namespace": TEAM.name}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **named_class}}
    status, answer = plane.request("POST", f"/api/v1/namespaces/{TEAM.name}/pods", pod)
    return "" if status == 201 else str(answer["message"])


def test_pods_get_the_classes_of_their_team_and_that_of_pods_that_name_none(plane: Plane) -> None:
    for number, priority in enumerate((CLASSES.core, CLASSES.surge, CLASSES.etcd, USUAL, "")):
        assert refusal(plane, f"own-{number}", priority) == ""
    assert "exceeded quota: core-workers" in refusal(plane, "second-core", CLASSES.core)


@pytest.mark.parametrize("priority", ["critical", "system-node-critical", CLASSES.controller])
def test_every_other_class_of_the_cluster_is_refused(plane: Plane, priority: str) -> None:
    assert "exceeded quota: other-classes" in refusal(plane, "other", priority)


Right = tuple[str, str, str]
"""A verb, an API group and a resource."""


def rights(plane: Plane, role: str) -> set[Right]:
    """Return what a role allows once Kubernetes has put it together; the API group `extensions` is no more."""
    server = plane.server()

    def rules() -> list[dict[str, Any]]:
        found = server.get(ROLES, role).get("rules") or []
        kinds = {kind for each in found for kind in each["resources"]}
        return found if {names.PLURAL, "pods", "secrets"} <= kinds else []

    return {
        (verb, group, kind)
        for each in eventually(rules)
        for verb in each["verbs"]
        for group in each["apiGroups"]
        for kind in each["resources"]
        if group != "extensions"
    }


def test_people_have_all_of_edit_but_the_writing_of_network_policies(plane: Plane) -> None:
    group, verbs = "networking.k8s.io", ("create", "delete", "deletecollection", "patch", "update")
    policies = {(verb, group, "networkpolicies") for verb in verbs}
    edit = rights(plane, "edit")
    assert policies < edit
    assert rights(plane, people.ROLE) == edit - policies


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace", "allowed"),
    [
        ("create", names.GROUP, names.PLURAL, "vision", True),
        ("create", "", "pods", "vision", True),
        ("get", "networking.k8s.io", "networkpolicies", "vision", True),
        ("create", "networking.k8s.io", "networkpolicies", "vision", False),
        ("delete", "networking.k8s.io", "networkpolicies", "vision", False),
        ("update", "", "resourcequotas", "vision", False),
        ("create", "", "pods", "default", False),
    ],
)
def test_a_person_has_them_in_the_namespace_of_her_team(
    plane: Plane, verb: str, group: str, resource: str, namespace: str, allowed: bool
) -> None:
    rights(plane, people.ROLE)
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "ada", "groups": [TEAM.group], "resourceAttributes": asked},
    }
    _, answer = plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"]["allowed"] is allowed
