"""A stack is deployed and destroyed with exactly the printed policies, and with nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from localcloud.aws.policy import Decision, Query, evaluate

import settings
from infra.policies.documents import document
from infra.preflight.cluster.checks import ADDONS
from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.account import OPERATOR, Clients, clients, serve_account
from packages.localcloud.tests.aws.fakes import ACCOUNT
from packages.localcloud.tests.standins.aws.conftest import make_engine
from scripts.policy import documents
from scripts.policy.scopes import Place
from scripts.roles import template
from tests import graph
from tests.infra.preflight.roles.given_roles import make
from tests.scripts.policy.deployment import Deployment, recorded

STACK = "production"
CONFIG: dict[str, Any] = {
    **graph.stack_config("Pulumi.aws.yaml.example"),
    "vpcFlowLogs": 14,
    "imageCache": True,
    "placementGroup": True,
    "workerZones": "1",
    "rolePath": "/ml/",
    "monitoring": "none",
    "protect": False,
}
"""With all kinds of resources that the stand-in makes: it has no Amazon Managed Prometheus."""

FIRST_CALLS = {
    "ec2": "describe_vpcs",
    "ecr": "describe_pull_through_cache_rules",
    "efs": "describe_file_systems",
    "events": "list_rules",
    "iam": "list_roles",
    "kms": "list_keys",
    "logs": "describe_log_groups",
    "s3": "list_buckets",
    "sqs": "list_queues",
    "ssm": "describe_parameters",
}
"""A call to each of moto's services."""

CHANGES = (
    "ec2:CreateLaunchTemplateVersion ec2:DeleteTags ec2:ModifyLaunchTemplate ec2:ModifySecurityGroupRules "
    "ec2:ModifySubnetAttribute ec2:ModifyVpcEndpoint ec2:ReplaceRoute ec2:ReplaceRouteTableAssociation "
    "ecr:UpdatePullThroughCacheRule eks:AssociateEncryptionConfig eks:UntagResource eks:UpdateAccessEntry "
    "eks:UpdateAddon eks:UpdateNodegroupConfig eks:UpdateClusterVersion eks:UpdateNodegroupVersion "
    "eks:UpdatePodIdentityAssociation elasticfilesystem:ModifyMountTargetSecurityGroups "
    "elasticfilesystem:UntagResource elasticfilesystem:UpdateFileSystem events:UntagResource "
    "iam:DeleteRolePermissionsBoundary iam:PutRolePermissionsBoundary iam:UntagRole iam:UpdateAssumeRolePolicy "
    "iam:UpdateRole iam:UpdateRoleDescription kms:DisableKey kms:DisableKeyRotation kms:EnableKey kms:PutKeyPolicy "
    "kms:UntagResource kms:UpdateAlias kms:UpdateKeyDescription logs:AssociateKmsKey "
    "logs:DeleteRetentionPolicy logs:DisassociateKmsKey logs:UntagResource sqs:UntagQueue"
)
"""Of changes in place of other settings than tags: none of them is made here."""

SCRIPTS = (
    "ec2:DescribeInstances eks:DescribeUpdate eks:ListAccessEntries eks:ListAddons "
    "eks:ListPodIdentityAssociations eks:UpdateClusterConfig logs:ListTagsLogGroup"
)
"""Of `scripts.adopt`, `address` and `destroy`."""

READ_BY_THE_PLUG_IN = (
    "ec2:DescribeAddressesAttribute ec2:DescribeNetworkInterfaces ec2:DescribePrefixLists ec2:DisassociateAddress "
    "elasticfilesystem:DescribeLifecycleConfiguration elasticfilesystem:ListTagsForResource iam:ListRolePolicies "
    "iam:ListRoleTags s3:DeleteObject s3:GetAccelerateConfiguration s3:GetBucketAcl s3:GetBucketCORS "
    "s3:GetBucketLogging s3:GetBucketRequestPayment s3:GetBucketWebsite s3:GetReplicationConfiguration "
    "sqs:GetQueueUrl eks:DescribeAddonVersions"
)
"""Of the official plug-in, which reads and tidies up more than the stand-in does: its resources `aws_eip`,
`aws_subnet`, `aws_vpc_endpoint`, `aws_efs_file_system`, `aws_iam_role`, `aws_s3_bucket` and `aws_sqs_queue`."""

BY_OTHER_SERVICES = (
    "ec2:CreateNetworkInterface ec2:DeleteNetworkInterface ec2:ModifyNetworkInterfaceAttribute ec2:RunInstances "
    "iam:CreateServiceLinkedRole kms:CreateGrant kms:Decrypt kms:GenerateDataKey kms:GenerateDataKeyWithoutPlaintext"
)
"""Services of AWS do these with the rights of the caller; those of the one-machine cloud don't: EFS makes interfaces of
mount targets, EKS looks whether the caller may launch instances, services make their roles, and S3, EFS and EKS use the
key.
https://docs.aws.amazon.com/efs/latest/ug/API_CreateMountTarget.html
https://docs.aws.amazon.com/eks/latest/userguide/using-service-linked-roles.html
https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html"""

ONLY_ON_AWS = ["ServiceRoles"]
"""The statements that no call here needs: the one-machine cloud has no service-linked roles."""


def wanted(config: Mapping[str, Any] = CONFIG) -> settings.Settings:
    return settings.parse(config, stack=STACK)


def printed(config: Mapping[str, Any] = CONFIG) -> list[dict[str, Any]]:
    stack = wanted(config)
    return documents.policies(stack, Place.of(stack, ACCOUNT))


def deployer(
    operator: Clients,
    endpoint: str,
    name: str,
    given: Iterable[dict[str, Any]],
    config: Mapping[str, Any] = CONFIG,
) -> Deployment:
    """Return the deployment by a user with these policies."""
    iam = operator("iam")
    iam.create_user(UserName=name)
    for index, each in enumerate(given):
        policy = iam.create_policy(PolicyName=f"{name}-{index}", PolicyDocument=json.dumps(each))["Policy"]
        iam.attach_user_policy(UserName=name, PolicyArn=policy["Arn"])
    key = iam.create_access_key(UserName=name)["AccessKey"]
    keys = {"accessKey": key["AccessKeyId"], "secretKey": key["SecretAccessKey"]}
    engine = make_engine(endpoint, defaultTags={"tags": wanted().all_tags}, **keys)
    return Deployment(engine, config, STACK)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The endpoint of an empty account, where EKS has the addons that the stack wants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fakes.FakeAddons, "VERSIONS", {name: [each] for name, each in wanted().cluster.addons.items()})
        yield from serve_account()


@pytest.fixture(scope="module")
def operator(endpoint: str) -> Clients:
    """The clients of the account's operator. moto's applications exist: Python can't compile them in many threads."""
    operator = clients(endpoint, OPERATOR.access_key, OPERATOR.secret_key)
    for service, call in FIRST_CALLS.items():
        getattr(operator(service), call)()
    return operator


@pytest.fixture(scope="module")
def asked(operator: Clients, endpoint: str) -> list[Query]:
    """What the policies were asked while a user who has the printed ones deployed, read, changed and destroyed."""
    deployment = deployer(operator, endpoint, "deployer", printed())
    with recorded() as found:
        deployment.up()
        deployment.refresh()
        deployment.tag()
        deployment.destroy()
    return found


def test_the_printed_policies_are_enough_to_deploy_and_destroy(asked: list[Query]) -> None:
    assert len(asked) > 100


def test_without_one_of_the_statements_something_is_refused(asked: list[Query]) -> None:
    statements = [each for policy in printed() for each in policy["Statement"]]
    unused = []
    for left_out in statements:
        rest = [document(*(each for each in statements if each is not left_out))]
        if all(evaluate(rest, each) is Decision.ALLOW for each in asked):
            unused.append(left_out["Sid"])
    assert unused == ONLY_ON_AWS


def test_every_action_is_used_or_has_a_reason_why_it_is_not_used_here(asked: list[Query]) -> None:
    allowed = {action for policy in printed() for each in policy["Statement"] for action in each["Action"]}
    reasons = (CHANGES, SCRIPTS, READ_BY_THE_PLUG_IN, BY_OTHER_SERVICES)
    assert allowed - {each.action for each in asked} == {name for reason in reasons for name in reason.split()}


def a_vpc(operator: Clients) -> dict[str, Any]:
    """Return the settings that name a VPC with two subnets that have a default route."""
    ec2 = operator("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number * 64}.0/18", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for number, zone in enumerate(("us-west-2a", "us-west-2b"))
    ]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    way = ec2.create_nat_gateway(SubnetId=subnets[0], AllocationId=address)["NatGateway"]["NatGatewayId"]
    (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", NatGatewayId=way)
    own = {"availabilityZones": "2", "natGateways": "single", "vpcFlowLogs": 0}
    return {**CONFIG, **own, "vpcId": vpc, "privateSubnetIds": subnets}


def test_in_a_vpc_and_with_a_key_that_are_there_they_are_enough_too_and_none_can_be_made(
    operator: Clients, endpoint: str, asked: list[Query]
) -> None:
    key = operator("kms").create_key()["KeyMetadata"]["Arn"]
    before = operator("kms").list_keys()["Keys"]
    config = {**a_vpc(operator), "dataKeyArn": key}
    given = printed(config)
    deployment = deployer(operator, endpoint, "guest", given, config)
    deployment.up()
    deployment.refresh()
    deployment.destroy()
    allowed = {action for policy in given for each in policy["Statement"] for action in each["Action"]}
    networks = ("Vpc", "Subnet", "Route", "RouteTable", "InternetGateway", "NatGateway", "VpcEndpoint", "FlowLogs")
    assert not allowed & {f"ec2:{verb}{each}" for verb in ("Create", "Delete") for each in networks}
    assert not allowed & {f"kms:{each}" for each in ("CreateKey", "PutKeyPolicy", "ScheduleKeyDeletion", "CreateAlias")}
    assert operator("kms").list_keys()["Keys"] == before
    assert operator("kms").describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "Enabled"
    assert asked  # the other stack of this name is gone


def test_with_the_roles_of_the_template_they_are_enough_too_and_no_role_is_touched(
    operator: Clients, endpoint: str, asked: list[Query]
) -> None:
    iam = operator("iam")

    def described() -> list[Any]:
        names = [each["RoleName"] for each in iam.list_roles()["Roles"]]
        details = (iam.list_attached_role_policies, iam.list_role_policies, iam.list_role_tags)
        kept = [{**call(RoleName=name), "ResponseMetadata": None} for name in names for call in details]
        return [iam.list_roles()["Roles"], kept]

    teams = [{"name": "vision", "maxWorkers": 1, "userArns": [f"arn:aws:iam::{ACCOUNT}:role/vision"]}]
    more = {"fileAccess": "iam", "teams": teams, "checkpoints": "both"}
    stack = wanted({**CONFIG, **more})
    arns = make(iam, template(stack, Place.of(stack, ACCOUNT)))
    before, config = described(), {**CONFIG, **more, "rolePath": "/", "roleArns": arns}
    given = printed(config)
    deployment = deployer(operator, endpoint, "without-roles", given, config)
    deployment.up()
    assert operator("eks").describe_cluster(name="tidewater-production")["cluster"]["roleArn"] == arns["cluster"]
    assert described() == before
    deployment.refresh()
    deployment.tag()
    deployment.destroy()
    assert described() == before
    allowed = {action for policy in given for each in policy["Statement"] for action in each["Action"]}
    reads = {f"iam:{each}" for each in ("GetRole", "ListRolePolicies", "ListAttachedRolePolicies")}
    others = {"iam:PassRole", "iam:CreateServiceLinkedRole"}
    assert {each for each in allowed if each.startswith("iam:")} == reads | others
    assert asked  # the other stack of this name is gone


def a_cluster(operator: Clients, network: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that name a cluster in that VPC, with the addons that the stack needs."""
    iam, eks = operator("iam"), operator("eks")
    role = iam.create_role(RoleName="platform", AssumeRolePolicyDocument=json.dumps(fakes.trust("eks.amazonaws.com")))
    place = {"subnetIds": network["privateSubnetIds"]}
    modes = {"authenticationMode": "API"}
    eks.create_cluster(
        name="platform",
        roleArn=role["Role"]["Arn"],
        version=wanted().cluster.version,
        resourcesVpcConfig=place,
        accessConfig=modes,
    )
    eks.get_waiter("cluster_active").wait(name="platform", WaiterConfig={"Delay": 1})
    for addon in ADDONS:
        eks.create_addon(clusterName="platform", addonName=addon)
        eks.get_waiter("addon_active").wait(clusterName="platform", addonName=addon, WaiterConfig={"Delay": 1})
    return {**network, "publicAccessCidrs": [], "adminArns": [], "clusterName": "platform"}


def test_on_a_cluster_that_is_there_they_are_enough_too_and_leave_it_as_it_is(
    operator: Clients, endpoint: str, asked: list[Query]
) -> None:
    config = a_cluster(operator, a_vpc(operator))
    eks = operator("eks")

    def described() -> list[Any]:
        addons = [eks.describe_addon(clusterName="platform", addonName=each)["addon"] for each in ADDONS]
        entries = eks.list_access_entries(clusterName="platform")["accessEntries"]
        return [eks.describe_cluster(name="platform")["cluster"], addons, entries]

    before = described()
    deployment = deployer(operator, endpoint, "tenant", printed(config), config)
    deployment.up()
    assert eks.list_nodegroups(clusterName="platform")["nodegroups"]
    deployment.refresh()
    deployment.destroy()
    assert described() == before
    assert asked  # the other stack of this name is gone


def test_the_calls_are_refused_once_a_statement_is_gone(operator: Clients, endpoint: str) -> None:
    less = [document(*(each for each in policy["Statement"] if each["Sid"] != "NewRoles")) for policy in printed()]
    with pytest.raises(Exception, match="not authorized to perform: iam:CreateRole"):
        deployer(operator, endpoint, "less", less).up()
