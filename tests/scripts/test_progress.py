"""`make up` returns when training progresses, and not earlier."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from scripts.progress import doing, newest_report

SINCE = datetime(2026, 11, 23, 20, 0, 10, tzinfo=UTC)
OLD = "step=100 epoch=1 rank=0 time=2026-11-23T20:00:09.999Z"
NEW = "step=40 epoch=0 rank=1 time=2026-11-23T20:00:10.422Z"
NEWER = "step=60 epoch=0 rank=0 time=2026-11-23T20:00:11.001Z"
FINISHED = "event=finished step=200 time=2026-11-23T19:00:00.000Z"


@pytest.mark.parametrize(
    ("lines", "newest"),
    [
        pytest.param([], "", id="nothing yet"),
        pytest.param([OLD], "", id="a report of before"),
        pytest.param([OLD, NEW], NEW, id="a step of since then, though a lower one: from a checkpoint"),
        pytest.param([NEWER, NEW, OLD], NEWER, id="the logs of several workers come in any order"),
        pytest.param(["event=resized step=40 time=2026-11-23T20:00:11.000Z", "step=7", "noise ="], "", id="no report"),
        pytest.param([OLD, FINISHED], FINISHED, id="a finished job stays finished"),
    ],
)
def test_training_progresses_when_a_step_was_reported_since_then(lines: list[str], newest: str) -> None:
    assert newest_report(lines, SINCE) == newest


def waiting(reason: str) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason}}}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, "Running", id="running"),
        pytest.param(
            {"phase": "Pending", "initContainerStatuses": [waiting("ImagePullBackOff")]}, "ImagePullBackOff", id="image"
        ),
        pytest.param({"phase": "Pending", "containerStatuses": [waiting("PodInitializing")]}, "Pending", id="init"),
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            },
            "Unschedulable",
            id="no node",
        ),
    ],
)
def test_a_pods_state_is_shown_as_kubectl_shows_it(status: dict[str, Any], said: str) -> None:
    assert doing({"status": status}) == said
