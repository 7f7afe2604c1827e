"""The program asks an account with a region's true zones, offerings and quotas before it registers anything."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pulumi
import pytest
from localcloud.aws.compute.quotas import QUOTAS
from localcloud.standins.aws.provider import AwsProvider
from localcloud.standins.values import from_plain, to_plain
from pulumi.provider.experimental import provider as sdk

import settings
from infra import preflight
from infra.account import connect
from tests import facts, graph
from tests.aws import moto_server
from tests.aws.moto_server import KEYS, REGION

STANDARD, G, G_SPOT = "L-1216C47A", "L-DB2E81BA", "L-3819A6DF"
REACHED = {"publicAccessCidrs": [graph.ADDRESS]}
"""Without an address outside the VPC a new stack is refused."""
SERVICES = ("ec2", "sts", "servicequotas", "iam", "ssm", "kms")


def provider(endpoint: str, **keys: str) -> graph.Ask:
    """Answer the program's questions by the aws provider, which asks the account."""
    config = {
        "region": REGION,
        "accessKey": keys.get("aws_access_key_id"),
        "secretKey": keys.get("aws_secret_access_key"),
        "endpoints": [dict.fromkeys(SERVICES, endpoint)],
    }
    plugin = AwsProvider()
    asyncio.run(plugin.configure(sdk.ConfigureRequest({}, from_plain(config), True, True)))

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = asyncio.run(plugin.invoke(sdk.InvokeRequest(token, from_plain(dict(arguments)))))
        except Exception as error:
            raise graph.Refused(str(error)) from error
        assert not answer.failures
        return to_plain(answer.return_value or {})

    return ask


@pytest.fixture(scope="module")
def new_account() -> Iterator[str]:
    """The endpoint of an account with AWS's default quotas."""
    with moto_server.serve({code: quota.default for code, quota in QUOTAS.items()}) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    """The endpoint of an account with the quotas of the one-machine cloud."""
    with moto_server.serve() as endpoint:
        yield endpoint


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings of the program."""
    found: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", found.append)
    return found


Refuse = Callable[..., list[str]]


@pytest.fixture
def refused(new_account: str) -> Refuse:
    """Run the program in the new account; return its mistakes. Only the place and the provider were registered."""

    def run(**changes: Any) -> list[str]:
        registered = graph.Graph()
        ask = provider(new_account, **KEYS)
        with pytest.raises(settings.ConfigurationError) as error:
            graph.run(graph.program, {**graph.defaults(), **REACHED, **changes}, ask=ask, graph=registered)
        assert {each.name for each in registered.resources} == {"place", "place-network", "tidewater-local"}
        return list(error.value.mistakes)

    return run


def test_the_defaults_in_a_new_account_name_the_quotas_and_the_values_to_ask_for(refused: Refuse) -> None:
    system, gpus = refused()
    assert system.startswith(f"systemInstanceTypes: 3 nodes need 6 vCPUs of the quota {STANDARD} (Running On-Demand")
    assert f"--quota-code {STANDARD} --desired-value 8`" in system
    assert gpus.startswith(f"instanceTypes: 2 nodes need 8 vCPUs of the quota {G} (Running On-Demand G and VT")
    assert f"--quota-code {G} --desired-value 60`" in gpus


def test_everything_that_the_region_and_the_account_lack_is_told_together(refused: Refuse) -> None:
    mistakes = refused(
        instanceTypes=["g5.xlrge", "g5.xlarge"],
        systemInstanceTypes=["m5.2xlarge", "m7g.2xlarge"],
        availabilityZones=f"{REGION}a,{REGION}z",
        capacityType="SPOT",
    )
    assert [each.split(" ")[0].rstrip(":") for each in mistakes] == [
        "availabilityZones",
        "instanceTypes",
        "systemInstanceTypes",
        "systemInstanceTypes",
        "instanceTypes",
        "instanceTypes",
    ]
    assert f"those are {', '.join(f'{REGION}{letter}' for letter in 'abcd')}" in mistakes[0]
    assert "similar ones are g5.xlarge" in mistakes[1]
    assert [code for each in mistakes for code in (STANDARD, G, G_SPOT) if f"{code} (" in each] == [STANDARD, G, G_SPOT]


@pytest.mark.parametrize(
    ("type_", "zones"), [("g5.xlarge", f"{REGION}c,{REGION}d"), ("g4dn.xlarge", f"{REGION}a,{REGION}d")]
)
def test_a_type_is_enough_in_one_of_the_zones(refused: Refuse, type_: str, zones: str) -> None:
    assert all("vCPUs of the quota" in each for each in refused(instanceTypes=[type_], availabilityZones=zones))


def test_a_type_that_no_zone_of_the_stack_has_is_refused_with_those_that_have_it(refused: Refuse) -> None:
    found = refused(instanceTypes=["g5.xlarge"], availabilityZones=f"{REGION}d,{REGION}e")
    wanted = f"instanceTypes = g5.xlarge: none of the zones {REGION}d, {REGION}e has it; it is in {REGION}a, {REGION}b"
    assert any(each.startswith(wanted) for each in found)


def test_a_new_stack_needs_an_address_from_which_its_api_can_be_reached(refused: Refuse) -> None:
    (mistake, *_) = refused(publicAccessCidrs=[])
    assert mistake.startswith("publicAccessCidrs = []: only machines in the stack's VPC, or connected to it,")
    assert "https://checkip.amazonaws.com" in mistake


def test_a_stack_that_has_a_vpc_can_be_private(account: str, warned: list[str]) -> None:
    tags = [{"Key": key, "Value": value} for key, value in graph.parsed().own_tags.items() if key != "Stack"]
    tags.append({"Key": "Stack", "Value": "local"})
    ec2 = moto_server.client("ec2", account)
    ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": tags}])
    made = graph.run(graph.program, graph.defaults(), ask=provider(account, **KEYS))
    assert made.one("eks:index:Cluster").inputs["endpointPublicAccess"] is False
    assert [each for each in warned if "Unless pulumi runs inside, set your address" in each]


def test_after_the_quotas_are_raised_the_program_registers_everything(warned: list[str]) -> None:
    with moto_server.serve({STANDARD: 5, G: 0}) as endpoint:
        client = moto_server.client("service-quotas", endpoint)
        for code, value in ((STANDARD, 8), (G, 8)):
            client.request_service_quota_increase(ServiceCode="ec2", QuotaCode=code, DesiredValue=value)
        made = graph.run(graph.program, {**graph.defaults(), **REACHED}, ask=provider(endpoint, **KEYS))
    group = made.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs
    assert (group["amiType"], group["instanceTypes"]) == ("AL2023_x86_64_NVIDIA", ["g5.xlarge"])
    (warning,) = warned
    assert f"at maxWorkers = 8 the nodes need up to 60 vCPUs of the quota {G} (" in warning


@pytest.mark.parametrize(
    ("quota", "things"),
    [("L-F678F1CE", "VPCs, the quota L-F678F1CE"), ("L-0263D0A3", "Elastic IP addresses, the quota L-0263D0A3")],
)
def test_a_vpc_or_an_address_that_the_account_may_not_have_is_refused(quota: str, things: str) -> None:
    with moto_server.serve({quota: 0}) as endpoint, pytest.raises(settings.ConfigurationError) as error:
        graph.run(graph.program, {**graph.defaults(), **REACHED}, ask=provider(endpoint, **KEYS))
    (mistake,) = error.value.mistakes
    assert things in mistake
    assert f"--quota-code {quota} --desired-value" in mistake


def test_a_customers_default_key_for_disks_is_refused_in_a_new_account() -> None:
    with moto_server.serve() as endpoint:
        key = moto_server.client("kms", endpoint).create_key()["KeyMetadata"]["Arn"]
        moto_server.client("ec2", endpoint).modify_ebs_default_kms_key_id(KmsKeyId=key)
        asked = provider(endpoint, **KEYS)
        with pytest.raises(settings.ConfigurationError, match=f"set tidewater:nodeDiskKeyArn {key}"):
            graph.run(graph.program, {**graph.defaults(), **REACHED}, ask=asked)
        with pytest.raises(settings.ConfigurationError, match="aws iam create-service-linked-role"):
            graph.run(graph.program, {**graph.defaults(), **REACHED, "nodeDiskKeyArn": key}, ask=asked)


def test_a_key_for_the_data_that_can_not_be_used_is_refused_with_the_remedy() -> None:
    with moto_server.serve() as endpoint:
        kms, asked = moto_server.client("kms", endpoint), provider(endpoint, **KEYS)
        key = kms.create_key()["KeyMetadata"]["Arn"]
        config = {**graph.defaults(), **REACHED, "dataKeyArn": key}
        with pytest.raises(settings.ConfigurationError, match=f"dataKeyArn = {key}0: there is no such key"):
            graph.run(graph.program, {**config, "dataKeyArn": f"{key}0"}, ask=asked)
        kms.schedule_key_deletion(KeyId=key.rpartition("/")[2])
        with pytest.raises(settings.ConfigurationError, match=f"aws kms cancel-key-deletion --key-id {key}"):
            graph.run(graph.program, config, ask=asked)


def test_a_type_that_came_out_this_year_makes_nodes_of_its_size(account: str, warned: list[str]) -> None:
    config = {**graph.defaults(), **REACHED, "instanceTypes": ["g7e.2xlarge"]}
    made = graph.run(graph.program, config, ask=provider(account, **KEYS))
    assert warned == []
    requirements = made.one("kubernetes:karpenter.sh/v1:NodePool").inputs["spec"]["template"]["spec"]["requirements"]
    values = {each["key"].rpartition("/")[2]: each["values"] for each in requirements}
    assert values["instance-gpu-name"] == ["rtx-pro-server-6000"]
    assert values["instance-memory"] == [str(64 * 1024)]


def test_without_the_right_to_read_quotas_there_is_a_warning_and_no_error(account: str, warned: list[str]) -> None:
    iam = moto_server.client("iam", account)
    iam.create_user(UserName="deployer")
    allowed = {"Effect": "Allow", "Action": ["ec2:*", "ssm:*", "sts:*"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="deployer", PolicyName="no-quotas", PolicyDocument=policy)
    key = iam.create_access_key(UserName="deployer")["AccessKey"]
    keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    made = graph.run(graph.program, {**graph.defaults(), **REACHED}, ask=provider(account, **keys))
    assert made.all("aws:ec2/vpc:Vpc")
    assert len(warned) == 3
    for warning in warned:
        assert "could not be checked" in warning
        assert "AccessDenied" in warning


def test_the_facts_about_a_type_are_those_of_aws(account: str) -> None:
    found: list[settings.Settings] = []

    def program() -> None:
        wanted = settings.load()
        found.append(preflight.check(wanted, connect(wanted), graph.aws))

    names = ["p4d.24xlarge", "p5.48xlarge"]
    config = {**graph.defaults(), **REACHED, "instanceTypes": names, "mixedGpuModels": True, "maxWorkers": 2}
    graph.run(program, config, ask=provider(account, **KEYS))
    assert found[0].workers.nodes.hardware == tuple(facts.instance_type(name) for name in names)
    assert [(kind.gpus, kind.efa, kind.has_instance_store) for kind in found[0].workers.nodes.hardware] == [
        (8, 4, True),
        (8, 32, True),
    ]


def test_the_questions_are_asked_at_the_same_time() -> None:
    # Each waits until three were asked: one after the other they would never be answered.
    asked, three_asked = threading.Semaphore(2), threading.Event()

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if "getCallerIdentity" not in token:
            if not asked.acquire(blocking=False):
                three_asked.set()
            assert three_asked.wait(timeout=60)
        return graph.answer(token, arguments)

    def program() -> None:
        wanted = settings.load()
        preflight.check(wanted, connect(wanted), graph.aws)

    graph.run(program, {**graph.defaults(), **REACHED}, ask=ask)
