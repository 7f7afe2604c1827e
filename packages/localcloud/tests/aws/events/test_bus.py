"""The rules of EventBridge get the events of EC2: what matches, what is sent, and which queues get it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from localcloud.aws.events.bus import may_send, message

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.aws.launches import IMAGE, received, run, send_events

STATES = {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]}
RULE = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/states"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(**more: Any) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": "*",
        **more,
    }


OVER_HTTP = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "sqs:*",
    "Resource": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}


@pytest.fixture
def queue(operator: Clients) -> Iterator[Callable[..., str]]:
    """Return a function that makes a queue, and a rule that sends the pattern's events to it."""
    made: list[str] = []

    def make(pattern: dict[str, Any], document: Any = None, state: str = "ENABLED", **target: Any) -> str:
        made.append(f"q-{uuid4()}")
        allowed = policy(allow(), OVER_HTTP) if document is None else document
        return send_events(operator, made[-1], pattern, allowed, State=state, target=target)

    yield make
    for name in made:
        operator("events").remove_targets(Rule=name, Ids=["q"])
        operator("events").delete_rule(Name=name)


def states(events: list[Any], identity: str) -> list[str]:
    return [event["detail"]["state"] for event in events if event["detail"]["instance-id"] == identity]


def test_every_state_of_an_instance_is_announced(operator: Clients, queue: Callable[..., str]) -> None:
    url, identity = queue(STATES), run(operator("ec2"))
    ec2 = operator("ec2")
    ec2.stop_instances(InstanceIds=[identity])
    ec2.start_instances(InstanceIds=[identity])
    ec2.reboot_instances(InstanceIds=[identity])
    ec2.terminate_instances(InstanceIds=[identity])
    ec2.terminate_instances(InstanceIds=[identity])
    events = received(operator, url)
    assert states(events, identity) == [
        *("pending", "running", "stopping", "stopped"),
        *("pending", "running", "shutting-down", "terminated"),
    ]
    assert list(events[0]) == [
        *("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"),
    ]
    assert events[0]["resources"] == [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{identity}"]
    assert events[0]["time"].endswith("Z")
    assert len({event["id"] for event in events}) == len(events)


def test_instances_of_auto_scaling_are_announced_too(operator: Clients, queue: Callable[..., str]) -> None:
    url, scaling = queue(STATES), operator("autoscaling")
    scaling.create_launch_configuration(LaunchConfigurationName="c", ImageId=IMAGE, InstanceType="m5.large")
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="g",
        LaunchConfigurationName="c",
        MinSize=1,
        MaxSize=1,
        AvailabilityZones=[f"{REGION}a"],
    )
    group = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=["g"])["AutoScalingGroups"][0]
    (member,) = group["Instances"]
    scaling.delete_auto_scaling_group(AutoScalingGroupName="g", ForceDelete=True)
    expected = ["pending", "running", "shutting-down", "terminated"]
    assert states(received(operator, url), member["InstanceId"]) == expected


def test_a_rule_gets_only_what_matches_its_pattern(operator: Clients, queue: Callable[..., str]) -> None:
    ends, others = queue({**STATES, "detail": {"state": ["terminated"]}}), queue({"source": ["aws.health"]})
    identity = run(operator("ec2"))
    operator("ec2").terminate_instances(InstanceIds=[identity])
    assert states(received(operator, ends), identity) == ["terminated"]
    assert received(operator, others) == []


def test_a_pattern_that_cannot_be_compared_fails_no_launch(
    operator: Clients, queue: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.events.models import EventPattern

    def fail(*_: Any) -> bool:
        raise RecursionError

    url = queue(STATES)
    with monkeypatch.context() as patched:
        patched.setattr(EventPattern, "matches_event", fail)
        assert run(operator("ec2"))
    assert received(operator, url) == []


def test_a_disabled_rule_gets_nothing(operator: Clients, queue: Callable[..., str]) -> None:
    url = queue(STATES, state="DISABLED")
    run(operator("ec2"))
    assert received(operator, url) == []


def test_a_rule_with_a_schedule_gets_no_events(operator: Clients) -> None:
    url = operator("sqs").create_queue(QueueName="hourly", Attributes={"Policy": json.dumps(policy(allow()))})[
        "QueueUrl"
    ]
    operator("events").put_rule(Name="hourly", ScheduleExpression="rate(1 hour)")
    arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:hourly"
    operator("events").put_targets(Rule="hourly", Targets=[{"Id": "q", "Arn": arn}])
    run(operator("ec2"))
    assert received(operator, url) == []


def test_a_queue_whose_policy_does_not_name_eventbridge_gets_nothing(
    operator: Clients, queue: Callable[..., str]
) -> None:
    url = queue(STATES, policy(allow(Principal={"Service": "sns.amazonaws.com"})))
    run(operator("ec2"))
    assert received(operator, url) == []


def test_a_missing_queue_does_not_keep_the_event_from_others(operator: Clients, queue: Callable[..., str]) -> None:
    gone, url = queue(STATES), queue(STATES)
    operator("sqs").delete_queue(QueueUrl=gone)
    identity = run(operator("ec2"))
    assert states(received(operator, url), identity) == ["pending", "running"]


def test_a_clients_own_events_arrive_whole(operator: Clients, queue: Callable[..., str]) -> None:
    url = queue({"source": ["mine"]})
    entry = {"Source": "mine", "DetailType": "t", "Detail": '{"a": [1, {"b": null}]}', "Resources": ["r"]}
    operator("events").put_events(Entries=[entry])
    (event,) = received(operator, url)
    assert (event["account"], event["detail"], event["resources"]) == (ACCOUNT, {"a": [1, {"b": None}]}, ["r"])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param({"Input": '{"fixed": true}'}, {"fixed": True}, id="constant"),
        pytest.param({"InputPath": "$.detail"}, {"a": "1"}, id="part"),
        pytest.param(
            {"InputTransformer": {"InputPathsMap": {"a": "$.detail.a"}, "InputTemplate": '{"told": "<a>"}'}},
            {"told": "1"},
            id="template",
        ),
    ],
)
def test_a_target_can_change_what_it_gets(target: dict[str, Any], expected: Any) -> None:
    event = {"version": "0", "time": "2026-01-01T00:00:00Z", "ingestion-time": 1.0, "detail": {"a": "1"}}
    assert json.loads(message(target, event)) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(None, False, id="no policy"),
        pytest.param(policy(allow()), True, id="allowed"),
        pytest.param(policy(allow(), OVER_HTTP), True, id="TLS only"),
        pytest.param(policy(allow(Condition={"ArnEquals": {"aws:SourceArn": RULE}})), True, id="this rule"),
        pytest.param(policy(allow(Condition={"ArnEquals": {"aws:SourceArn": f"{RULE}2"}})), False, id="another rule"),
        pytest.param(policy(allow(Condition={"StringEquals": {"aws:SourceAccount": ACCOUNT}})), True, id="account"),
        pytest.param(policy(allow(Resource=f"{QUEUE}2")), False, id="another queue"),
        pytest.param(policy(allow(), allow(Effect="Deny")), False, id="denied"),
        pytest.param(policy(allow(Principal={"AWS": ACCOUNT})), False, id="only the account"),
    ],
)
def test_the_queues_policy_decides(document: Any, expected: bool) -> None:
    assert may_send(document, QUEUE, RULE, ACCOUNT) is expected
