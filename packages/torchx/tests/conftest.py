"""A cluster in memory and the scheduler that uses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tidewater_torchx.scheduler import TidewaterScheduler, create_scheduler

from packages.torchx.tests.doubles import KubernetesInMemory


@pytest.fixture
def cluster() -> Iterator[KubernetesInMemory]:
    """A cluster in which no controller runs."""
    found = KubernetesInMemory()
    yield found
    found.failures.clear()
    found.end_streams()


@pytest.fixture
def scheduler(cluster: KubernetesInMemory) -> TidewaterScheduler:
    """The scheduler of a session, connected to the cluster."""
    return create_scheduler("session", client=cluster)
