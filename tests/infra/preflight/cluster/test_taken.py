"""A name that others have on the stack's cluster is refused at every update; what a stack has made is its own."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from infra.preflight.cluster import taken
from infra.preflight.cluster.objects import Objects
from infra.preflight.cluster.taken import Inside
from tests import graph
from tests.infra.preflight.cluster import existing_cluster

NAME = existing_cluster.NAME
NAMESPACE, DEFINITION = "Namespace", "CustomResourceDefinition"
TEAMS: dict[str, Any] = {"fileAccess": "iam", "teams": [{"name": "vision", "maxWorkers": 2}]}


def stack(**changes: Any) -> settings.Settings:
    """Return the settings of a stack with a cluster of its own."""
    return settings.parse({**graph.defaults(), "monitoring": "none", **changes}, stack="dev")


def guest(**changes: Any) -> settings.Settings:
    """Return the settings of a stack on a cluster of others."""
    return stack(**{**existing_cluster.CONFIG, **changes})


def has(kind: str, *names: str, own: bool = False) -> Inside:
    return Inside(Objects({(kind, name): own for name in names}))


HELD: dict[str, tuple[dict[str, Any], Inside, str]] = {
    "the namespace of a team": (
        TEAMS,
        has(NAMESPACE, "vision"),
        "has a namespace of this name already, and it would be deleted with the team; give the team another name",
    ),
    "the namespace": ({}, has(NAMESPACE, "training"), "has one of this name already, and a destroy would delete it;"),
    "the controller's namespace": ({}, has(NAMESPACE, "tidewater-system"), "has the Namespace tidewater-system alr"),
    "the GPUs' namespace": ({}, has(NAMESPACE, "tidewater-devices"), "has the Namespace tidewater-devices already"),
    "Prometheus' namespace": (
        {"monitoring": "prometheus"},
        has(NAMESPACE, "tidewater-monitoring"),
        "has the Namespace tidewater-monitoring already, of another stack for example, and a destroy would delete it",
    ),
    "ElasticJobs of others": (
        {},
        has(DEFINITION, "elasticjobs.elastic.pytorch.org"),
        "has the CustomResourceDefinition elasticjobs.elastic.pytorch.org already",
    ),
    "a job of a person's": (
        {"jobName": "imagenet"},
        has("ElasticJob", "training/imagenet", "vision/imagenet", "training/digits"),
        "jobName = imagenet: the namespace training has an ElasticJob of this name already, which would be changed",
    ),
    "another Karpenter": (
        {},
        has(DEFINITION, "nodepools.karpenter.sh", "nodeclaims.karpenter.sh"),
        "has a Karpenter already, and there can be only one; set it to nodegroup",
    ),
}


@pytest.mark.parametrize(("changes", "there", "expected"), HELD.values(), ids=HELD.keys())
def test_what_others_have_is_one_mistake_on_any_cluster_and_at_any_update(
    changes: dict[str, Any], there: Inside, expected: str
) -> None:
    for wanted, new in ((stack(**changes), False), (guest(**changes), False), (guest(**changes), True)):
        (mistake,) = taken.mistakes(wanted, there, new=new)
        assert expected in mistake


@pytest.mark.parametrize(("changes", "there"), [each[:2] for each in HELD.values()], ids=HELD.keys())
def test_what_the_stack_has_made_is_its_own_and_that_of_another_stack_is_not(
    changes: dict[str, Any], there: Inside
) -> None:
    ours = Inside(Objects(dict.fromkeys(there.objects.found, True)))
    assert taken.mistakes(stack(**changes), ours, new=False) == []
    assert taken.mistakes(guest(**changes), ours, new=False) == []
    assert len(taken.mistakes(guest(**changes), ours, new=True)) == 1


def test_what_has_lost_the_labels_of_the_stack_can_get_them_back() -> None:
    wanted = "app.kubernetes.io/part-of=tidewater app.kubernetes.io/managed-by=pulumi"
    (space,) = taken.mistakes(stack(**TEAMS), has(NAMESPACE, "vision"), new=False)
    assert space.endswith(f"If the stack has made it: kubectl label namespace vision {wanted}")
    two = has(DEFINITION, "nodepools.karpenter.sh", "nodeclaims.karpenter.sh")
    (karpenter,) = taken.mistakes(stack(), two, new=False)
    both = "kubectl label customresourcedefinition nodepools.karpenter.sh nodeclaims.karpenter.sh"
    assert karpenter.endswith(f"{both} {wanted}")
    assert "kubectl" not in taken.mistakes(guest(**TEAMS), has(NAMESPACE, "vision"), new=True)[0]


def test_what_the_stack_does_not_make_may_be_there() -> None:
    assert taken.mistakes(stack(surgeNodes="nodegroup"), has(DEFINITION, "nodepools.karpenter.sh"), new=False) == []
    assert taken.mistakes(stack(gpusPerWorker=0), has(NAMESPACE, "tidewater-devices"), new=False) == []
    assert taken.mistakes(stack(), has(NAMESPACE, "tidewater-monitoring", "vision", "default"), new=False) == []
    assert taken.mistakes(stack(), None, new=False) == taken.warnings(stack(), None) == []


def test_an_api_server_that_can_not_be_asked_is_a_warning_since_nothing_is_made_there_either() -> None:
    unread = Inside(unread="no connection within 10 s")
    (warning,) = taken.warnings(stack(), unread)
    assert warning.startswith("the cluster tidewater-dev: whether the names of the stack's namespaces are free could")
    assert warning.endswith("no connection within 10 s")
    assert taken.mistakes(stack(), unread, new=False) == []
    assert taken.warnings(guest(), unread) == [], "there it is a mistake"
