"""A fleet takes the next override where there is no capacity, and says so in its answer, as EC2 does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from localcloud.aws.compute import shortages
from localcloud.aws.compute.fleets import ordered

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.aws.launches import IMAGE, ONE, fleet

CODE = "InsufficientInstanceCapacity"


@pytest.fixture(scope="module")
def ec2(operator: Clients) -> Any:
    made = operator("ec2")
    data = {"ImageId": IMAGE, "InstanceType": "m5.large", "UserData": b64encode(b"x").decode()}
    made.create_launch_template(LaunchTemplateName="template", LaunchTemplateData=data)
    return made


@pytest.fixture(scope="module")
def subnets(ec2: Any) -> dict[str, str]:
    """Return a subnet for each of two zones."""
    vpc = ec2.create_vpc(CidrBlock="10.6.0.0/16")["Vpc"]["VpcId"]
    made = {
        f"{REGION}{zone}": ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"10.6.{number}.0/28", AvailabilityZone=f"{REGION}{zone}"
        )
        for number, zone in enumerate("ab")
    }
    return {zone: str(each["Subnet"]["SubnetId"]) for zone, each in made.items()}


@pytest.fixture(autouse=True)
def backend(endpoint: str) -> Iterator[Any]:
    """Moto's EC2; the test's shortages end with it."""
    from moto.ec2.models import ec2_backends

    found = ec2_backends[ACCOUNT][REGION]
    yield found
    shortages.restore(found)


def tried(
    ec2: Any, subnets: dict[str, str], types: list[str], capacity: str = "on-demand", count: int = 1, **more: Any
) -> Any:
    """Create a fleet that tries every type in every zone."""
    overrides = [
        {"InstanceType": kind, "SubnetId": subnet, "AvailabilityZone": zone}
        for kind in types
        for zone, subnet in subnets.items()
    ]
    return fleet(ec2, "template", overrides, capacity, count, **more)


def living(ec2: Any) -> list[Any]:
    filters = [{"Name": "instance-state-name", "Values": ["running"]}]
    return [each for one in ec2.describe_instances(Filters=filters)["Reservations"] for each in one["Instances"]]


def launched(answer: Any) -> list[str]:
    return [each["InstanceType"] for each in answer.get("Instances", [])]


def refused(answer: Any) -> list[tuple[str, str, str, str]]:
    return [
        (
            each["ErrorCode"],
            each["Lifecycle"],
            each["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"],
            each["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"],
        )
        for each in answer.get("Errors", [])
    ]


def test_the_cheapest_type_is_launched(ec2: Any, subnets: dict[str, str]) -> None:
    answer = tried(ec2, subnets, ["m5.xlarge", "c5.large", "m5.large"])
    assert (launched(answer), refused(answer)) == (["c5.large"], [])


@pytest.mark.parametrize("capacity", ["on-demand", "spot"])
def test_the_next_override_is_taken_and_the_error_is_in_the_answer(
    ec2: Any, subnets: dict[str, str], backend: Any, capacity: str
) -> None:
    shortages.add(backend, {"types": ["c5.large"], "zone": f"{REGION}a"})
    answer = tried(ec2, subnets, ["c5.large", "m5.large"], capacity)
    assert launched(answer) == ["c5.large"]
    chosen = answer["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]
    assert chosen["AvailabilityZone"] == f"{REGION}b"
    assert refused(answer) == [(CODE, capacity, "c5.large", f"{REGION}a")]


def test_without_any_capacity_nothing_is_launched_and_nothing_is_left(
    ec2: Any, subnets: dict[str, str], backend: Any
) -> None:
    before = len(ec2.describe_network_interfaces()["NetworkInterfaces"])
    shortages.add(backend, {"types": ["*"]})
    answer = tried(ec2, subnets, ["c5.large", "m5.large"], "spot", count=2)
    assert launched(answer) == []
    assert len(refused(answer)) == 4
    assert {each["ErrorMessage"] for each in answer["Errors"]} == {
        "There is no Spot capacity available that matches your request."
    }
    assert len(ec2.describe_network_interfaces()["NetworkInterfaces"]) == before


def test_only_the_market_without_capacity_is_refused(ec2: Any, subnets: dict[str, str], backend: Any) -> None:
    shortages.add(backend, {"types": ["*"], "market": "spot"})
    assert launched(tried(ec2, subnets, ["m5.large"], "spot")) == []
    assert launched(tried(ec2, subnets, ["m5.large"])) == ["m5.large"]


def test_restored_capacity_can_be_used(ec2: Any, subnets: dict[str, str], backend: Any) -> None:
    shortages.add(backend, {"types": ["*"]})
    shortages.restore(backend)
    assert launched(tried(ec2, subnets, ["m5.large"], count=2)) == ["m5.large", "m5.large"]


def test_a_subnet_without_addresses_is_an_error_in_the_answer(ec2: Any, subnets: dict[str, str]) -> None:
    before = {each["InstanceId"] for each in living(ec2)}
    answer = tried(ec2, subnets, ["m5.large"], count=30)  # two subnets of eleven addresses each
    assert {code for code, _, _, _ in refused(answer)} == {"InsufficientFreeAddressesInSubnet"}
    assert {zone for _, _, _, zone in refused(answer)} == set(subnets)
    ec2.terminate_instances(
        InstanceIds=[each["InstanceId"] for each in living(ec2) if each["InstanceId"] not in before]
    )


def test_run_instances_raises_the_error(ec2: Any, subnets: dict[str, str], backend: Any) -> None:
    shortages.add(backend, {"types": ["m5.large"], "zone": f"{REGION}a"})
    with pytest.raises(ec2.exceptions.ClientError, match=f"{CODE}.*choosing.*{REGION}b"):
        ec2.run_instances(**ONE, SubnetId=subnets[f"{REGION}a"])
    assert ec2.run_instances(**ONE, SubnetId=subnets[f"{REGION}b"])["Instances"]


def test_everything_that_a_fleet_launches_has_its_tags(ec2: Any, subnets: dict[str, str]) -> None:
    kinds = ("instance", "volume", "network-interface")
    tags = [{"ResourceType": kind, "Tags": [{"Key": "of", "Value": kind}]} for kind in kinds]
    for capacity in ("on-demand", "spot"):
        answer = tried(ec2, subnets, ["m5.large"], capacity, TagSpecifications=tags)
        (identity,) = answer["Instances"][0]["InstanceIds"]
        instance = ec2.describe_instances(InstanceIds=[identity])["Reservations"][0]["Instances"][0]
        owned = {
            "instance": [identity],
            "volume": [each["Ebs"]["VolumeId"] for each in instance["BlockDeviceMappings"]],
            "network-interface": [each["NetworkInterfaceId"] for each in instance["NetworkInterfaces"]],
        }
        for kind, identities in owned.items():
            found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": identities}])["Tags"]
            assert [each["Value"] for each in found if each["Key"] == "of"] == [kind] * len(identities)


def test_an_override_that_ec2_refuses_is_an_error_in_the_answer(ec2: Any, subnets: dict[str, str]) -> None:
    answer = tried(ec2, {**subnets, f"{REGION}c": "subnet-0123456789abcdef0"}, ["m5.large"], count=30)
    assert "InvalidSubnetID.NotFound" in {code for code, _, _, _ in refused(answer)}
    assert launched(answer) == ["m5.large"] * len(answer["Instances"])
    ended = [identity for each in answer["Instances"] for identity in each["InstanceIds"]]
    ec2.terminate_instances(InstanceIds=ended)


def test_a_type_that_the_zone_does_not_offer_is_refused(ec2: Any, subnets: dict[str, str]) -> None:
    vpc = ec2.describe_subnets(SubnetIds=list(subnets.values()))["Subnets"][0]["VpcId"]
    far = ec2.create_subnet(VpcId=vpc, CidrBlock="10.6.9.0/28", AvailabilityZone=f"{REGION}d")["Subnet"]["SubnetId"]
    answer = tried(ec2, {f"{REGION}d": far}, ["g5.xlarge"])
    assert [code for code, _, _, _ in refused(answer)] == ["InvalidFleetConfiguration"]
    with pytest.raises(ec2.exceptions.ClientError, match=r"\(Unsupported\).*not supported.*choosing us-west-2a"):
        ec2.run_instances(**{**ONE, "InstanceType": "g5.xlarge"}, SubnetId=far)


def test_the_zone_of_an_override_applies_without_a_subnet(ec2: Any) -> None:
    answer = fleet(ec2, "template", [{"InstanceType": "m5.large", "AvailabilityZone": f"{REGION}b"}], "spot")
    filters = [{"Name": "tag:aws:ec2:fleet-id", "Values": [answer["FleetId"]]}]
    (found,) = ec2.describe_instances(Filters=filters)["Reservations"][0]["Instances"]
    assert (found["Placement"]["AvailabilityZone"], found["InstanceLifecycle"]) == (f"{REGION}b", "spot")


def test_requirements_instead_of_types_are_refused_and_launch_nothing(ec2: Any) -> None:
    before = len(living(ec2))
    needs = {"VCpuCount": {"Min": 8}, "MemoryMiB": {"Min": 4096}}
    with pytest.raises(ec2.exceptions.ClientError, match="InstanceRequirements are not supported"):
        fleet(ec2, "template", [{"InstanceRequirements": needs}], "spot")
    assert len(living(ec2)) == before


def test_a_dry_run_is_answered_as_one(ec2: Any, subnets: dict[str, str]) -> None:
    with pytest.raises(ec2.exceptions.ClientError, match="DryRunOperation"):
        tried(ec2, subnets, ["m5.large"], DryRun=True)


OVERRIDES: list[dict[str, Any]] = [
    {"InstanceType": "m5.xlarge", "Priority": 1.0},
    {"InstanceType": "m5.large"},
    {"InstanceType": "c5.large", "Priority": 2.0},
]


@pytest.mark.parametrize(
    ("strategy", "order"),
    [
        ("lowest-price", [2, 1, 0]),
        ("price-capacity-optimized", [2, 1, 0]),
        ("prioritized", [0, 2, 1]),
        ("capacity-optimized-prioritized", [0, 2, 1]),
        ("diversified", [0, 1, 2]),
    ],
)
def test_the_strategy_says_which_override_is_tried_first(strategy: str, order: list[int]) -> None:
    assert ordered(OVERRIDES, strategy) == order
