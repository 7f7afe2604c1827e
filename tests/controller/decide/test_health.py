"""What tools that know no ElasticJob make of a job: kstatus, which Flux and `kubectl` plug-ins use, and Argo CD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.decide.world import NOW, after, ago, condition, job, later, pod, running, view
from tidewater.controller.decide.decision import decide
from tidewater.elasticjob.choices import State
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import Condition, Status


def computed(of: ElasticJob) -> str:
    """Return what kstatus computes of an object of a kind that it doesn't know.

    https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/status/generic.go
    """
    status = of.status
    if status.observed_generation != of.generation:
        return "InProgress"
    true = {each.type for each in status.conditions if each.status == "True"}
    if "Reconciling" in true:
        return "InProgress"
    if "Stalled" in true:
        return "Failed"
    ready = [each.status for each in status.conditions if each.type == "Ready"]
    return "Current" if all(each == "True" for each in ready) else "InProgress"


RAN = after(job(2, low=2), *running(0, 1), at=ago(60))
SUSPENDED = after(job(2, suspend=True))
QUEUED = after(job(2, policy={"queue": "q"}))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(after(job(2)), "InProgress", id="starts"),
        pytest.param(QUEUED, "InProgress", id="queued"),
        pytest.param(RAN, "Current", id="runs"),
        pytest.param(after(job(3, low=1), pod(0), pod(1, "Pending")), "Current", id="runs-without-its-surge"),
        pytest.param(after(RAN, pod(0)), "InProgress", id="restarts"),
        pytest.param(SUSPENDED, "Current", id="suspended"),
        pytest.param(after(RAN, pod(0, "Succeeded"), pod(1)), "Current", id="succeeded"),
        pytest.param(after(RAN, pod(0, "Failed"), pod(1, "Failed")), "Failed", id="failed"),
        pytest.param(replace(RAN, generation=RAN.generation + 1), "InProgress", id="changed-and-not-seen"),
    ],
)
def test_a_tool_that_knows_no_elasticjob_sees_how_it_stands(found: ElasticJob, expected: str) -> None:
    assert computed(found) == expected


def test_a_failed_job_is_stalled_and_says_why() -> None:
    stalled = condition(after(RAN, pod(0, "Failed"), pod(1, "Failed")).status, "Stalled")
    assert (stalled.status, stalled.reason) == ("True", "ElasticJobFailed")
    assert stalled.message == condition(after(RAN, pod(0, "Failed"), pod(1, "Failed")).status, "Failed").message


def test_a_job_that_failed_under_an_older_controller_is_stalled_too() -> None:
    told = Condition(type="Failed", status="True", message="It has failed.", last_transition_time=ago(60))
    old = replace(job(1), status=Status(state=State.FAILED, conditions=(told,), completion_time=ago(60)))
    seen = replace(old, status=decide(view(old), NOW).status)
    assert computed(seen) == "Failed"
    assert condition(seen.status, "Stalled").message == "It has failed."
    assert decide(view(seen), later(60)).status is seen.status
