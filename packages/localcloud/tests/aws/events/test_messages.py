"""Events have the form that AWS documents."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from localcloud.aws.events import messages
from localcloud.aws.events.messages import Subject

ID = "12345678-1234-1234-1234-123456789012"
NOW = datetime(2026, 11, 23, 13, 5, 9, 250_000, UTC)
SUBJECT = Subject("i-0123456789abcdef0", "123456789012", "us-west-2", "us-west-2b")
ARN = "arn:aws:ec2:us-west-2:123456789012:instance/i-0123456789abcdef0"
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instance-state-changes.html and the pages on Spot.
COMMON = {
    "version": "0",
    "id": ID,
    "source": "aws.ec2",
    "account": "123456789012",
    "time": "2026-11-23T13:05:09Z",
    "region": "us-west-2",
}


@pytest.mark.parametrize(
    ("event", "kind", "resource", "detail"),
    [
        pytest.param(
            messages.state_change(SUBJECT, "shutting-down", NOW, ID),
            "EC2 Instance State-change Notification",
            ARN,
            {"instance-id": SUBJECT.id, "state": "shutting-down"},
            id="state change",
        ),
        pytest.param(
            messages.spot_interruption(SUBJECT, NOW, ID),
            "EC2 Spot Instance Interruption Warning",
            "arn:aws:ec2:us-west-2b:instance/i-0123456789abcdef0",
            {"instance-id": SUBJECT.id, "instance-action": "terminate"},
            id="interruption",
        ),
        pytest.param(
            messages.rebalance(SUBJECT, NOW, ID),
            "EC2 Instance Rebalance Recommendation",
            ARN,
            {"instance-id": SUBJECT.id},
            id="rebalance",
        ),
    ],
)
def test_events_of_ec2(event: dict[str, Any], kind: str, resource: str, detail: dict[str, str]) -> None:
    assert event == {**COMMON, "detail-type": kind, "resources": [resource], "detail": detail}


def test_a_retirement_is_a_scheduled_change_of_the_instance() -> None:
    event = messages.retirement(SUBJECT, {"Name": "worker"}, NOW, ID)
    assert (event["source"], event["detail-type"], event["resources"]) == (
        "aws.health",
        "AWS Health Event",
        [SUBJECT.id],
    )
    detail = event["detail"]
    assert (detail["service"], detail["eventTypeCategory"]) == ("EC2", "scheduledChange")
    assert detail["eventTypeCode"] == "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED"
    assert detail["startTime"] == "Mon, 07 Dec 2026 13:05:09 GMT"
    (affected,) = detail["affectedEntities"]
    assert (affected["entityValue"], affected["tags"]) == (SUBJECT.id, {"Name": "worker"})
