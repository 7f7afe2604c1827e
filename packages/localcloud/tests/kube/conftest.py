"""Fixtures of the Kubernetes tests: a specification of a node, and one real cluster with two nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from localcloud import kube, tools

from packages.localcloud.tests.kube.harness import Cluster, node_spec, running_cluster


@pytest.fixture
def spec() -> kube.NodeSpec:
    return node_spec(0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two Ready nodes and every addon. A test checks that stopping it leaves nothing on the host."""
    with running_cluster(tmp_path_factory.mktemp("cloud"), tools.KUBERNETES) as made:
        yield made
