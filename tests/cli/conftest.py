"""The command line as a user runs it, against a cluster in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from tests.cli.fake import FakeClock, FakeCluster
from tidewater.cli.app import app
from tidewater.cli.session import SystemClock, Tools
from tidewater.kube.cluster import Cluster
from tidewater.kube.kubeconfig import Access

Run = Callable[..., Result]


@pytest.fixture
def cluster() -> FakeCluster:
    """A cluster in which time passes only while a command waits."""
    return FakeCluster(FakeClock())


@pytest.fixture
def run(cluster: FakeCluster) -> Run:
    """Run a command line, given as words; the standard input may follow as `text`."""

    def invoke(*words: str, text: str = "", on: FakeCluster = cluster) -> Result:
        def connect(access: Access) -> Cluster:
            if access.namespace:
                on.namespace = access.namespace
            return on

        tools = Tools(connect=connect, clock=on.clock or SystemClock())
        return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, list(words), input=text, obj=tools)

    return invoke
