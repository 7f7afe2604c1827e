"""A role with conditions on tags may do what they allow and nothing else: Karpenter's policy is made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from packages.localcloud.tests.aws.account import Clients, clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION, trust
from packages.localcloud.tests.aws.karpenter import CLASS, NAME, POOL, owner, policy
from packages.localcloud.tests.aws.launches import IMAGE, fleet, run

CLUSTER = owner("demo")
OWNED = {CLUSTER: "owned", POOL: "workers", NAME: "demo"}
PROFILE = {CLUSTER: "owned", CLASS: "workers", "topology.kubernetes.io/region": REGION}


def tags(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in given.items()]


def specified(given: dict[str, str], *kinds: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": tags(given)} for kind in kinds]


@pytest.fixture(scope="module")
def karpenter(endpoint: str, operator: Clients) -> Clients:
    """Clients with the credentials of a user who has Karpenter's policy."""
    iam = operator("iam")
    for name in ("node", "admin"):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust("ec2.amazonaws.com")))
    iam.create_user(UserName="karpenter")
    document = json.dumps(policy("demo", "node", "demo"))
    iam.put_user_policy(UserName="karpenter", PolicyName="controller", PolicyDocument=document)
    key = iam.create_access_key(UserName="karpenter")["AccessKey"]
    return clients(endpoint, key["AccessKeyId"], key["SecretAccessKey"])


@pytest.fixture(scope="module")
def subnet(operator: Clients) -> str:
    ec2 = operator("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.5.0.0/16")["Vpc"]["VpcId"]
    return str(ec2.create_subnet(VpcId=vpc, CidrBlock="10.5.1.0/24")["Subnet"]["SubnetId"])


@pytest.fixture(scope="module")
def template(karpenter: Clients) -> str:
    data = {
        "ImageId": IMAGE,
        "InstanceType": "m5.large",
        "TagSpecifications": specified(OWNED, "network-interface", "spot-instances-request"),
    }
    karpenter("ec2").create_launch_template(
        LaunchTemplateName="owned", LaunchTemplateData=data, TagSpecifications=specified(OWNED, "launch-template")
    )
    return "owned"


def launch(clients: Clients, template: str, subnet: str, given: dict[str, str], **more: Any) -> Any:
    overrides = [{"InstanceType": "m5.large", "SubnetId": subnet, "ImageId": IMAGE}]
    tagged = specified(given, "fleet", "instance", "volume")
    return fleet(clients("ec2"), template, overrides, TagSpecifications=tagged, **more)


def refused(call: Callable[[], Any], action: str) -> None:
    with pytest.raises(ClientError, match=f"not authorized to perform: {action}"):
        call()


@pytest.mark.parametrize("capacity", ["on-demand", "spot"])
def test_a_launch_with_the_clusters_tags_is_allowed(
    karpenter: Clients, template: str, subnet: str, capacity: str
) -> None:
    assert launch(karpenter, template, subnet, OWNED, capacity=capacity)["Instances"]


def test_dry_runs_are_answered_as_such(karpenter: Clients, template: str, subnet: str) -> None:
    with pytest.raises(ClientError, match="DryRunOperation"):
        launch(karpenter, template, subnet, OWNED, DryRun=True)
    with pytest.raises(ClientError, match="DryRunOperation"):
        karpenter("ec2").run_instances(
            DryRun=True,
            LaunchTemplate={"LaunchTemplateName": template, "Version": "$Latest"},
            NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet}],
            TagSpecifications=specified(OWNED, "instance", "volume", "network-interface"),
            MinCount=1,
            MaxCount=1,
        )


@pytest.mark.parametrize(
    "given",
    [{}, {CLUSTER: "owned"}, {**OWNED, CLUSTER: "shared"}],
    ids=["none", "without the pool", "of another cluster"],
)
def test_a_launch_without_the_tags_is_refused(
    karpenter: Clients, template: str, subnet: str, given: dict[str, str]
) -> None:
    given = given or {"Name": "x"}
    refused(lambda: launch(karpenter, template, subnet, given), "ec2:CreateFleet")
    refused(lambda: launch(karpenter, template, subnet, given, DryRun=True), "ec2:CreateFleet")


def test_a_launch_template_of_somebody_else_is_refused(karpenter: Clients, operator: Clients, subnet: str) -> None:
    data = {"ImageId": IMAGE, "TagSpecifications": specified(OWNED, "network-interface")}
    operator("ec2").create_launch_template(LaunchTemplateName="other", LaunchTemplateData=data)
    refused(lambda: launch(karpenter, "other", subnet, OWNED), "ec2:CreateFleet on resource: .*launch-template/lt-")
    refused(lambda: karpenter("ec2").delete_launch_template(LaunchTemplateName="other"), "ec2:DeleteLaunchTemplate")
    refused(
        lambda: karpenter("ec2").create_launch_template(LaunchTemplateName="plain", LaunchTemplateData=data),
        "ec2:CreateLaunchTemplate",
    )


def test_only_its_own_instances_are_named_and_ended(
    karpenter: Clients, operator: Clients, template: str, subnet: str
) -> None:
    ec2 = karpenter("ec2")
    own = launch(karpenter, template, subnet, OWNED)["Instances"][0]["InstanceIds"][0]
    stranger = run(operator("ec2"))
    ec2.create_tags(Resources=[own], Tags=tags({"Name": "workers-1", "eks:eks-cluster-name": "demo"}))
    refused(lambda: ec2.create_tags(Resources=[own], Tags=tags({CLUSTER: "shared"})), "ec2:CreateTags")
    refused(lambda: ec2.create_tags(Resources=[stranger], Tags=tags({"Name": "mine"})), "ec2:CreateTags")
    refused(lambda: ec2.terminate_instances(InstanceIds=[own, stranger]), "ec2:TerminateInstances")
    ec2.terminate_instances(InstanceIds=[own])


def test_an_instance_profile_is_made_and_deleted_with_its_role(karpenter: Clients, operator: Clients) -> None:
    iam, name = karpenter("iam"), "demo_1"
    refused(lambda: iam.create_instance_profile(InstanceProfileName=name), "iam:CreateInstanceProfile")
    iam.create_instance_profile(InstanceProfileName=name, Path="/karpenter/demo/", Tags=tags(PROFILE))
    refused(lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName="admin"), "iam:PassRole")
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName="node")
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName="node")
    iam.delete_instance_profile(InstanceProfileName=name)
    operator("iam").create_instance_profile(InstanceProfileName="core")
    refused(lambda: iam.delete_instance_profile(InstanceProfileName="core"), "iam:DeleteInstanceProfile")


def test_a_role_with_a_path_is_passed_tagged_and_deleted_under_the_arn_with_its_path(
    endpoint: str, operator: Clients
) -> None:
    iam, document = operator("iam"), json.dumps(trust("ec2.amazonaws.com"))
    for name, path in (("teams-node", "/teams/"), ("other-node", "/")):
        iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=document)
    iam.create_instance_profile(InstanceProfileName="teams")
    iam.create_user(UserName="teams")
    allowed = ["iam:PassRole", "iam:TagRole", "iam:DeleteRole"]
    profiles = {"Effect": "Allow", "Action": "iam:AddRoleToInstanceProfile", "Resource": "*"}
    roles = {"Effect": "Allow", "Action": allowed, "Resource": f"arn:aws:iam::{ACCOUNT}:role/teams/*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [profiles, roles]})
    iam.put_user_policy(UserName="teams", PolicyName="teams", PolicyDocument=document)
    key = iam.create_access_key(UserName="teams")["AccessKey"]
    teams = clients(endpoint, key["AccessKeyId"], key["SecretAccessKey"])("iam")
    add = teams.add_role_to_instance_profile
    refused(lambda: add(InstanceProfileName="teams", RoleName="other-node"), "iam:PassRole")
    refused(lambda: teams.delete_role(RoleName="other-node"), "iam:DeleteRole")
    add(InstanceProfileName="teams", RoleName="teams-node")
    teams.tag_role(RoleName="teams-node", Tags=tags({"a": "b"}))
    iam.remove_role_from_instance_profile(InstanceProfileName="teams", RoleName="teams-node")
    teams.delete_role(RoleName="teams-node")


def test_only_what_has_the_tags_is_deleted_and_only_to_named_services_are_roles_passed(
    endpoint: str, operator: Clients
) -> None:
    def allow(action: str, key: str, value: str) -> dict[str, Any]:
        return {"Effect": "Allow", "Action": action, "Resource": "*", "Condition": {"StringEquals": {key: value}}}

    iam, ec2 = operator("iam"), operator("ec2")
    statements = [allow("ec2:Delete*", "aws:ResourceTag/Stack", "mine"), allow("iam:*", "iam:PolicyARN", "arn:mine")]
    statements += [allow("iam:PassRole", "iam:PassedToService", "ec2.amazonaws.com")]
    statements += [{"Effect": "Allow", "Action": ["eks:*"], "Resource": "*"}]
    iam.create_user(UserName="deployer")
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_user_policy(UserName="deployer", PolicyName="deployer", PolicyDocument=document)
    key = iam.create_access_key(UserName="deployer")["AccessKey"]
    deployer = clients(endpoint, key["AccessKeyId"], key["SecretAccessKey"])
    vpcs = [ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"] for _ in range(2)]
    ec2.create_tags(Resources=vpcs[:1], Tags=tags({"Stack": "mine"}))
    refused(lambda: deployer("ec2").delete_vpc(VpcId=vpcs[1]), "ec2:DeleteVpc")
    deployer("ec2").delete_vpc(VpcId=vpcs[0])
    role = f"arn:aws:iam::{ACCOUNT}:role/node"
    create = deployer("eks").create_cluster
    refused(lambda: create(name="c", roleArn=role, resourcesVpcConfig={"subnetIds": []}), "iam:PassRole")
    attach = deployer("iam").attach_role_policy
    refused(lambda: attach(RoleName="node", PolicyArn="arn:aws:iam::aws:policy/Other"), "iam:AttachRolePolicy")


def test_a_role_that_may_not_be_passed_is_not_given_to_instances(
    karpenter: Clients, operator: Clients, subnet: str
) -> None:
    iam = operator("iam")
    iam.create_instance_profile(InstanceProfileName="admin")
    iam.add_role_to_instance_profile(InstanceProfileName="admin", RoleName="admin")
    data = {
        "ImageId": IMAGE,
        "InstanceType": "m5.large",
        "IamInstanceProfile": {"Name": "admin"},
        "TagSpecifications": specified(OWNED, "network-interface"),
    }
    karpenter("ec2").create_launch_template(
        LaunchTemplateName="admin", LaunchTemplateData=data, TagSpecifications=specified(OWNED, "launch-template")
    )
    refused(lambda: launch(karpenter, "admin", subnet, OWNED), "iam:PassRole on resource: .*role/admin")


def test_one_queue_and_awss_own_parameters_can_be_read(karpenter: Clients, operator: Clients, endpoint: str) -> None:
    for name in ("demo", "other"):
        operator("sqs").create_queue(QueueName=name)
    url = karpenter("sqs").get_queue_url(QueueName="demo")["QueueUrl"]
    assert "Messages" not in karpenter("sqs").receive_message(QueueUrl=url)
    refused(lambda: karpenter("sqs").get_queue_url(QueueName="other"), "sqs:GetQueueUrl")
    refused(lambda: karpenter("sqs").send_message(QueueUrl=url, MessageBody="invented"), "sqs:SendMessage")
    image = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id"
    assert karpenter("ssm").get_parameter(Name=image)["Parameter"]["Value"] == IMAGE
    refused(lambda: karpenter("ssm").get_parameter(Name="/secret"), "ssm:GetParameter")


def test_other_regions_are_refused(karpenter: Clients, endpoint: str, operator: Clients) -> None:
    assert karpenter("ec2").describe_instances()["Reservations"]
    key = operator("iam").create_access_key(UserName="karpenter")["AccessKey"]
    elsewhere: Any = boto3.client(
        "ec2",
        "eu-west-1",
        endpoint_url=endpoint,
        aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"],
    )
    refused(elsewhere.describe_instances, "ec2:DescribeInstances")
