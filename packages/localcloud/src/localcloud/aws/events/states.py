"""Send EC2's state-change event whenever an instance changes its state: by a call, Auto Scaling, a fleet or an end.

    install()    # once, before the first request

moto changes an instance's state at once, so the event of the state in between goes out just before the other one.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from localcloud.aws.events import bus, messages
from localcloud.aws.events.messages import Subject

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
STARTED: Final = ("pending", "running")
CHANGES: Final = {"start": STARTED, "stop": ("stopping", "stopped"), "terminate": ("shutting-down", "terminated")}


def install() -> None:
    """Wrap moto's methods. Call this once per process, after `launch_rules.install`."""
    from moto.ec2.models import EC2Backend
    from moto.ec2.models.instances import Instance

    for name, states in CHANGES.items():
        _announce_change(Instance, name, states)
    _announce_launch(EC2Backend)


def subject(instance: Any) -> Subject:
    """Return what an event says about one of moto's instances."""
    backend = instance.ec2_backend
    return Subject(instance.id, backend.account_id, backend.region_name, str(instance.availability_zone))


def _announce_change(instance: Any, name: str, states: Sequence[str]) -> None:
    original = getattr(instance, name)

    def wrapped(self: Any) -> Any:
        before = self.state
        result = original(self)
        if self.state != before:
            _announce(self, states)
        return result

    wrapped.__name__ = name
    setattr(instance, name, wrapped)


def _announce_launch(backend: Any) -> None:
    original = backend.run_instances

    def run_instances(self: Any, *args: Any, **kwargs: Any) -> Any:
        reservation = original(self, *args, **kwargs)
        for instance in reservation.instances:
            _announce(instance, STARTED)
        return reservation

    backend.run_instances = run_instances


def _announce(instance: Any, states: Sequence[str]) -> None:
    for state in states:
        bus.publish(messages.state_change(subject(instance), state, datetime.now(UTC), str(uuid.uuid4())))
