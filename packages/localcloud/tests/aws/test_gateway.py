"""The account through boto3: permissions, and the rules that moto lacks."""

from __future__ import annotations

import json
import re
from typing import Any

import boto3
import pytest
from botocore.config import Config

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.account import Clients, clients
from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.aws.launches import refused, run
from tests.aws.account import moto, served

ROOT_TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "*"}]}


def test_the_operator_is_a_user_of_the_account(operator: Clients) -> None:
    assert operator("sts").get_caller_identity()["Arn"] == f"arn:aws:iam::{ACCOUNT}:user/operator"


def test_an_account_of_this_process_that_has_no_gateway_still_answers(operator: Clients) -> None:
    assert operator("s3").list_buckets()["Buckets"] == []
    with served(moto()) as endpoint:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        for service, call in (("s3", "list_buckets"), ("ec2", "describe_vpcs"), ("eks", "list_clusters")):
            alone: Any = boto3.client  # its type lists every service by name
            answer = getattr(alone(service, REGION, endpoint_url=endpoint, **keys), call)()
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200


@pytest.mark.parametrize(
    ("service", "call", "code"),
    [
        ("ec2", "describe_vpcs", "AuthFailure"),
        ("sts", "get_caller_identity", "InvalidClientTokenId"),
        ("s3", "list_buckets", "InvalidAccessKeyId"),
        ("eks", "list_clusters", "UnrecognizedClientException"),
        ("kms", "list_keys", "UnrecognizedClientException"),
    ],
)
def test_unknown_keys_are_refused_with_each_services_own_error(
    endpoint: str, service: str, call: str, code: str
) -> None:
    refused(code, getattr(clients(endpoint, "stranger", "secret")(service), call))


def test_a_wrong_secret_is_refused(endpoint: str) -> None:
    refused("SignatureDoesNotMatch", clients(endpoint, "localcloud", "guess")("sts").get_caller_identity)


@pytest.mark.parametrize(
    ("service", "call", "params", "code", "message"),
    [
        ("ec2", "describe_instances", {"NextToken": "none"}, "InternalError", "moto"),
        ("ec2", "describe_reserved_instances", {}, "NotImplemented", "moto"),
        ("fis", "list_experiment_templates", {}, "NotImplemented", "AWS FIS is not covered.*`localcloud interrupt`"),
    ],
)
def test_an_operation_that_moto_or_this_cloud_lacks_is_an_error_of_its_service(
    endpoint: str, service: str, call: str, params: dict[str, str], code: str, message: str
) -> None:
    made: Any = boto3.Session("localcloud", "localcloud", region_name=REGION)
    client = made.client(service, endpoint_url=endpoint, config=Config(retries={"max_attempts": 0}))
    assert re.search(message, refused(code, lambda: getattr(client, call)(**params)))


@pytest.fixture(scope="module")
def trainer(endpoint: str, operator: Clients) -> Clients:
    """A session of a role that may list and read `code/` in a bucket."""
    iam, s3 = operator("iam"), operator("s3")
    s3.create_bucket(Bucket="code", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="code", Key="code/a b+c.zip", Body=b"zip")
    statements = [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::code/code/*"},
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": "arn:aws:s3:::code",
            "Condition": {"StringLike": {"s3:prefix": "code/*"}},
        },
    ]
    role = iam.create_role(RoleName="trainer", AssumeRolePolicyDocument=json.dumps(ROOT_TRUST))["Role"]["Arn"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName="trainer", PolicyName="code", PolicyDocument=policy)
    made = operator("sts").assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    return clients(endpoint, made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])


def test_a_role_may_do_what_its_policy_allows(trainer: Clients) -> None:
    s3 = trainer("s3")
    assert s3.get_object(Bucket="code", Key="code/a b+c.zip")["Body"].read() == b"zip"
    assert s3.list_objects_v2(Bucket="code", Prefix="code/")["KeyCount"] == 1
    assert trainer("sts").get_caller_identity()["Arn"].endswith(":assumed-role/trainer/test")


def test_a_role_may_do_nothing_else(trainer: Clients) -> None:
    s3 = trainer("s3")
    assert "s3:PutObject" in refused("AccessDenied", lambda: s3.put_object(Bucket="code", Key="code/x", Body=b""))
    refused("AccessDenied", lambda: s3.get_object(Bucket="code", Key="data/x"))
    refused("AccessDenied", lambda: s3.list_objects_v2(Bucket="code"))
    refused("AccessDenied", trainer("iam").list_users)
    refused("UnauthorizedOperation", trainer("ec2").describe_vpcs)
    refused("AccessDeniedException", trainer("eks").list_clusters)


def test_a_role_may_do_only_what_its_boundary_allows_too(endpoint: str, operator: Clients) -> None:
    def document(*actions: str) -> str:
        statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
        return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

    iam = operator("iam")
    arn = iam.create_policy(PolicyName="boundary", PolicyDocument=document("ec2:*"))["Policy"]["Arn"]
    role = iam.create_role(
        RoleName="bounded", AssumeRolePolicyDocument=json.dumps(ROOT_TRUST), PermissionsBoundary=arn
    )["Role"]["Arn"]
    policy = document("ec2:DescribeVpcs", "iam:ListUsers")
    iam.put_role_policy(RoleName="bounded", PolicyName="own", PolicyDocument=policy)
    made = operator("sts").assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    bounded = clients(endpoint, made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])
    bounded("ec2").describe_vpcs()
    refused("AccessDenied", bounded("iam").list_users)
    refused("UnauthorizedOperation", bounded("ec2").describe_subnets)  # a boundary gives nothing
    iam.delete_role_permissions_boundary(RoleName="bounded")
    bounded("iam").list_users()


def test_only_principals_in_the_trust_policy_may_assume_a_role(operator: Clients) -> None:
    document = json.dumps(fakes.trust("pods.eks.amazonaws.com"))
    role = operator("iam").create_role(RoleName="pods", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    refused("AccessDenied", lambda: operator("sts").assume_role(RoleArn=role, RoleSessionName="test"))


def test_a_bucket_that_requires_tls_works_over_the_local_endpoint(operator: Clients) -> None:
    s3 = operator("s3")
    s3.create_bucket(Bucket="tls", CreateBucketConfiguration={"LocationConstraint": REGION})
    deny: dict[str, Any] = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::tls/*"}
    deny["Condition"] = {"Bool": {"aws:SecureTransport": "false"}}
    s3.put_bucket_policy(Bucket="tls", Policy=json.dumps({"Statement": [deny]}))
    s3.put_object(Bucket="tls", Key="k", Body=b"v")
    deny.pop("Condition")
    s3.put_bucket_policy(Bucket="tls", Policy=json.dumps({"Statement": [deny]}))
    refused("AccessDenied", lambda: s3.get_object(Bucket="tls", Key="k"))


@pytest.fixture
def vpc(operator: Clients) -> str:
    identity: str = operator("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    return identity


def subnet(operator: Clients, vpc: str, number: int = 0) -> str:
    zone = f"{REGION}{'ab'[number]}"
    made = operator("ec2").create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=zone)
    identity: str = made["Subnet"]["SubnetId"]
    return identity


def test_a_resource_that_another_one_uses_is_not_deleted(operator: Clients, vpc: str) -> None:
    ec2 = operator("ec2")
    first, gateway = subnet(operator, vpc), ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=first, AllocationId=address)["NatGateway"]["NatGatewayId"]
    refused("DependencyViolation", lambda: ec2.delete_subnet(SubnetId=first))
    refused("InvalidIPAddress.InUse", lambda: ec2.release_address(AllocationId=address))
    refused("DependencyViolation", lambda: ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc))
    ec2.delete_nat_gateway(NatGatewayId=nat)
    ec2.release_address(AllocationId=address)
    ec2.delete_subnet(SubnetId=first)
    refused("DependencyViolation", lambda: ec2.delete_vpc(VpcId=vpc))
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_vpc(VpcId=vpc)


def test_a_security_group_that_a_rule_or_an_interface_uses_is_not_deleted(operator: Clients, vpc: str) -> None:
    ec2, efs = operator("ec2"), operator("efs")
    one, two = (
        ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"] for name in ("one", "two")
    )
    pair = {"GroupId": two, "Description": "NFS from the nodes"}
    permission = {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "UserIdGroupPairs": [pair]}
    rule = ec2.authorize_security_group_ingress(GroupId=one, IpPermissions=[permission])["SecurityGroupRules"][0]
    assert rule["Description"] == "NFS from the nodes"
    refused("DependencyViolation", lambda: ec2.delete_security_group(GroupId=two))
    system = efs.create_file_system(CreationToken="sg")["FileSystemId"]
    target = efs.create_mount_target(FileSystemId=system, SubnetId=subnet(operator, vpc), SecurityGroups=[one])
    refused("DependencyViolation", lambda: ec2.delete_security_group(GroupId=one))
    efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    ec2.delete_security_group(GroupId=one)
    ec2.delete_security_group(GroupId=two)


def test_a_gateway_endpoint_is_deleted_with_its_routes(operator: Clients, vpc: str) -> None:
    ec2 = operator("ec2")
    tables = [ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"] for _ in range(2)]
    service = f"com.amazonaws.{REGION}.s3"
    made = ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=service, VpcEndpointType="Gateway", RouteTableIds=tables[:1])
    identity = made["VpcEndpoint"]["VpcEndpointId"]
    ec2.modify_vpc_endpoint(VpcEndpointId=identity, AddRouteTableIds=tables[1:])

    def routes() -> list[int]:
        found = ec2.describe_route_tables(RouteTableIds=tables)["RouteTables"]
        return [sum("DestinationPrefixListId" in route for route in table["Routes"]) for table in found]

    assert routes() == [1, 1]
    refused("DependencyViolation", lambda: ec2.delete_vpc(VpcId=vpc))
    ec2.delete_vpc_endpoints(VpcEndpointIds=[identity])
    assert routes() == [0, 0]
    refused("InvalidVpcEndpointId.NotFound", lambda: ec2.describe_vpc_endpoints(VpcEndpointIds=[identity]))


def test_a_terminated_instances_interface_is_deleted(operator: Clients, vpc: str) -> None:
    ec2, where = operator("ec2"), subnet(operator, vpc)
    ec2.terminate_instances(InstanceIds=[run(ec2, SubnetId=where)])
    ec2.delete_subnet(SubnetId=where)


def test_file_systems_have_backup_policies_updates_and_errors_of_efs(operator: Clients) -> None:
    efs = operator("efs")
    system = efs.create_file_system(CreationToken="efs", ThroughputMode="elastic", Encrypted=True)["FileSystemId"]
    efs.put_backup_policy(FileSystemId=system, BackupPolicy={"Status": "ENABLED"})
    assert efs.describe_backup_policy(FileSystemId=system)["BackupPolicy"]["Status"] == "ENABLED"
    assert efs.update_file_system(FileSystemId=system, ThroughputMode="bursting")["ThroughputMode"] == "bursting"
    efs.put_file_system_policy(FileSystemId=system, Policy="{}")
    efs.delete_file_system_policy(FileSystemId=system)
    refused("PolicyNotFound", lambda: efs.describe_file_system_policy(FileSystemId=system))
    refused("FileSystemNotFound", lambda: efs.create_access_point(ClientToken="c", FileSystemId="fs-00000000"))
    refused(
        "FileSystemNotFound",
        lambda: efs.put_backup_policy(FileSystemId="fs-00000000", BackupPolicy={"Status": "ENABLED"}),
    )
    refused("AccessPointNotFound", lambda: efs.delete_access_point(AccessPointId="fsap-00000000"))


def test_eks_replies_have_the_shapes_of_the_api(operator: Clients, vpc: str) -> None:
    eks, iam = operator("eks"), operator("iam")
    document = json.dumps(fakes.trust("eks.amazonaws.com"))
    role = iam.create_role(RoleName="wire", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    subnets = [subnet(operator, vpc, number) for number in range(2)]
    made = eks.create_cluster(
        name="wire",
        roleArn=role,
        resourcesVpcConfig={"subnetIds": subnets},
        accessConfig={"authenticationMode": "API"},
        bootstrapSelfManagedAddons=False,
    )["cluster"]
    assert made["createdAt"].year > 2000
    entry = eks.describe_access_entry(clusterName="wire", principalArn=f"arn:aws:iam::{ACCOUNT}:user/operator")
    assert entry["accessEntry"]["type"] == "STANDARD"
    eks.get_waiter("cluster_active").wait(name="wire", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    eks.tag_resource(resourceArn=made["arn"], tags={"team": "training"})
    assert eks.describe_cluster(name="wire")["cluster"]["tags"] == {"team": "training"}
    refused("ResourceNotFoundException", lambda: eks.describe_nodegroup(clusterName="wire", nodegroupName="none"))
    refused("InvalidRequestException", lambda: eks.list_fargate_profiles(clusterName="wire"))
    refused("DependencyViolation", lambda: operator("ec2").delete_subnet(SubnetId=subnets[0]))
    eks.delete_cluster(name="wire")
    eks.get_waiter("cluster_deleted").wait(name="wire", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    for identity in subnets:
        operator("ec2").delete_subnet(SubnetId=identity)
    operator("ec2").delete_vpc(VpcId=vpc)
