"""How applications end: what is submitted, decided by the controller itself, and read back as TorchX's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tidewater_torchx.observe.states import state_of
from tidewater_torchx.submit.job import Submission, elastic_job
from tidewater_torchx.submit.options import Options
from torchx.components import dist, utils
from torchx.specs import AppDef, AppState, RetryPolicy

from packages.torchx.tests.doubles import app, role
from tests.controller.decide import world
from tidewater.controller.decide.decision import decide
from tidewater.controller.decide.observed import PodView
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.model import ElasticJob

ELASTIC = dist.ddp(script="train.py", j="1:3x1", image="img")
FIXED = dist.ddp(script="train.py", j="3x1", image="img")
EXIT = {"0": 0, "1": 1, "i": 130, "u": 138, "k": 137, "o": 137}


def submitted(given: AppDef) -> ElasticJob:
    """Return the job, with a replica of each number running."""
    manifest = elastic_job(given, Submission(unique="kx3p", namespace="ns", options=Options()))
    job = replace(codec.job_of(manifest), generation=1, uid="job", created=world.LONG_AGO)
    return world.after(job, *pods(job))


def pods(job: ElasticJob, ends: str = "", attempt: int = 0) -> list[PodView]:
    """Return the pods of all types in turn; `ends` says of each: 0 and 1 are exit codes, i and u are 130 and 138, k is
    killed, o killed for its memory, e evicted, x has no pod, and what is not said runs.
    """
    every = [(type_, index) for type_, spec in job.spec.replica_specs.items() for index in range(spec.replicas)]
    found = []
    for (type_, index), end in zip(every, ends.ljust(len(every), "r"), strict=True):
        name = names.pod_name(job.name, type_, index)
        pod = world.pod(
            index, type=type_, name=name, uid=f"{name}-{attempt}", job_restarts=job.status.job_restarts or 0
        )
        if end in EXIT:
            pod = replace(
                pod,
                phase="Failed" if EXIT[end] else "Succeeded",
                exit_code=EXIT[end],
                oom_killed=end == "o",
                finished=world.ago(600),
            )
        elif end == "e":
            pod = replace(pod, phase="Failed", disrupted=True, finished=world.ago(600))
        if end != "x":
            found.append(pod)
    return found


def outcome(given: AppDef, *attempts: str) -> AppState:
    """Return the application's state after its pods have ended in these ways, one after the other."""
    job = submitted(given)
    for attempt, ends in enumerate(attempts):
        job = replace(job, status=decide(world.view(job, pods(job, ends, attempt)), world.NOW).status)
        # All that must go has gone.
        job = replace(job, status=decide(world.view(job, _left(job, ends, attempt)), world.NOW).status)
    return state_of(job)


def _left(job: ElasticJob, ends: str, attempt: int) -> Sequence[PodView]:
    ended = state_of(job) in (AppState.SUCCEEDED, AppState.FAILED)
    return pods(job, ends, attempt) if ended else pods(job, "", attempt + 1)


@pytest.mark.parametrize("given", [FIXED, ELASTIC, utils.echo(num_replicas=3, image="img")])
def test_an_application_whose_replicas_have_all_finished_has_succeeded(given: AppDef) -> None:
    assert outcome(given, "000") is AppState.SUCCEEDED


def test_a_fixed_application_has_succeeded_only_when_all_replicas_have_finished() -> None:
    assert outcome(FIXED, "00") is AppState.RUNNING
    assert outcome(app(role(), role("ps")), "0") is AppState.RUNNING
    assert outcome(app(role(), role("ps")), "00") is AppState.SUCCEEDED


def test_an_elastic_torchrun_has_succeeded_with_its_first_agent_whichever_that_is() -> None:
    assert outcome(ELASTIC, "x0") is AppState.SUCCEEDED


def test_a_replacement_that_was_turned_away_after_the_end_is_no_failure() -> None:
    assert outcome(ELASTIC, "100") is AppState.SUCCEEDED


@pytest.mark.parametrize("given", [FIXED, utils.echo(num_replicas=3, image="img"), app(role(), role("ps"))])
def test_without_retries_the_first_failure_fails_the_application(given: AppDef) -> None:
    assert outcome(given, "1") is AppState.FAILED


def test_an_elastic_application_fails_when_fewer_than_its_minimum_are_left() -> None:
    assert outcome(ELASTIC, "11") is AppState.RUNNING
    assert outcome(ELASTIC, "111") is AppState.FAILED


@pytest.mark.parametrize("given", [FIXED, ELASTIC, app(role(), role("ps"))])
def test_evictions_and_lost_replicas_never_fail_an_application(given: AppDef) -> None:
    assert outcome(given, *["e"] * 5, *["x"] * 5) is AppState.RUNNING


def test_an_elastic_application_survives_replicas_that_are_killed() -> None:
    assert outcome(ELASTIC, *["k"] * 5) is AppState.RUNNING


@pytest.mark.parametrize("end", ["i", "u", "o"])
@pytest.mark.parametrize("given", [ELASTIC, app(*ELASTIC.roles, role("reader"))], ids=["alone", "with-another"])
def test_an_elastic_application_survives_replicas_that_are_made_again_without_retries(given: AppDef, end: str) -> None:
    assert outcome(given, *[end, f"r{end}", f"rr{end}"]) is AppState.RUNNING


def test_a_replica_that_exhausts_its_memory_again_and_again_fails_an_elastic_application() -> None:
    assert outcome(ELASTIC, *["o"] * 4) is AppState.RUNNING
    assert outcome(ELASTIC, *["o"] * 5) is AppState.FAILED


@pytest.mark.parametrize(
    ("given", "order"),
    [
        pytest.param(app(*ELASTIC.roles, role("reader")), "{0}{1}", id="torchrun"),
        pytest.param(app(role(num_replicas=3, min_replicas=1), role("reader")), "{0}{1}", id="another-program"),
        pytest.param(app(role("reader"), *ELASTIC.roles), "{1}{0}", id="not-the-first"),
    ],
)
def test_an_elastic_role_with_another_role_goes_on_with_its_minimum(given: AppDef, order: str) -> None:
    assert outcome(given, order.format("11r", "r")) is AppState.RUNNING
    assert outcome(given, order.format("110", "r")) is AppState.RUNNING
    assert outcome(given, order.format("110", "0")) is AppState.SUCCEEDED
    assert outcome(given, order.format("110", "1")) is AppState.FAILED
    assert outcome(given, order.format("111", "r")) is AppState.FAILED


def test_an_elastic_role_that_runs_no_torchrun_goes_on_with_its_minimum() -> None:
    given = app(role(num_replicas=3, min_replicas=1))
    assert outcome(given, "11") is AppState.RUNNING
    assert outcome(given, "110") is AppState.SUCCEEDED
    assert outcome(given, "111") is AppState.FAILED


@pytest.mark.parametrize("policy", list(RetryPolicy))
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_failure_is_retried_as_many_times_as_the_role_allows(policy: RetryPolicy, replicas: int) -> None:
    given = app(role(max_retries=2, num_replicas=replicas, retry_policy=policy))
    each = 1 if policy is RetryPolicy.APPLICATION else replicas
    assert outcome(given, *["1"] * 2 * each) in (AppState.RUNNING, AppState.PENDING)
    assert outcome(given, *["1"] * (2 * each + 1)) is AppState.FAILED


def test_a_retry_of_the_whole_application_counts_once_however_many_replicas_fail() -> None:
    given = app(role(max_retries=1, num_replicas=3))
    assert outcome(given, "111") is AppState.RUNNING
    assert outcome(given, "111", "111") is AppState.FAILED


def test_an_application_below_its_minimum_is_pending_again() -> None:
    job = submitted(FIXED)
    status = decide(world.view(job, pods(job, "x")), world.NOW).status
    assert state_of(replace(job, status=status)) is AppState.PENDING
