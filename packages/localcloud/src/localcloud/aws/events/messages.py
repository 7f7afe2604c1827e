"""The events that EC2 and AWS Health send about an instance. Pure functions.

    state_change(instance, "stopping", now, str(uuid4()))

The forms are those of the EC2 User Guide and the AWS Health User Guide:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

Event = dict[str, Any]

STATE_CHANGE: Final = "EC2 Instance State-change Notification"
SPOT_INTERRUPTION: Final = "EC2 Spot Instance Interruption Warning"
REBALANCE: Final = "EC2 Instance Rebalance Recommendation"
HEALTH: Final = "AWS Health Event"

RETIREMENT: Final = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"
RETIREMENT_NOTICE: Final = timedelta(days=14)
"""AWS announces a retirement about two weeks before; nothing ends the instance on this cloud."""


@dataclass(frozen=True)
class Subject:
    """The instance that an event is about."""

    id: str
    account: str
    region: str
    zone: str

    @property
    def arn(self) -> str:
        """The instance's ARN."""
        return f"arn:aws:ec2:{self.region}:{self.account}:instance/{self.id}"


def state_change(subject: Subject, state: str, now: datetime, identity: str) -> Event:
    """Return the event of an instance that has entered a state."""
    return _event(subject, STATE_CHANGE, now, identity, [subject.arn], {"instance-id": subject.id, "state": state})


def spot_interruption(subject: Subject, now: datetime, identity: str) -> Event:
    """Return the warning that EC2 is about to terminate a Spot Instance."""
    # The ARN has the zone and no account: the User Guide says so, and that it differs from other ARNs of EC2.
    resource = f"arn:aws:ec2:{subject.zone}:instance/{subject.id}"
    detail = {"instance-id": subject.id, "instance-action": "terminate"}
    return _event(subject, SPOT_INTERRUPTION, now, identity, [resource], detail)


def rebalance(subject: Subject, now: datetime, identity: str) -> Event:
    """Return the recommendation to replace a Spot Instance that is likely to be interrupted."""
    return _event(subject, REBALANCE, now, identity, [subject.arn], {"instance-id": subject.id})


def retirement(subject: Subject, tags: Mapping[str, str], now: datetime, identity: str) -> Event:
    """Return AWS Health's event of a scheduled change: the instance's host is retired."""
    start = now + RETIREMENT_NOTICE
    text = (
        f"EC2 has detected degradation of the underlying hardware hosting your Amazon EC2 instance (instance-ID: "
        f"{subject.id}) in the {subject.region} region."
    )
    detail = {
        "eventArn": f"arn:aws:health:{subject.region}::event/EC2/{RETIREMENT}/{RETIREMENT}_{identity}",
        "service": "EC2",
        "eventTypeCode": RETIREMENT,
        "eventTypeCategory": "scheduledChange",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "communicationId": identity.replace("-", ""),
        "startTime": _http_date(start),
        "endTime": _http_date(start),
        "lastUpdatedTime": _http_date(now),
        "statusCode": "upcoming",
        "eventRegion": subject.region,
        "eventDescription": [{"language": "en_US", "latestDescription": text}],
        "affectedEntities": [
            {
                "entityValue": subject.id,
                "lastUpdatedTime": _http_date(now),
                "status": "PENDING",
                **({"tags": dict(tags)} if tags else {}),
            }
        ],
        "affectedAccount": subject.account,
        "page": "1",
        "totalPages": "1",
    }
    return {**_event(subject, HEALTH, now, identity, [subject.id], detail), "source": "aws.health"}


def _event(
    subject: Subject, kind: str, now: datetime, identity: str, resources: list[str], detail: dict[str, Any]
) -> Event:
    return {
        "version": "0",
        "id": identity,
        "detail-type": kind,
        "source": "aws.ec2",
        "account": subject.account,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": subject.region,
        "resources": resources,
        "detail": detail,
    }


def _http_date(moment: datetime) -> str:
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")
