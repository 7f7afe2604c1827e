"""Retries, judged by the controller's own rules on the job that is submitted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tidewater_torchx.submit.job import Submission, elastic_job
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.retries import EXIT_CODES, MOST_FAILURES
from torchx.specs import AppDef, RetryPolicy

from packages.torchx.tests.doubles import app, role
from tidewater.controller.decide.exits import Verdict, verdict
from tidewater.controller.decide.observed import PodView
from tidewater.elasticjob import codec, model, names
from tidewater.elasticjob.model import RestartScope

MOMENT = datetime(2026, 3, 1, tzinfo=UTC)


def spec(given: AppDef) -> model.JobSpec:
    """Return what the controller reads."""
    return codec.job_of(elastic_job(given, Submission(unique="kx3p", namespace="ns", options=Options()))).spec


def end(exit_code: int) -> PodView:
    """Return a pod that has failed."""
    return PodView(name="p", uid="u", type=names.WORKER, index=0, phase="Failed", created=MOMENT, exit_code=exit_code)


@pytest.mark.parametrize("policy", list(RetryPolicy))
@pytest.mark.parametrize("exit_code", [1, 137, 143, 200])
def test_without_retries_the_first_failure_is_for_good(policy: RetryPolicy, exit_code: int) -> None:
    found = spec(app(role(retry_policy=policy)))
    assert verdict(end(exit_code), found.worker) is Verdict.PERMANENT


@pytest.mark.parametrize(
    ("given", "scope", "limit"),
    [
        pytest.param(app(role(max_retries=3)), RestartScope.JOB, 4, id="application"),
        pytest.param(app(role()), RestartScope.JOB, 1, id="application-without-retries"),
        pytest.param(
            app(role(max_retries=5), role("ps", max_retries=2)), RestartScope.JOB, 3, id="the-fewest-of-all-roles"
        ),
        pytest.param(
            app(role(max_retries=3, num_replicas=2, retry_policy=RetryPolicy.REPLICA)),
            RestartScope.POD,
            7,
            id="of-each-replica",
        ),
        pytest.param(
            app(role(max_retries=3, num_replicas=2, min_replicas=1)), RestartScope.POD, 7, id="elastic-application"
        ),
        pytest.param(
            app(role(max_retries=1, num_replicas=2, min_replicas=1, retry_policy=RetryPolicy.HOT_SPARE)),
            RestartScope.POD,
            3,
            id="hot-spare",
        ),
        pytest.param(
            app(role(retry_policy=RetryPolicy.REPLICA, max_retries=1), role("ps")),
            RestartScope.POD,
            2,
            id="the-policy-of-a-role-without-retries-says-nothing",
        ),
        pytest.param(
            app(role(retry_policy=RetryPolicy.REPLICA, max_retries=1), role("ps", max_retries=2)),
            RestartScope.JOB,
            2,
            id="mixed",
        ),
    ],
)
def test_what_is_made_anew_and_how_many_times(given: AppDef, scope: RestartScope, limit: int) -> None:
    found = spec(given)
    assert (found.restart_scope, found.backoff_limit) == (scope, limit)


def test_without_retries_nothing_counts_up_to_the_limit_of_an_elastic_application() -> None:
    assert spec(app(role(num_replicas=3, min_replicas=1), role("ps"))).backoff_limit == MOST_FAILURES


@pytest.mark.parametrize("policy", list(RetryPolicy))
def test_more_retries_than_a_job_can_count_are_as_many_as_it_can(policy: RetryPolicy) -> None:
    assert spec(app(role(max_retries=2**31, num_replicas=3, retry_policy=policy))).backoff_limit == MOST_FAILURES


@pytest.mark.parametrize("code", range(1, 256))
def test_a_replica_with_retries_is_replaced_after_any_exit_code(code: int) -> None:
    found = spec(app(role(max_retries=1)))
    assert verdict(end(code), found.worker) in (Verdict.RETRY, Verdict.REPLACE)


def test_a_code_that_a_job_retries_by_itself_is_not_named_again() -> None:
    assert not {130, 137, 138, 143, 200, 201}.intersection(EXIT_CODES)
