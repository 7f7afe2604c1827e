"""What is waited for, and how a wait ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake import FakeCluster, job, running
from tests.controller.decide import world
from tidewater.cli.job.waiting import Goal, invalid, judge, told
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import JobView
from tidewater.controller.loop import invalid_status
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.errors import error_of

FAILED: dict[str, Any] = {
    "state": "Failed",
    "conditions": [{"type": "Failed", "status": "True", "message": "worker 0 exited with code 2"}],
}


@pytest.mark.parametrize(
    ("goal", "found", "expected"),
    [
        pytest.param(Goal.SUCCEEDED, job(**running()), False, id="runs-still"),
        pytest.param(Goal.SUCCEEDED, job(state="Succeeded"), True, id="succeeded"),
        pytest.param(Goal.RUNNING, job(**running()), True, id="runs"),
        pytest.param(Goal.RUNNING, {**job(**running()), "metadata": {"generation": 2}}, False, id="stale-status"),
        pytest.param(Goal.SIZE, job(**running()), True, id="has-its-size"),
        pytest.param(Goal.SIZE, job(replicas=3, **running()), False, id="too-small"),
        pytest.param(Goal.SUSPENDED, job(state="Suspended"), True, id="suspended"),
        pytest.param(Goal.DELETED, job(**running()), False, id="exists"),
        pytest.param(Goal.DELETED, None, True, id="gone"),
        pytest.param(Goal.SIZE, {"metadata": {}, "spec": {}}, False, id="no-status-and-no-spec"),
    ],
)
def test_a_goal_is_reached_or_not(goal: Goal, found: Object | None, expected: bool) -> None:
    verdict = judge(goal, found)
    assert verdict.reached is expected
    assert not verdict.hopeless


@pytest.mark.parametrize("goal", [Goal.SUCCEEDED, Goal.RUNNING, Goal.SIZE, Goal.SUSPENDED])
def test_a_failed_job_reaches_nothing_any_more(goal: Goal) -> None:
    verdict = judge(goal, job(**FAILED))
    assert verdict.failed
    assert verdict.hopeless == "worker 0 exited with code 2"


@pytest.mark.parametrize("goal", [Goal.SUCCEEDED, Goal.RUNNING, Goal.SIZE, Goal.SUSPENDED])
def test_a_deleted_job_reaches_nothing_any_more(goal: Goal) -> None:
    assert judge(goal, None).hopeless == "the job has been deleted"


def test_a_failure_can_be_waited_for() -> None:
    assert judge(Goal.FAILED, job(**FAILED)).reached
    assert not judge(Goal.FAILED, job(**running())).reached
    assert judge(Goal.FAILED, job(state="Succeeded")).hopeless


def test_a_suspended_job_gets_no_size_until_it_is_resumed() -> None:
    suspended = job(state="Suspended")
    suspended["spec"]["suspend"] = True
    assert judge(Goal.SIZE, suspended).hopeless == "the job is suspended"
    suspended["spec"]["suspend"] = False
    assert not judge(Goal.SIZE, suspended).hopeless


def test_a_job_that_has_ended_has_no_size() -> None:
    assert judge(Goal.SIZE, job(state="Succeeded", settledReplicas=2)).hopeless == "the job has succeeded"


def test_the_progress_counts_replicas_where_several_pods_are_one() -> None:
    made = job(**running())
    made["spec"]["workersPerReplica"] = 2
    assert judge(Goal.RUNNING, made).seen == "Running, 2 of 2 replicas"


def test_the_progress_says_why_a_job_does_not_run() -> None:
    waits = {"type": "Running", "status": "False", "message": "waits for room in queue q"}
    assert judge(Goal.RUNNING, job(state="Queued", conditions=[waits])).seen == (
        "Queued, 0 of 2 workers: waits for room in queue q"
    )


def written(view: JobView) -> Object:
    """Return a job with the status that the controller writes."""
    return {**job(), "status": codec.status_object(decide(view, world.NOW).status)}


@pytest.mark.parametrize(
    ("view", "words"),
    [
        pytest.param(world.view(world.job(2), [world.pod(0, "Pending")]), "j is starting. 0 of 2", id="new"),
        pytest.param(world.view(world.job(2, suspend=True)), "j is suspended.", id="suspended"),
        pytest.param(world.view(world.job(2, low=1), world.running(0)), "j is running. 1 of 2", id="short"),
        pytest.param(world.view(world.job(1), [world.pod(0, "Succeeded")]), "j has succeeded.", id="succeeded"),
    ],
)
def test_what_the_controller_says_of_a_job_is_found_in_every_state(view: JobView, words: str) -> None:
    assert words in told(written(view))


def test_of_a_job_that_cannot_be_read_it_is_said_what_to_correct() -> None:
    broken = written(world.view(world.job(1), world.running(0)))
    assert not invalid(broken)
    broken["status"] = invalid_status(broken, "spec.sizes: 9 is wrong", world.NOW)
    assert (invalid(broken), told(broken)) == (True, "spec.sizes: 9 is wrong")


def test_the_progress_says_why_a_running_job_does_not_have_its_size() -> None:
    why = "ElasticJob digits is running. 1 of 2 workers run: 1 found no room (VcpuLimitExceeded)."
    runs = {"type": "Running", "status": "True", "message": why}
    short = job(**{**running(1, 2), "conditions": [runs], "waiting": "VcpuLimitExceeded"})
    assert judge(Goal.SIZE, short).seen == f"Running, 1 of 2 workers: {why}"
    assert judge(Goal.SIZE, job(**{**running(1, 2), "conditions": [runs]})).seen == "Running, 1 of 2 workers"


def test_wait_returns_when_the_job_has_succeeded(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.steps = [
        lambda: cluster.change(JOBS, "digits", status={"replicaStatuses": {names.WORKER: {"active": 1}}}),
        lambda: cluster.change(JOBS, "digits", status={"state": "Succeeded"}),
    ]
    result = run("job", "wait", "digits")
    assert result.exit_code == 0
    assert result.stdout == "digits: Succeeded, 1 of 2 workers\n"
    assert "Running, 1 of 2 workers" in result.stderr


def test_wait_says_that_the_job_has_failed_with_an_exit_code(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.steps = [lambda: cluster.change(JOBS, "digits", status=FAILED)]
    result = run("job", "wait", "digits")
    assert result.exit_code == 4
    assert "digits has failed: worker 0 exited with code 2" in result.stderr


def test_wait_gives_up_with_an_exit_code_of_its_own(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(replicas=3, **running(2, 3)))
    result = run("job", "wait", "digits", "--for", "size", "--timeout", "10m")
    assert result.exit_code == 3
    assert "digits does not have its size after 10m: Running, 2 of 3 workers" in result.stderr


def test_a_wait_outlives_an_api_server_that_is_restarted(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))

    def restart() -> None:
        cluster.change(JOBS, "digits", status={"state": "Succeeded"})
        cluster.down_until = 3.0

    cluster.steps = [restart]
    assert run("job", "wait", "digits").exit_code == 0
    assert cluster.clock
    assert cluster.clock.elapsed == 3.0


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_wait_outlives_an_api_server_that_refuses_everybody(run: Run, cluster: FakeCluster, code: int) -> None:
    cluster.put(JOBS, job(**running()))

    def refuse() -> None:
        cluster.change(JOBS, "digits", status={"state": "Succeeded"})
        cluster.down_until, cluster.down = 3.0, error_of(code, "", "not now")

    cluster.steps = [refuse]
    assert run("job", "wait", "digits").exit_code == 0
    assert cluster.clock
    assert cluster.clock.elapsed == 3.0


def test_an_api_server_that_refuses_everybody_is_not_asked_after_the_deadline(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.failures["watch", "ElasticJob"] = error_of(503, "ServiceUnavailable", "not now")
    result = run("job", "wait", "digits", "--timeout", "90s")
    assert result.exit_code == 3
    assert cluster.clock
    assert cluster.clock.elapsed == 90.0


def test_a_right_that_is_lost_ends_a_wait(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.failures["watch", "ElasticJob"] = error_of(403, "Forbidden", "watch is forbidden")
    result = run("job", "wait", "digits")
    assert (result.exit_code, "watch is forbidden" in result.stderr) == (1, True)


def test_an_api_server_that_never_answered_is_an_error_at_once(run: Run, cluster: FakeCluster) -> None:
    cluster.down_until = 3.0
    result = run("job", "wait", "digits")
    assert (result.exit_code, result.stderr) == (1, "error: the API server can't be reached\n")


def test_a_wait_lists_again_when_its_version_is_too_old(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.forgotten_before = 10_000
    cluster.steps = [lambda: cluster.change(JOBS, "digits", status={"state": "Succeeded"})]
    assert run("job", "wait", "digits").exit_code == 0


@pytest.mark.parametrize("text", ["soon", "", "5x", "m5"])
def test_a_wrong_timeout_names_the_flag(run: Run, text: str) -> None:
    result = run("job", "wait", "digits", "--timeout", text)
    assert result.exit_code == 2
    assert "--timeout" in result.stderr
