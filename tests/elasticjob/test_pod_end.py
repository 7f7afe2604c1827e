"""How a pod failed: as the container that trains did, or as the one that failed first."""

from __future__ import annotations

from typing import Any

import pytest

from tidewater.cli.job import describe
from tidewater.cli.top import samples
from tidewater.elasticjob.pod_end import failed_end


def ended(name: str, code: int, second: int | None = None) -> dict[str, Any]:
    time = {} if second is None else {"finishedAt": f"2026-11-23T12:00:{second:02}Z"}
    return {"name": name, "state": {"terminated": {"exitCode": code, **time}}}


RUNS = {"name": "a", "state": {"running": {}}}


@pytest.mark.parametrize(
    ("first", "containers", "code"),
    [
        pytest.param([], [], None, id="none-is-known"),
        pytest.param([], [RUNS, ended("b", 0, 1)], None, id="none-failed"),
        pytest.param([], [ended("a", 0, 1), ended("b", 3, 2)], 3, id="one-failed"),
        pytest.param([], [ended("a", 143, 9), ended("b", 3, 2)], 3, id="the-first-by-time"),
        pytest.param([], [ended("a", 4), ended("b", 3)], 4, id="without-times"),
        pytest.param([], [ended("a", 143, 1), ended("elasticjob-worker", 3, 2)], 3, id="the-one-that-trains"),
        pytest.param([], [ended("a", 4, 1), ended("elasticjob-worker", 0, 2)], 4, id="a-sidecar-alone"),
        pytest.param([ended("fetch", 7, 1)], [{"name": "a", "state": {"waiting": {}}}], 7, id="an-init-container"),
        pytest.param([ended("proxy", 143, 3)], [ended("a", 1, 1)], 1, id="a-sidecar-ends-last"),
    ],
)
def test_the_failure_of_a_pod_is_that_of_the_container_that_trains_or_failed_first(
    first: list[Any], containers: list[Any], code: int | None
) -> None:
    status = {"phase": "Failed", "initContainerStatuses": first, "containerStatuses": containers}
    assert failed_end(status).get("exitCode") == code
    failed = {"metadata": {"name": "j-worker-0"}, "status": status}
    assert describe.pod_state(failed) == ("Failed" if code is None else f"Error ({code})")
    assert samples.pod_state(failed) == ("Failed" if code is None else f"Failed {code}")
