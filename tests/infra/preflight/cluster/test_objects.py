"""What is on a cluster is read with its kubeconfig, and who has made it; a refusal is in words."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from infra.preflight.cluster import objects
from infra.preflight.cluster.kubeconfig import kubeconfig
from infra.preflight.cluster.objects import NoAnswer, Objects, made_by_a_stack
from tests import graph
from tests.infra.policies.test_teams import TEAMS
from tidewater.elasticjob import names
from tidewater.kube.cluster import EVERYTHING, Listing, Selection
from tidewater.kube.errors import Forbidden
from tidewater.kube.kinds import PRIORITY_CLASSES, Kind, missing
from tidewater.kube.kubeconfig import Access, load

CLASSES = ("system-node-critical", "usual")
THERE = settings.ExistingCluster("platform", "https://platform.eks.example", "c2VjcmV0", "sg-1")
TEXT = kubeconfig(THERE, "us-west-2", "")


class Server:
    """A cluster with a namespace and a definition that people have made, and a namespace and a job of a stack's."""

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        own = dict(objects.OWN_LABELS)
        if kind.namespaced:
            assert selection.namespace == "*"
            return Listing([{"metadata": {"name": "digits", "namespace": "training", "labels": own}}], "1")
        if kind == PRIORITY_CLASSES:
            return Listing([{"metadata": {"name": name}, "globalDefault": name == "usual"} for name in CLASSES], "1")
        found = {"namespaces": [{"name": "training", "labels": {**own, "team": "ml"}}, {"name": "vision"}]}
        return Listing([{"metadata": each} for each in found.get(kind.plural, [{"name": f"a-{kind.plural}"}])], "1")


class WithoutJobs(Server):
    """A cluster that doesn't know ElasticJobs."""

    def list(self, kind: Kind, selection: Selection = EVERYTHING) -> Listing:
        if kind.namespaced:
            raise missing(kind)
        return super().list(kind, selection)


OTHERS = {
    ("Namespace", "training"): True,
    ("Namespace", "vision"): False,
    ("CustomResourceDefinition", "a-customresourcedefinitions"): False,
}


@pytest.mark.parametrize(
    ("server", "jobs"), [(Server(), {("ElasticJob", "training/digits"): True}), (WithoutJobs(), {})]
)
def test_what_people_may_have_made_is_listed(
    server: Server, jobs: dict[tuple[str, str], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Access] = []

    def connect(access: Access, *, interactive: bool) -> Server:
        assert not interactive
        asked.append(access)
        return server

    monkeypatch.setattr(objects, "connect", connect)
    assert objects.look(TEXT) == Objects(OTHERS | jobs, default_priority="usual")
    (access,) = asked
    assert load(access, {}).server == THERE.endpoint


def test_a_refusal_is_an_answer_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: Any, *, interactive: bool) -> Any:
        raise Forbidden("namespaces is forbidden", "Ask for the right.", status=403)

    monkeypatch.setattr(objects, "connect", connect)
    with pytest.raises(NoAnswer, match=r"namespaces is forbidden"):
        objects.look(TEXT)


def test_all_of_these_that_the_stack_makes_are_known_as_its_own() -> None:
    made = graph.production(**{**TEAMS, "monitoring": "prometheus"})
    kinds = (
        "kubernetes:core/v1:Namespace",
        "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition",
        f"kubernetes:{names.API_VERSION}:{names.KIND}",
    )
    found = [each.inputs["metadata"] for kind in kinds for each in made.all(kind)]
    assert {"training", "vision", "speech", "tidewater-monitoring", "digits"} <= {each["name"] for each in found}
    assert [each["name"] for each in found if not made_by_a_stack(each)] == []


@pytest.mark.parametrize(
    ("metadata", "own"),
    [
        ({"name": "nodepools.karpenter.sh", "managedFields": [{"manager": "pulumi-kubernetes-1a2b3c4d"}]}, True),
        ({"name": "nodepools.karpenter.sh", "labels": dict(objects.OWN_LABELS)}, True),
        ({"name": "nodepools.karpenter.sh", "managedFields": [{"manager": "helm"}]}, False),
        ({"name": "vision", "managedFields": [{"manager": "pulumi-kubernetes-1a2b3c4d"}]}, False),
        ({"name": "vision", "labels": {"app.kubernetes.io/managed-by": "pulumi"}}, False),
        ({"name": "tidewater-system", "labels": {"app.kubernetes.io/name": "tidewater"}}, False),
        ({"name": "vision", "labels": None}, False),
    ],
)
def test_what_others_have_made_with_the_same_tools_is_theirs(metadata: dict[str, Any], own: bool) -> None:
    assert made_by_a_stack(metadata) is own
