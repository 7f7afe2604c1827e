"""`make up` returns when training progresses, and not earlier."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.progress import Seen, decide, doing, newest_step


@pytest.mark.parametrize(
    ("first", "now", "progresses"),
    [
        pytest.param(None, Seen(), False, id="nothing yet"),
        pytest.param(None, Seen(step=40), False, id="one report may be an old one"),
        pytest.param(Seen(step=40), Seen(step=40), False, id="the same report"),
        pytest.param(Seen(step=40), Seen(step=60), True, id="a newer one"),
        pytest.param(None, Seen(finished=True), True, id="a finished job stays finished"),
    ],
)
def test_training_progresses_when_a_report_is_newer_than_the_first_seen(
    first: Seen | None, now: Seen, progresses: bool
) -> None:
    assert decide(first, now) is progresses


def test_the_newest_step_report_is_found_among_events() -> None:
    lines = ["event=joined generation=1", "step=20 epoch=0", "step=100 epoch=1 world_size=2", "noise step=999"]
    assert newest_step(lines) == (100, "step=100 epoch=1 world_size=2")
    assert newest_step(["event=joined"]) == (0, "")


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
