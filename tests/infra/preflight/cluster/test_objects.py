"""What is on an existing cluster is read with its kubeconfig; a refusal is in words."""

from __future__ import annotations

from typing import Any

import pytest

import settings
from infra.preflight.cluster import objects
from infra.preflight.cluster.kubeconfig import kubeconfig
from infra.preflight.cluster.objects import NoAnswer
from tidewater.kube.cluster import Listing
from tidewater.kube.errors import Forbidden
from tidewater.kube.kinds import Kind
from tidewater.kube.kubeconfig import Access, load

THERE = settings.ExistingCluster("platform", "https://platform.eks.example", "c2VjcmV0", "sg-1")
TEXT = kubeconfig(THERE, "us-west-2", "")


class Server:
    """A cluster with a namespace and a definition."""

    def list(self, kind: Kind) -> Listing:
        assert not kind.namespaced
        return Listing([{"metadata": {"name": f"a-{kind.plural}"}}], "1")


def test_namespaces_and_definitions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Access] = []

    def connect(access: Access) -> Server:
        asked.append(access)
        return Server()

    monkeypatch.setattr(objects, "connect", connect)
    expected = {
        ("Namespace", "a-namespaces"),
        ("CustomResourceDefinition", "a-customresourcedefinitions"),
    }
    assert objects.look(TEXT) == expected
    (access,) = asked
    assert load(access, {}).server == THERE.endpoint


def test_a_refusal_is_an_answer_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_: Any) -> Any:
        raise Forbidden("namespaces is forbidden", "Ask for the right.", status=403)

    monkeypatch.setattr(objects, "connect", connect)
    with pytest.raises(NoAnswer, match=r"namespaces is forbidden"):
        objects.look(TEXT)
