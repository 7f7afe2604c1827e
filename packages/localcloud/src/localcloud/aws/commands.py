"""What localcloud's own commands do in the daemon: interrupt instances, take capacity away and give it back.

    control.application(principals, commands(interruptions, account, region))

`localcloud.control` brings a command here from the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from localcloud.aws.compute import capacity, shortages
from localcloud.aws.events.interruptions import NOTICE_SECONDS, Interruptions
from localcloud.control import Command
from localcloud.errors import CloudError

EVENTS: Final = ("notice", "rebalance", "retire")
MOST_SECONDS: Final = 24 * 3600
"""A day: no user waits longer, and a timer can't wait for ever."""


def commands(interruptions: Interruptions, account: str, region: str) -> Mapping[str, Command]:
    """Return what each command does."""
    return {
        "interrupt": lambda params: interrupt(interruptions, params),
        "capacity": lambda params: change_capacity(_ec2(account, region), params),
    }


def interrupt(interruptions: Interruptions, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send the instances a Spot notice, a rebalance recommendation or a retirement.

    Args:
        params: `instances`, `event` (`notice` unless given) and, for a notice, `after` in seconds.

    Returns:
        `ends`: when each instance ends, if it has its notice.

    Raises:
        CloudError: The parameters are wrong, or an instance can't get the event.
    """
    instances, event = params.get("instances"), params.get("event", EVENTS[0])
    if not isinstance(instances, list) or not instances or not all(isinstance(each, str) for each in instances):
        raise CloudError("interrupt needs the ids of instances")
    match event:
        case "notice":
            return {"ends": interruptions.notice(instances, _seconds(params.get("after")))}
        case "rebalance":
            interruptions.rebalance(instances)
        case "retire":
            interruptions.retire(instances)
        case _:
            raise CloudError(f"event {event!r} is none of {', '.join(EVENTS)}")
    return {"ends": {}}


def change_capacity(ec2: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take capacity away (`none`), give all of it back (`restore`), or neither.

    Returns:
        `shortages`: what there is no capacity of, a line each.

    Raises:
        CloudError: The types, the zone or the market are wrong.
    """
    if params.get("restore"):
        shortages.restore(ec2)
    elif "none" in params:
        shortages.add(ec2, params["none"])
    return {"shortages": [capacity.described(each) for each in shortages.shown(ec2)]}


def _seconds(given: Any) -> float:
    if given is None:
        return NOTICE_SECONDS
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= MOST_SECONDS:
        raise CloudError(f"after {given!r} must be a number of seconds, from 0 to {MOST_SECONDS}")
    return float(given)


def _ec2(account: str, region: str) -> Any:
    from moto.ec2.models import ec2_backends

    return ec2_backends[account][region]
