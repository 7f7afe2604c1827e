"""Instances have what their nodes need, with any way to launch them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from localcloud.aws.ec2 import Ec2Instance, MotoEc2

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION, trust
from packages.localcloud.tests.aws.launches import IMAGE, ONE, fleet, run

USER_DATA = b"#!/bin/bash\necho a node\n"
PROFILE = f"arn:aws:iam::{ACCOUNT}:instance-profile/nodes"


@pytest.fixture(scope="module")
def ec2(operator: Clients) -> Any:
    iam = operator("iam")
    iam.create_role(RoleName="node", AssumeRolePolicyDocument=json.dumps(trust("ec2.amazonaws.com")))
    iam.create_instance_profile(InstanceProfileName="nodes")
    iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName="node")
    return operator("ec2")


@pytest.fixture(scope="module")
def subnet(ec2: Any) -> str:
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.8.1.0/28", AvailabilityZone=f"{REGION}b")
    return str(made["Subnet"]["SubnetId"])


@pytest.fixture(scope="module")
def group(ec2: Any, subnet: str) -> str:
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    return str(ec2.create_security_group(GroupName="nodes", Description="of nodes", VpcId=vpc)["GroupId"])


@pytest.fixture(scope="module")
def template(ec2: Any, group: str) -> str:
    data = {
        "ImageId": IMAGE,
        "InstanceType": "m5.large",
        "UserData": b64encode(USER_DATA).decode(),
        "SecurityGroupIds": [group],
        "IamInstanceProfile": {"Name": "nodes"},
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20, "DeleteOnTermination": True}}],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "of", "Value": "template"}]}],
    }
    ec2.create_launch_template(LaunchTemplateName="nodes", LaunchTemplateData=data)
    return "nodes"


def seen(identity: str) -> Ec2Instance:
    return MotoEc2(ACCOUNT, REGION).instances()[identity]


def launched(ec2: Any, template: str, subnet: str, capacity: str = "on-demand", count: int = 1) -> list[str]:
    """Return the ids of instances that are launched as Karpenter launches them."""
    overrides = [{"InstanceType": "c5.large", "SubnetId": subnet, "AvailabilityZone": f"{REGION}b"}]
    more = {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}}
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "of", "Value": "fleet"}]}]
    made = fleet(ec2, template, overrides, capacity, count, TagSpecifications=tags, **more)
    return [identity for each in made["Instances"] for identity in each["InstanceIds"]]


@pytest.mark.parametrize("capacity", ["on-demand", "spot"])
def test_an_instance_of_a_fleet_has_everything_of_its_launch_template(
    ec2: Any, template: str, subnet: str, group: str, capacity: str
) -> None:
    (identity,) = launched(ec2, template, subnet, capacity)
    instance = seen(identity)
    assert (instance.user_data, instance.profile_arn) == (USER_DATA, PROFILE)
    assert (instance.subnet, instance.zone, instance.instance_type) == (subnet, f"{REGION}b", "c5.large")
    assert instance.private_dns_name == f"ip-{instance.private_ip.replace('.', '-')}.{REGION}.compute.internal"
    shown = ec2.describe_instances(InstanceIds=[identity])["Reservations"][0]["Instances"][0]
    tags = {tag["Key"]: tag["Value"] for tag in shown["Tags"]}
    assert (tags["of"], tags["aws:ec2launchtemplate:version"]) == ("fleet", "1")
    assert [each["GroupId"] for each in shown["SecurityGroups"]] == [group]
    assert shown["MetadataOptions"]["HttpTokens"] == "required"
    assert shown.get("InstanceLifecycle") == (None if capacity == "on-demand" else "spot")
    assert shown["IamInstanceProfile"]["Arn"] == PROFILE
    ec2.terminate_instances(InstanceIds=[identity])
    assert identity not in MotoEc2(ACCOUNT, REGION).instances()


def test_each_instance_of_a_larger_fleet_has_the_instance_profile(ec2: Any, template: str, subnet: str) -> None:
    made = launched(ec2, template, subnet, count=3)
    assert {seen(identity).profile_arn for identity in made} == {PROFILE}
    assert len({seen(identity).private_ip for identity in made}) == 3
    ec2.terminate_instances(InstanceIds=made)


def test_run_instances_takes_user_data_and_profile_from_the_request_or_the_template(
    ec2: Any, template: str, subnet: str
) -> None:
    own = seen(run(ec2, SubnetId=subnet, UserData="mine", IamInstanceProfile={"Arn": PROFILE}))
    spot = {"LaunchTemplateName": template}
    of_template = ec2.run_instances(
        SubnetId=subnet, LaunchTemplate=spot, InstanceMarketOptions={"MarketType": "spot"}, MinCount=1, MaxCount=1
    )["Instances"][0]
    assert (own.user_data, own.profile_arn) == (b"mine", PROFILE)
    found = seen(of_template["InstanceId"])
    assert (found.user_data, found.profile_arn, found.instance_type) == (USER_DATA, PROFILE, "m5.large")
    associations = ec2.describe_iam_instance_profile_associations()["IamInstanceProfileAssociations"]
    assert {own.id, found.id} <= {each["InstanceId"] for each in associations}
    ec2.terminate_instances(InstanceIds=[own.id, found.id])


@pytest.mark.parametrize("profile", [{"Name": "none"}, {"Arn": f"{PROFILE}-none"}], ids=["name", "ARN"])
def test_an_unknown_profile_is_refused_with_the_error_that_clients_know(ec2: Any, profile: dict[str, str]) -> None:
    with pytest.raises(ec2.exceptions.ClientError, match=r"InvalidParameterValue.*Invalid IAM Instance Profile"):
        ec2.run_instances(**ONE, IamInstanceProfile=profile)


def test_user_data_that_is_not_in_base64_keeps_no_other_instance_from_being_seen(
    ec2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = run(ec2)
    from moto.ec2.models import ec2_backends

    monkeypatch.setattr(ec2_backends[ACCOUNT][REGION].get_instance_by_id(identity), "user_data", "#!/bin/sh\necho é")
    assert seen(identity).user_data == "#!/bin/sh\necho é".encode()
    ec2.terminate_instances(InstanceIds=[identity])


def test_an_address_is_not_used_again_at_once(ec2: Any, template: str, subnet: str) -> None:
    (first,) = launched(ec2, template, subnet)
    address = seen(first).private_ip
    ec2.terminate_instances(InstanceIds=[first])
    (second,) = launched(ec2, template, subnet)
    assert seen(second).private_ip != address
    ec2.terminate_instances(InstanceIds=[second])


def test_instances_of_one_call_are_launched_all_or_none(ec2: Any, subnet: str) -> None:
    before = MotoEc2(ACCOUNT, REGION).instances().keys()
    with pytest.raises(ec2.exceptions.ClientError, match="InsufficientFreeAddressesInSubnet"):
        ec2.run_instances(ImageId=IMAGE, InstanceType="m5.large", SubnetId=subnet, MinCount=12, MaxCount=12)
    assert MotoEc2(ACCOUNT, REGION).instances().keys() == before


def test_the_image_can_be_named_by_its_parameter_and_must_exist(ec2: Any, subnet: str) -> None:
    plain = {name: value for name, value in ONE.items() if name != "ImageId"} | {"SubnetId": subnet}
    parameter = "resolve:ssm:/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id"
    ec2.create_launch_template(LaunchTemplateName="resolved", LaunchTemplateData={"ImageId": parameter})
    launched = [
        ec2.run_instances(**plain, **image)["Instances"][0]
        for image in ({"ImageId": parameter}, {"LaunchTemplate": {"LaunchTemplateName": "resolved"}})
    ]
    assert [each["ImageId"] for each in launched] == [IMAGE, IMAGE]
    ec2.terminate_instances(InstanceIds=[each["InstanceId"] for each in launched])
    for unknown, text in (("ami-0123456789abcdef0", r"InvalidAMIID\.NotFound"), (f"{parameter}s", "does not exist")):
        with pytest.raises(ec2.exceptions.ClientError, match=text):
            run(ec2, SubnetId=subnet, ImageId=unknown)


def test_boots_are_counted(ec2: Any, template: str, subnet: str) -> None:
    (identity,) = launched(ec2, template, subnet)
    ec2.reboot_instances(InstanceIds=[identity])
    assert (seen(identity).boots, seen(identity).running) == (2, True)
    ec2.stop_instances(InstanceIds=[identity])
    assert (seen(identity).boots, seen(identity).running) == (2, False)
    ec2.start_instances(InstanceIds=[identity])
    ec2.start_instances(InstanceIds=[identity])
    assert (seen(identity).boots, seen(identity).running) == (3, True)
    ec2.terminate_instances(InstanceIds=[identity])
