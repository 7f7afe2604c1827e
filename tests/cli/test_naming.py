"""A name that no object can have is refused before anything is sent."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.cli.fake import FakeCluster, job
from tidewater.elasticjob.names import JOBS

ODD = [
    pytest.param("", id="empty"),
    pytest.param(".", id="dot"),
    pytest.param("..", id="dots"),
    pytest.param("digits#old", id="fragment"),
    pytest.param("a?b", id="query"),
    pytest.param("../../other/elasticjobs/digits", id="path"),
    pytest.param("digits\r", id="carriage-return"),
    pytest.param("digits\n", id="line-end"),
    pytest.param("Digits", id="capital"),
    pytest.param("-", id="dash"),
    pytest.param("a" * 254, id="too-long"),
]
COMMANDS = [
    ("job", "describe", "--", "NAME"),
    ("job", "scale", "--", "NAME", "3"),
    ("job", "suspend", "--", "NAME"),
    ("job", "resume", "--", "NAME"),
    ("job", "logs", "--", "NAME"),
    ("job", "wait", "--", "NAME"),
    ("job", "delete", "--", "digits", "NAME"),
    ("job", "submit", "--image", "i", "--dry-run", "--", "NAME", "train"),
    ("top", "--once", "--", "NAME"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_is_wrong_usage_and_nothing_is_sent(
    run: Run, cluster: FakeCluster, command: tuple[str, ...], name: str
) -> None:
    cluster.put(JOBS, job("digits"))
    result = run(*(name if word == "NAME" else word for word in command))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: NAME ")
    assert len(result.stderr.splitlines()) == 2  # the remedy
    assert cluster.sent == []
    assert [each["metadata"]["name"] for each in cluster.list(JOBS).items] == ["digits"]


def test_a_name_may_have_dots(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits.v1-2"))
    assert run("job", "suspend", "digits.v1-2").exit_code == 0


@pytest.mark.parametrize("name", ["*", ".", "..", "a/b", "a.b", "Training", "a" * 64])
def test_an_odd_namespace_is_wrong_usage(run: Run, name: str) -> None:
    result = run("job", "list", "-n", name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: --namespace {name!r} can't be the name of a namespace\n")
