"""The proxy: calls pass unchanged, and those that the plan names meet its fault. Real clients, real HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from tests.aws import moto_server
from tests.e2e.faults.plan import Call, Fault, Met, Plan
from tests.e2e.faults.proxy import Proxy

Clients = Callable[[str], Any]

TRUST = {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": "sts:AssumeRole"}
ROLE = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
QUICK = Config(retries={"mode": "standard", "total_max_attempts": 2}, s3={"addressing_style": "path"})
"""One repeat of a call."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with moto_server.serve() as endpoint, Proxy(endpoint, ACCOUNT) as made:
        yield made


@pytest.fixture(scope="module")
def client(proxy: Proxy) -> Clients:
    connect: Any = boto3.client  # its type lists every service by name
    return lambda service: connect(service, REGION, endpoint_url=proxy.url, config=QUICK, **moto_server.KEYS)


def create_vpc(client: Clients) -> None:
    client("ec2").create_vpc(CidrBlock="10.9.0.0/16")


def vpcs(client: Clients) -> int:
    found = client("ec2").describe_vpcs(Filters=[{"Name": "cidr", "Values": ["10.9.0.0/16"]}])["Vpcs"]
    return len(found)


def make(client: Clients, service: str, name: str) -> None:
    """Make a thing of a service; each of the services has another protocol, or another form of errors."""
    if service == "ec2":
        client("ec2").create_security_group(GroupName=name, Description=name)
    elif service == "iam":
        client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=ROLE)
    elif service == "s3":
        where = {"LocationConstraint": REGION}
        client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=where)
        client("s3").put_object(Bucket=name, Key="a b", Body=b"text" * 1000)
        assert client("s3").get_object(Bucket=name, Key="a b")["Body"].read() == b"text" * 1000
        assert client("s3").head_object(Bucket=name, Key="a b")["ContentLength"] == 4000
    elif service == "kms":
        client("kms").create_key(Description=name)
    elif service == "sqs":
        client("sqs").create_queue(QueueName=name)
    else:
        client("efs").create_file_system(CreationToken=name)


SERVICES = ("ec2", "iam", "s3", "kms", "sqs", "efs")
THROTTLED = {"ec2": "RequestLimitExceeded", "s3": "SlowDown", "iam": "Throttling"}


@pytest.mark.parametrize("service", SERVICES)
def test_signed_calls_pass_in_both_directions(client: Clients, service: str) -> None:
    make(client, service, f"passes-{service}")


@pytest.mark.parametrize("service", SERVICES)
def test_clients_understand_that_they_are_throttled_and_the_next_run_succeeds(
    proxy: Proxy, client: Clients, service: str
) -> None:
    with proxy.fault(Plan(Fault.THROTTLED)) as plan, pytest.raises(ClientError) as caught:
        make(client, service, f"throttled-{service}")
    assert caught.value.response["Error"]["Code"] == THROTTLED.get(service, "ThrottlingException")
    assert caught.value.response["ResponseMetadata"]["RetryAttempts"] == 1
    assert plan.struck
    make(client, service, f"throttled-{service}")


@pytest.mark.parametrize("service", SERVICES)
def test_clients_understand_that_aws_has_failed(proxy: Proxy, client: Clients, service: str) -> None:
    with proxy.fault(Plan(Fault.FAILED)), pytest.raises(ClientError) as caught:
        make(client, service, f"failed-{service}")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert caught.value.response["Error"]["Code"].startswith("Internal")


def test_a_refused_call_is_not_done(proxy: Proxy, client: Clients) -> None:
    before = vpcs(client)
    with proxy.fault(Plan(Fault.FAILED)), pytest.raises(ClientError):
        create_vpc(client)
    assert vpcs(client) == before


def test_an_unanswered_call_is_done_once_although_the_sdk_repeats_it(proxy: Proxy, client: Clients) -> None:
    before = vpcs(client)
    with proxy.fault(Plan(Fault.UNANSWERED)) as plan, pytest.raises(ConnectionClosedError):
        create_vpc(client)
    assert [*map(str, plan.struck)] == ["ec2:CreateVpc"]
    assert vpcs(client) == before + 1


def test_only_the_call_at_its_place_meets_the_fault_and_reading_calls_are_not_counted(
    proxy: Proxy, client: Clients
) -> None:
    with proxy.fault(Plan(Fault.FAILED, skip=1)) as plan:
        make(client, "kms", "first")
        client("kms").list_keys()
        with pytest.raises(ClientError):
            make(client, "sqs", "second")
        make(client, "kms", "third")
    assert [*map(str, plan.struck)] == ["sqs:CreateQueue"]


def test_what_was_struck_in_one_run_can_be_spared_in_the_next_under_another_automatic_name(
    proxy: Proxy, client: Clients
) -> None:
    with proxy.fault(Plan(Fault.FAILED)) as plan, pytest.raises(ClientError):
        make(client, "iam", "node-role-1a2b3c4")
    second = Plan(Fault.FAILED)
    second.spare(plan.struck)
    with proxy.fault(second) as plan:
        make(client, "iam", "node-role-5d6e7f8")
        with pytest.raises(ClientError):
            make(client, "iam", "other-role-5d6e7f8")
    assert [*map(str, plan.struck)] == ["iam:CreateRole"]


def test_a_call_is_alike_whatever_the_order_of_its_parameters(proxy: Proxy, client: Clients) -> None:
    met: set[str] = set()
    for parameters in ({"GroupName": "a", "Description": "b"}, {"Description": "b", "GroupName": "a"}):
        with proxy.fault(Plan(Fault.FAILED)) as plan, pytest.raises(ClientError):
            client("ec2").create_security_group(**parameters)
        met.update(call.alike for call in plan.struck)
    assert len(met) == 1


def test_several_calls_meet_the_fault_each_once_if_several_are_wanted() -> None:
    plan = Plan(Fault.FAILED, most=2)
    first, again, second, third = (
        Call("ec2", "CreateRoute", same, alike) for same, alike in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "c"))
    )
    met = [plan.next(call) for call in (first, again, second, first, third)]
    assert met == [Met(Fault.FAILED), None, Met(Fault.FAILED), Met(Fault.FAILED, repeat=True), None]
    assert plan.struck == [first, second]


def test_calls_that_pass_do_not_meet_the_fault_when_they_come_again() -> None:
    plan = Plan(Fault.UNANSWERED, skip=1)
    first, second, reading = (
        Call("ec2", operation, same, same)
        for operation, same in (("CreateVpc", "a"), ("CreateSubnet", "b"), ("DescribeVpcs", "c"))
    )
    met = [plan.next(call) for call in (reading, first, second, first, second, reading)]
    assert met == [None, None, Met(Fault.UNANSWERED), None, Met(Fault.UNANSWERED, repeat=True), None]
