"""An EKS API with a cluster."""

from __future__ import annotations

import pytest

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import World


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> World:
    """An account without a cluster."""
    return fakes.world(monkeypatch)


@pytest.fixture
def world(account: World) -> World:
    """The same account with the cluster `demo`."""
    account.cluster()
    return account
