"""Argo CD's health of a job, by the script in `examples/elasticjob`, run in the version of Lua that Argo CD has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from tests.controller.decide.world import NOW, job, pod, running, view
from tidewater.controller.decide.decision import decide
from tidewater.controller.loop import invalid_status
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.status import Status

FILE = Path(__file__).resolve().parents[2] / "examples" / "elasticjob" / "argo-cd.yaml"
KEY = f"resource.customizations.health.{names.GROUP}_{names.KIND}"


def health(status: dict[str, Any], generation: int = 1) -> str:
    """Return the health of a job with this status."""
    lua = LuaRuntime()
    script = yaml.safe_load(FILE.read_text())["data"][KEY]
    found = lua.execute(f"return function(obj) {script} end")(
        lua.table_from({"metadata": {"generation": generation}, "status": status}, recursive=True)
    )
    assert isinstance(found["message"], str)
    return str(found["status"])


def status(*pods: Any, **spec: Any) -> Status:
    return decide(view(job(2, low=1, **spec), pods), NOW).status


FAILED = status(pod(0, "Failed"), pod(1, "Failed"))
STATUSES = {
    State.CREATED: (status(), "Progressing"),
    State.QUEUED: (status(policy={"queue": "q"}), "Progressing"),
    State.RUNNING: (status(*running(0, 1)), "Healthy"),
    State.RESTARTING: (
        decide(view(replace(job(2, low=1), status=status(*running(0, 1))), ()), NOW).status,
        "Progressing",
    ),
    State.SUSPENDED: (status(suspend=True), "Suspended"),
    State.SUCCEEDED: (status(pod(0, "Succeeded"), pod(1, "Succeeded")), "Healthy"),
    State.FAILED: (FAILED, "Degraded"),
}


@pytest.mark.parametrize("state", list(State))
def test_argo_cd_knows_the_health_of_every_state(state: State) -> None:
    found, expected = STATUSES[state]
    assert found.state is state
    assert health(codec.status_object(found)) == expected


def test_a_failed_job_is_not_healthy_whatever_its_other_conditions_say() -> None:
    ran = replace(job(2, low=1), status=status(*running(0, 1)))
    failed = decide(view(ran, (pod(0, "Failed"), pod(1, "Failed"))), NOW).status
    assert {each.type for each in failed.conditions} > {"Ready", "Running", "Failed", "Stalled"}
    assert (health(codec.status_object(ran.status)), health(codec.status_object(failed))) == ("Healthy", "Degraded")


def test_a_change_that_the_controller_has_not_seen_is_in_progress() -> None:
    assert health(codec.status_object(FAILED), generation=2) == "Progressing"
    assert health({}) == "Progressing"


def test_a_job_that_cannot_be_read_is_degraded() -> None:
    assert health(invalid_status({"metadata": {"generation": 1}}, "spec.replicas: must be a number", NOW)) == "Degraded"
