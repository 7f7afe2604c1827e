"""EC2's and IAM's lists have pages and filters as on AWS, and the account has those that moto lacks."""

from __future__ import annotations

import pytest

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import REGION
from packages.localcloud.tests.aws.launches import IMAGE, run


def test_instance_types_come_in_pages_and_whole(operator: Clients) -> None:
    filters = [
        {"Name": "supported-virtualization-type", "Values": ["hvm"]},
        {"Name": "instance-type", "Values": ["g*", "m*"]},
        {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
    ]
    pages = list(operator("ec2").get_paginator("describe_instance_types").paginate(Filters=filters, MaxResults=100))
    assert len(pages) > 3
    assert {len(each["InstanceTypes"]) for each in pages[:-1]} == {100}
    found = {each["InstanceType"]: each for each in (each for one in pages for each in one["InstanceTypes"])}
    gpu = found["g5.xlarge"]
    assert (gpu["VCpuInfo"]["DefaultVCpus"], gpu["MemoryInfo"]["SizeInMiB"]) == (4, 16384)
    assert (gpu["GpuInfo"]["Gpus"][0]["Name"], gpu["GpuInfo"]["Gpus"][0]["Count"]) == ("A10G", 1)
    assert gpu["InstanceStorageInfo"]["TotalSizeInGB"] == 250
    network = found["m5.large"]["NetworkInfo"]
    assert (network["MaximumNetworkInterfaces"], network["Ipv4AddressesPerInterface"]) == (3, 10)


def test_a_dry_run_of_a_list_is_answered_as_one(operator: Clients) -> None:
    with pytest.raises(operator("ec2").exceptions.ClientError, match="DryRunOperation"):
        operator("ec2").describe_instance_types(DryRun=True)


@pytest.mark.parametrize(
    ("kind", "place"), [("availability-zone", f"{REGION}a"), ("availability-zone-id", "usw2-az1"), ("region", REGION)]
)
def test_offerings_name_their_places(operator: Clients, kind: str, place: str) -> None:
    filters = [{"Name": "instance-type", "Values": ["m5.large"]}]
    pages = (
        operator("ec2")
        .get_paginator("describe_instance_type_offerings")
        .paginate(LocationType=kind, Filters=filters, MaxResults=5)
    )
    assert place in [each["Location"] for one in pages for each in one["InstanceTypeOfferings"]]


def test_filters_can_have_wildcards(operator: Clients) -> None:
    ec2, filters = operator("ec2"), [{"Name": "instance-type", "Values": ["m5.?large", "c5.4*"]}]
    offered = ec2.describe_instance_type_offerings(Filters=filters)["InstanceTypeOfferings"]
    assert {each["InstanceType"] for each in offered} == {"m5.xlarge", "c5.4xlarge"}
    prices = ec2.describe_spot_price_history(
        Filters=[
            *filters,
            {"Name": "product-description", "Values": ["Linux*"]},
            {"Name": "availability-zone", "Values": ["*a"]},
        ]
    )["SpotPriceHistory"]
    assert {(each["InstanceType"], each["AvailabilityZone"][-1]) for each in prices} == {
        ("m5.xlarge", "a"),
        ("c5.4xlarge", "a"),
    }


def test_spot_instances_are_found(operator: Clients) -> None:
    ec2 = operator("ec2")
    other, spot = run(ec2), run(ec2, InstanceMarketOptions={"MarketType": "spot"})
    filters = [{"Name": "instance-lifecycle", "Values": ["spot"]}, {"Name": "instance-type", "Values": ["m5.*"]}]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters, PaginationConfig={"PageSize": 5})
    found = [each["InstanceId"] for one in pages for many in one["Reservations"] for each in many["Instances"]]
    assert found == [spot]
    ec2.terminate_instances(InstanceIds=[other, spot])


def test_a_filter_that_moto_lacks_is_an_error_that_names_it(operator: Clients) -> None:
    ec2, filters = operator("ec2"), [{"Name": "hibernation-options.configured", "Values": ["true"]}]
    launched = run(ec2)
    for call in (ec2.describe_instances, ec2.describe_instance_type_offerings, ec2.describe_spot_price_history):
        with pytest.raises(ec2.exceptions.ClientError, match=r"NotImplemented.*hibernation-options\.configured"):
            call(Filters=filters)
    ec2.terminate_instances(InstanceIds=[launched])


def test_launch_templates_are_found_by_tag_in_pages(operator: Clients) -> None:
    ec2 = operator("ec2")
    for number in range(17):
        tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "eks:eks-cluster-name", "Value": "demo"}]}]
        data = {"ImageId": IMAGE}
        ec2.create_launch_template(LaunchTemplateName=f"t/{number}", LaunchTemplateData=data, TagSpecifications=tags)
    filters = [{"Name": "tag:eks:eks-cluster-name", "Values": ["demo"]}]
    assert len(ec2.describe_launch_templates(Filters=filters)["LaunchTemplates"]) == 17
    pages = list(ec2.get_paginator("describe_launch_templates").paginate(Filters=filters, MaxResults=10))
    assert [len(each["LaunchTemplates"]) for each in pages] == [10, 7]
    ec2.delete_launch_template(LaunchTemplateName="t/0")
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidLaunchTemplateName\.NotFoundException"):
        ec2.describe_launch_templates(LaunchTemplateNames=["t/0"])


def test_no_running_instance_is_impaired_or_has_a_scheduled_event(operator: Clients) -> None:
    ec2 = operator("ec2")
    launched = run(ec2)

    def found(name: str, value: str) -> list[str]:
        statuses = ec2.describe_instance_status(Filters=[{"Name": name, "Values": [value]}])["InstanceStatuses"]
        return [each["InstanceId"] for each in statuses]

    for name, value in (
        ("instance-status.status", "impaired"),
        ("system-status.status", "impaired"),
        ("event.code", "instance-retirement"),
    ):
        assert found(name, value) == []
    assert found("instance-status.status", "ok") == [launched]
    assert found("instance-state-name", "running") == [launched]
    assert found("instance-state-name", "stopped") == []


def test_the_account_has_no_reservations(operator: Clients) -> None:
    ec2 = operator("ec2")
    assert ec2.describe_capacity_reservations(MaxResults=1000)["CapacityReservations"] == []
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidCapacityReservationId\.NotFound"):
        ec2.describe_capacity_reservations(CapacityReservationIds=["cr-1"])


def test_only_the_instance_profiles_of_a_path_are_listed(operator: Clients) -> None:
    iam = operator("iam")
    iam.create_instance_profile(InstanceProfileName="core")
    iam.create_instance_profile(InstanceProfileName="surge", Path=f"/karpenter/{REGION}/demo/uid/")
    listed = iam.list_instance_profiles(PathPrefix=f"/karpenter/{REGION}/demo/")["InstanceProfiles"]
    assert [each["InstanceProfileName"] for each in listed] == ["surge"]
    assert len(iam.list_instance_profiles()["InstanceProfiles"]) == 2


def test_a_route_to_a_nat_gateway_that_is_deleted_is_a_blackhole(operator: Clients) -> None:
    ec2 = operator("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.0.0/24")["Subnet"]["SubnetId"]
    gateway = ec2.create_nat_gateway(SubnetId=subnet, ConnectivityType="private")["NatGateway"]["NatGatewayId"]
    (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    id_ = table["RouteTableId"]
    ec2.create_route(RouteTableId=id_, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway)

    def with_routes(state: str) -> list[str]:
        filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "route.state", "Values": [state]}]
        return [each["RouteTableId"] for each in ec2.describe_route_tables(Filters=filters)["RouteTables"]]

    assert (with_routes("active"), with_routes("blackhole")) == ([id_], [])
    ec2.delete_nat_gateway(NatGatewayId=gateway)
    assert with_routes("blackhole") == [id_]
