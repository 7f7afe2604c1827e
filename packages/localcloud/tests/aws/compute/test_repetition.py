"""A launch that is repeated with its ClientToken launches nothing, as an attempt after a lost answer must not."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.launches import IMAGE, fleet, refused, run


@pytest.fixture(scope="module")
def ec2(operator: Clients) -> Any:
    made = operator("ec2")
    data = {"ImageId": IMAGE, "InstanceType": "m5.large", "UserData": b64encode(b"x").decode()}
    made.create_launch_template(LaunchTemplateName="repeated", LaunchTemplateData=data)
    return made


def launched(ec2: Any) -> set[str]:
    """Return the ids of all instances."""
    found = ec2.describe_instances()["Reservations"]
    return {each["InstanceId"] for reservation in found for each in reservation["Instances"]}


def test_the_same_launch_gets_the_same_instance(ec2: Any) -> None:
    first, before = run(ec2, ClientToken="same"), launched(ec2)
    assert run(ec2, ClientToken="same") == first
    assert launched(ec2) == before
    assert run(ec2, ClientToken="another") not in before


def test_a_launch_with_other_parameters_is_refused(ec2: Any) -> None:
    run(ec2, ClientToken="parameters")
    before = launched(ec2)
    message = refused(
        "IdempotentParameterMismatch", lambda: run(ec2, ClientToken="parameters", InstanceType="m5.xlarge")
    )
    assert "parameters belongs to a call with another value of InstanceType" in message
    assert launched(ec2) == before


def test_a_launch_of_an_instance_that_was_terminated_is_refused(ec2: Any) -> None:
    ec2.terminate_instances(InstanceIds=[run(ec2, ClientToken="ended")])
    refused("IdempotentInstanceTerminated", lambda: run(ec2, ClientToken="ended"))


def test_a_launch_that_was_refused_is_tried_again(ec2: Any) -> None:
    for _ in range(2):
        refused("InvalidAMIID.NotFound", lambda: run(ec2, ClientToken="failed", ImageId="ami-0123456789abcdef0"))
    assert run(ec2, ClientToken="failed")


def test_the_same_fleet_launches_once(ec2: Any) -> None:
    def ask(kind: str) -> Any:
        return fleet(ec2, "repeated", [{"InstanceType": kind}], ClientToken="fleet")

    first, before = ask("m5.large"), launched(ec2)
    again = ask("m5.large")
    assert (again["FleetId"], again["Instances"]) == (first["FleetId"], first["Instances"])
    refused("IdempotentParameterMismatch", lambda: ask("m5.xlarge"))
    assert launched(ec2) == before
