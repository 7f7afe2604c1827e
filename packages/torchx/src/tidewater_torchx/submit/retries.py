"""What TorchX's retries are in an ElasticJob. Pure.

    plan = retries(roles)      # Retries(scope=RestartScope.JOB, backoff_limit=4, ...)
    policy(role)               # what a failed replica of this role means

| TorchX | ElasticJob |
|---|---|
| `max_retries=0` | the first failure is for good: the application fails if it can't run without the replica |
| `max_retries=N`, APPLICATION | all pods are made anew, N times |
| `max_retries=N`, REPLICA or HOT_SPARE | the pod is replaced, N times for each replica |
| an elastic role | as REPLICA: the others go on |

A pod that was evicted, preempted, deleted by a user or lost with its node has not failed. It is always
replaced, with all others under APPLICATION, and that is no retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.specs import RetryPolicy, Role

from tidewater.contract.exit_codes import ALWAYS_RETRIED, NOT_THE_WORKERS_FAULT
from tidewater.elasticjob.model import RestartPolicy, RestartScope

EXIT_CODES = tuple(code for code in range(1, 256) if code not in (*NOT_THE_WORKERS_FAULT, *ALWAYS_RETRIED))
"""Exit codes that are retried: all but those that an ElasticJob retries by itself.

The kubelet would restart a container after any code, but it does so in its pod, and the API server removes that pod,
with its exit code and its log, when the job fails."""

MOST_FAILURES = 2**31 - 1
"""The largest backoffLimit."""


@dataclass(frozen=True)
class Retries:
    """The retries of a whole application.

    Attributes:
        scope: what is made anew after a failure that is retried.
        backoff_limit: the job fails with this failure; those before it are retried. `MOST_FAILURES`: none is too many.
    """

    scope: RestartScope
    backoff_limit: int


def is_elastic(role: Role) -> bool:
    """Return whether the role runs with fewer replicas than it has at most."""
    return role.min_replicas is not None and role.min_replicas < role.num_replicas


def retries(roles: Sequence[Role]) -> Retries:
    """Return what is made anew after a failure, and how many times."""
    retried = [role for role in roles if role.max_retries > 0]
    # As TorchX: the policy of a role without retries says nothing, unless there are only such roles.
    whole = any(role.retry_policy is RetryPolicy.APPLICATION for role in retried or roles)
    elastic = any(is_elastic(role) for role in roles)
    if whole and not elastic:
        # As TorchX: the whole application is restarted as many times as the role allows that allows the fewest.
        fewest = min((role.max_retries for role in retried), default=0)
        return Retries(RestartScope.JOB, min(1 + fewest, MOST_FAILURES))
    if elastic and not retried:
        # Only what `policy` always retries is counted here, and for that no role has a limit.
        return Retries(RestartScope.POD, MOST_FAILURES)
    each = sum(role.max_retries * role.num_replicas for role in retried)
    return Retries(RestartScope.POD, min(1 + each, MOST_FAILURES))


def policy(role: Role) -> Mapping[str, Any]:
    """Return the fields of a replica spec that say what the end of a pod means.

    Without retries an elastic role goes on without a replica that has failed, as long as the others are its minimum. So
    a replica that is made again after the others have finished, and is turned away by them, is no failure of the
    application. SIGKILL and SIGTERM, which are the ends of a replica that was taken away, SIGINT, SIGUSR1, failures
    of the machine and too much memory are always retried there. The controller ends a job if one of its replicas
    exhausts its memory again and again.
    """
    if role.max_retries > 0:
        return {"restartPolicy": RestartPolicy.EXIT_CODE.value, "retryableExitCodes": list(EXIT_CODES)}
    never = RestartPolicy.EXIT_CODE if is_elastic(role) else RestartPolicy.NEVER
    return {"restartPolicy": never.value}
