"""`ClientToken` of EC2's launches: a repeated call launches nothing.

    install()    # once, after everything else that changes these calls; called by `launch_rules`

A call with the same token and the same parameters gets the first call's answer; with other parameters it is refused,
and so is one for instances that were terminated meanwhile. A call that failed is carried out again. An SDK sends one
token with every attempt of a call, so the attempt after a lost answer would launch a second time.
https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

NO_PARAMETERS = ("Action", "Version", "ClientToken")
TERMINATED = "terminated"


@dataclass(frozen=True)
class _Launch:
    """A call that has been carried out, and its answer."""

    parameters: Mapping[str, Any]
    answer: Any


def install() -> None:
    """Wrap moto's calls. Call this once per process."""
    from moto.ec2.responses.fleets import Fleets
    from moto.ec2.responses.instances import InstanceResponse

    one_by_one = threading.RLock()  # of two calls at once, the second is the repetition
    for response, call in ((InstanceResponse, "run_instances"), (Fleets, "create_fleet")):
        setattr(response, call, _once(call, getattr(response, call), one_by_one))


def _once(call: str, original: Callable[[Any], Any], one_by_one: threading.RLock) -> Callable[[Any], Any]:
    def carried_out(self: Any) -> Any:
        token = self._get_param("ClientToken")
        if not token:
            return original(self)
        given = {key: value for key, value in self.querystring.items() if key not in NO_PARAMETERS}
        with one_by_one:
            launches: dict[tuple[str, str], _Launch] = vars(self.ec2_backend).setdefault("launches", {})
            before = launches.get((call, token))
            if before is None:
                before = launches[call, token] = _Launch(given, original(self))
            else:
                _refuse_others(before, given, token)
            return before.answer

    return carried_out


def _refuse_others(before: _Launch, given: Mapping[str, Any], token: str) -> None:
    """Raise the error of EC2 for a call that can't have the answer of the first one."""
    from moto.ec2.exceptions import EC2ClientError

    different = sorted(
        key for key in before.parameters.keys() | given.keys() if before.parameters.get(key) != given.get(key)
    )
    if different:
        raise EC2ClientError(
            "IdempotentParameterMismatch",
            f"The client token {token} belongs to a call with another value of {', '.join(different)}",
        )
    if any(each.state == TERMINATED for each in getattr(before.answer.result, "instances", ())):
        raise EC2ClientError(
            "IdempotentInstanceTerminated", f"An instance that was launched with the client token {token} is terminated"
        )
