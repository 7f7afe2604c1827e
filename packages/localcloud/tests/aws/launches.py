"""Instances, fleets, queues of events and refused calls, as the clients of an account see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError
from localcloud.aws import ec2 as simulated

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION

IMAGE = simulated.AMI
ONE: dict[str, Any] = {"ImageId": IMAGE, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
"""The parameters of a launch of one instance."""


def run(ec2: Any, **more: Any) -> str:
    """Launch one instance; return its id."""
    return str(ec2.run_instances(**{**ONE, **more})["Instances"][0]["InstanceId"])


def fleet(
    ec2: Any,
    template: str,
    overrides: Sequence[dict[str, Any]],
    capacity: str = "on-demand",
    count: int = 1,
    **more: Any,
) -> Any:
    """Create a fleet as Karpenter does."""
    specification = {"LaunchTemplateName": template, "Version": "$Latest"}
    return ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        TargetCapacitySpecification={"DefaultTargetCapacityType": capacity, "TotalTargetCapacity": count},
        **more,
    )


def send_events(clients: Clients, name: str, pattern: dict[str, Any], document: Any, **rule: Any) -> str:
    """Make a queue with a policy, and a rule that sends a pattern's events to it; return the queue's URL."""
    attributes = {"Policy": json.dumps(document)}
    url = clients("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    target = rule.pop("target", {})
    clients("events").put_rule(Name=name, **{"EventPattern": json.dumps(pattern), **rule})
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
    clients("events").put_targets(Rule=name, Targets=[{"Id": "q", "Arn": arn, **target}])
    return str(url)


def received(clients: Clients, url: str) -> list[Any]:
    """Return the events that came to a queue since the last call."""
    found, sqs = [], clients("sqs")
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        found += [json.loads(each["Body"]) for each in messages]
        for each in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    return found


def refused(code: str, call: Callable[[], Any]) -> str:
    """Make a call that is refused with this code; return the message."""
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"] == code
    return str(caught.value)
