"""Interrupt Spot Instances as EC2 does: a notice, two minutes later the end. Also rebalance signals and retirements.

    interruptions.notice(["i-1", "i-2"])       # EventBridge gets the warnings; both end after two minutes

The instances of one call are checked before the first of them gets its notice.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from localcloud.aws.compute.capacity import SPOT
from localcloud.aws.events import bus, messages, states
from localcloud.errors import CloudError

log = logging.getLogger(__name__)

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
NOTICE_SECONDS: Final = 120.0
REASON: Final = "Server.SpotInstanceTermination"

Schedule = Callable[[float, Callable[[], None]], None]


class NotInterruptible(CloudError):
    """EC2 would not send this to this instance; the message says why."""


@dataclass(frozen=True)
class Seen:
    """What decides whether an instance can get a notice."""

    state: str
    lifecycle: str | None
    ends_at: datetime | None = None


def check(identity: str, seen: Seen | None, *, spot: bool = True) -> None:
    """Raise unless the instance runs and, if `spot`, is a Spot Instance that has no notice yet.

    Raises:
        NotInterruptible: Names the instance and the remedy.
    """
    if seen is None:
        raise NotInterruptible(f"there is no instance {identity}: `aws ec2 describe-instances` lists them")
    if seen.state != "running":
        raise NotInterruptible(f"instance {identity} is {seen.state}: only a running instance can be interrupted")
    if not spot:
        return
    if seen.lifecycle != SPOT:
        raise NotInterruptible(
            f"instance {identity} is On-Demand: only a Spot Instance is interrupted; "
            "end this one with `aws ec2 terminate-instances`, or announce its retirement with --retire"
        )
    if seen.ends_at is not None:
        raise NotInterruptible(f"instance {identity} has its notice already: it ends at {seen.ends_at:%H:%M:%S} UTC")


def after(seconds: float, work: Callable[[], None]) -> None:
    """Do the work in a thread after so many seconds, unless the process ends before."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


class Interruptions:
    """The interruptions of one account and region.

    Args:
        noticed: Called with the id of an instance that has got its notice.
        ended: Called after an interrupted instance has been terminated.
        schedule: How to wait for the end of an instance.
    """

    def __init__(
        self,
        account: str,
        region: str,
        noticed: Callable[[str], None] = lambda identity: None,
        ended: Callable[[], None] = lambda: None,
        schedule: Schedule = after,
    ) -> None:
        self._account = account
        self._region = region
        self._noticed = noticed
        self._ended = ended
        self._schedule = schedule
        self._ends: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def notice(self, identities: Sequence[str], seconds: float = NOTICE_SECONDS) -> Mapping[str, str]:
        """Send the interruption warning of each instance, and terminate it so many seconds later.

        Returns:
            When each instance ends.

        Raises:
            NotInterruptible: One of them can't be interrupted; then none of them is.
        """
        now = datetime.now(UTC)
        end = now + timedelta(seconds=seconds)
        with self._lock:
            instances = self._checked(identities)
            self._ends |= dict.fromkeys(instances, end)
        for identity, instance in instances.items():
            log.info("instance %s is interrupted: it ends in %.0f s", identity, seconds)
            bus.publish(messages.spot_interruption(states.subject(instance), now, str(uuid.uuid4())))
            self._schedule(seconds, partial(self._end, identity))
        for identity in instances:
            self._noticed(identity)
        return dict.fromkeys(instances, f"{end:%Y-%m-%dT%H:%M:%SZ}")

    def rebalance(self, identities: Sequence[str]) -> None:
        """Send the rebalance recommendation of each Spot Instance; nothing ends.

        Raises:
            NotInterruptible: One of them is no running Spot Instance; then nothing is sent.
        """
        for instance in self._checked(identities).values():
            bus.publish(messages.rebalance(states.subject(instance), datetime.now(UTC), str(uuid.uuid4())))

    def retire(self, identities: Sequence[str]) -> None:
        """Send AWS Health's event that each instance's host will be retired; nothing ends.

        Raises:
            NotInterruptible: One of them doesn't run; then nothing is sent.
        """
        for instance in self._checked(identities, spot=False).values():
            tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
            event = messages.retirement(states.subject(instance), tags, datetime.now(UTC), str(uuid.uuid4()))
            bus.publish(event)

    def _checked(self, identities: Sequence[str], *, spot: bool = True) -> dict[str, Any]:
        found = {identity: self._backend.get_instance_by_id(identity) for identity in identities}
        for identity, instance in found.items():
            seen = Seen(instance.state, instance.lifecycle, self._ends.get(identity)) if instance else None
            check(identity, seen, spot=spot)
        return found

    def _end(self, identity: str) -> None:
        """Terminate the instance as EC2 does, also one with termination protection."""
        from moto.autoscaling.models import autoscaling_backends
        from moto.ec2.models.instances import StateReason

        with self._lock:
            self._ends.pop(identity, None)
        instance = self._backend.get_instance_by_id(identity)
        if instance is None or instance.state == "terminated":
            return
        instance.disable_api_termination = False
        self._backend.terminate_instances([identity])
        instance.state_reason = StateReason(f"{REASON}: Spot instance termination", REASON)
        instance._reason = f"Server.SpotInstanceTermination ({datetime.now(UTC):%Y-%m-%d %H:%M:%S} GMT)"
        autoscaling_backends[self._account][self._region].notify_terminate_instances([identity])
        log.info("instance %s is terminated: its Spot capacity was taken back", identity)
        self._ended()

    @property
    def _backend(self) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[self._account][self._region]
