"""The functions return what the official plug-in's return."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest
from localcloud.aws.eks_images import NEWEST, PARAMETERS, RELEASES, images
from localcloud.standins.aws.clients import Clients
from localcloud.standins.aws.functions import FUNCTIONS
from localcloud.standins.aws.schema_from_sdk import module_of

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION
from packages.localcloud.tests.standins.aws.cases import MANAGED, group_inputs
from packages.localcloud.tests.standins.aws.conftest import make_engine
from packages.localcloud.tests.standins.aws.harness import CheckFailed, Engine
from packages.localcloud.tests.standins.aws.networks import make_network
from packages.localcloud.tests.standins.aws.world import World, cluster_inputs


def test_region_account_and_partition(engine: Engine) -> None:
    assert engine.invoke("aws:index/getRegion:getRegion")["region"] == REGION
    assert engine.invoke("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == ACCOUNT
    assert engine.invoke("aws:index/getPartition:getPartition")["dnsSuffix"] == "amazonaws.com"


def test_zones_are_sorted_and_can_be_left_out(engine: Engine) -> None:
    token = "aws:index/getAvailabilityZones:getAvailabilityZones"
    zones = engine.invoke(token, state="available", excludeNames=["us-west-2a"])
    assert zones["names"] == ["us-west-2b", "us-west-2c", "us-west-2d"]
    assert len(zones["zoneIds"]) == 3


def test_offerings_say_in_which_zones_an_instance_type_is(engine: Engine) -> None:
    token = "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings"
    wanted = [{"name": "instance-type", "values": ["m5.large", "no.such"]}]
    found = engine.invoke(token, filters=wanted, locationType="availability-zone")
    assert set(found["instanceTypes"]) == {"m5.large"}
    assert {"us-west-2a", "us-west-2b"} <= set(found["locations"])
    assert set(found["locationTypes"]) == {"availability-zone"}
    assert engine.invoke(token, filters=wanted)["locations"] == [REGION]


def test_an_instance_type_is_described_as_ec2_describes_it(engine: Engine) -> None:
    token = "aws:ec2/getInstanceType:getInstanceType"
    gpus = engine.invoke(token, instanceType="p4d.24xlarge")
    assert (gpus["id"], gpus["defaultVcpus"], gpus["memorySize"]) == ("p4d.24xlarge", 96, 1152 * 1024)
    assert gpus["gpuses"] == [{"count": 8, "manufacturer": "NVIDIA", "memorySize": 40960, "name": "A100"}]
    assert (gpus["efaSupported"], gpus["efaMaximumInterfaces"], gpus["maximumNetworkCards"]) == (True, 4, 4)
    assert {card["index"] for card in gpus["networkCards"]} == {0, 1, 2, 3}
    plain = engine.invoke(token, instanceType="m7g.large")
    assert (plain["gpuses"], plain["totalGpuMemory"], plain["efaSupported"]) == ([], 0, False)
    assert plain["supportedArchitectures"] == ["arm64"]
    assert plain["supportedUsagesClasses"] == ["on-demand", "spot"]
    with pytest.raises(Exception, match="InvalidInstanceType"):
        engine.invoke(token, instanceType="m5.tiny")


def test_vpcs_are_found_by_their_tags(engine: Engine) -> None:
    for name, more in (("one", {}), ("other", {"Project": "tidewater"})):
        engine.create("aws:ec2/vpc:Vpc", name, {"cidrBlock": "10.0.0.0/16", "tags": {"Stack": "by-tags", **more}})
    token = "aws:ec2/getVpcs:getVpcs"
    assert len(engine.invoke(token, tags={"Stack": "by-tags"})["ids"]) == 2
    assert len(engine.invoke(token, tags={"Stack": "by-tags", "Project": "tidewater"})["ids"]) == 1
    assert engine.invoke(token, tags={"Stack": "none"})["ids"] == []


def test_the_versions_of_kubernetes_with_the_end_of_their_support(engine: Engine) -> None:
    token = "aws:eks/getClusterVersions:getClusterVersions"
    assert [each["clusterVersion"] for each in engine.invoke(token)["clusterVersions"]] == ["1.35", "1.34"]
    (found,) = engine.invoke(token, clusterVersionsOnlies=["1.34"])["clusterVersions"]
    assert (found["versionStatus"], found["defaultVersion"]) == ("STANDARD_SUPPORT", False)
    assert datetime.fromisoformat(found["endOfStandardSupportDate"]) > datetime.now(UTC)
    assert engine.invoke(token, versionStatus="EXTENDED_SUPPORT")["clusterVersions"] == []


def test_a_group_that_is_not_there_is_not_found(engine: Engine) -> None:
    with pytest.raises(Exception, match=r"reading EKS Node Group \(no:such\): couldn't find resource"):
        engine.invoke("aws:eks/getNodeGroup:getNodeGroup", clusterName="no", nodeGroupName="such")


def test_a_quota_has_its_default_and_the_value_that_the_account_has(engine: Engine) -> None:
    token = "aws:servicequotas/getServiceQuota:getServiceQuota"
    by_code = engine.invoke(token, serviceCode="ec2", quotaCode="L-DB2E81BA")
    assert (by_code["defaultValue"], by_code["value"]) == (0, 1152)
    assert by_code["quotaName"] == "Running On-Demand G and VT instances"
    assert by_code["usageMetrics"][0]["metricDimensions"][0]["class"] == "G/OnDemand"
    with pytest.raises(Exception, match="NoSuchResource"):
        engine.invoke(token, serviceCode="ec2", quotaCode="L-0")
    with pytest.raises(Exception, match="give quotaCode"):
        engine.invoke(token, serviceCode="ec2")
    with pytest.raises(Exception, match="quotaName is not covered by the stand-in for pulumi-aws; give quotaCode"):
        engine.invoke(token, serviceCode="ec2", quotaName=by_code["quotaName"])


DESCRIBED = {"Stack": "described"}
PERSON = "arn:aws:iam::123456789012:role/person"

ARGUMENTS: dict[str, dict[str, Any]] = {
    "aws:index/getRegion:getRegion": {},
    "aws:index/getCallerIdentity:getCallerIdentity": {},
    "aws:index/getPartition:getPartition": {},
    "aws:index/getAvailabilityZones:getAvailabilityZones": {},
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": {},
    "aws:ec2/getInstanceType:getInstanceType": {"instanceType": "g5.xlarge"},
    "aws:ec2/getVpcs:getVpcs": {},
    "aws:ec2/getVpc:getVpc": {"tags": DESCRIBED},
    "aws:ec2/getSubnet:getSubnet": {"tags": DESCRIBED},
    "aws:ec2/getRouteTable:getRouteTable": {"tags": DESCRIBED},
    "aws:ec2/getVpcEndpoint:getVpcEndpoint": {"tags": DESCRIBED},
    "aws:ec2/getEips:getEips": {},
    "aws:ec2/getNatGateways:getNatGateways": {},
    "aws:ec2/getNetworkInterfaces:getNetworkInterfaces": {},
    "aws:ec2/getNetworkInterface:getNetworkInterface": {"filters": [{"name": "description", "values": ["EFS mount*"]}]},
    "aws:efs/getFileSystem:getFileSystem": {},
    "aws:ebs/getDefaultKmsKey:getDefaultKmsKey": {},
    "aws:s3/getBucket:getBucket": {"bucket": "described-alone"},
    "aws:s3/getObjects:getObjects": {"bucket": "described-with-objects"},
    "aws:kms/getKey:getKey": {"keyId": "alias/aws/ebs"},
    "aws:iam/getRole:getRole": {"name": "described"},
    "aws:iam/getPolicy:getPolicy": {"arn": MANAGED},
    "aws:servicequotas/getServiceQuota:getServiceQuota": {"serviceCode": "ec2", "quotaCode": "L-DB2E81BA"},
    "aws:eks/getAddonVersion:getAddonVersion": {"addonName": "vpc-cni", "kubernetesVersion": "1.34"},
    "aws:eks/getClusterVersions:getClusterVersions": {"clusterVersionsOnlies": ["1.35"]},
    "aws:eks/getCluster:getCluster": {"name": "described"},
    "aws:eks/getClusters:getClusters": {},
    "aws:eks/getAddon:getAddon": {"clusterName": "described", "addonName": "vpc-cni"},
    "aws:eks/getAccessEntry:getAccessEntry": {"clusterName": "described", "principalArn": PERSON},
    "aws:eks/getNodeGroups:getNodeGroups": {"clusterName": "described"},
    "aws:eks/getNodeGroup:getNodeGroup": {"clusterName": "described", "nodeGroupName": "described"},
    "aws:ssm/getParameter:getParameter": {
        "name": f"{PARAMETERS}/{NEWEST}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    },
}


def test_addresses_and_nat_gateways_are_counted(engine: Engine) -> None:
    vpc = engine.create("aws:ec2/vpc:Vpc", "counted", {"cidrBlock": "10.0.0.0/16"})
    subnet = engine.create("aws:ec2/subnet:Subnet", "counted", {"vpcId": vpc.id, "cidrBlock": "10.0.0.0/24"})
    tags = {"Stack": "counted"}
    engine.create("aws:ec2/internetGateway:InternetGateway", "counted", {"vpcId": vpc.id})
    address = engine.create("aws:ec2/eip:Eip", "counted", {"domain": "vpc", "tags": tags})
    gateway = engine.create(
        "aws:ec2/natGateway:NatGateway", "counted", {"subnetId": subnet.id, "allocationId": address.id, "tags": tags}
    )
    there = [{"name": "state", "values": ["pending", "available"]}]
    assert engine.invoke("aws:ec2/getEips:getEips", tags=tags)["allocationIds"] == [address.id]
    assert engine.invoke("aws:ec2/getNatGateways:getNatGateways", tags=tags, filters=there)["ids"] == [gateway.id]
    assert engine.invoke("aws:ec2/getNatGateways:getNatGateways", tags={"Stack": "none"})["ids"] == []


def test_the_default_key_of_disks_is_awss_until_another_is_set(engine: Engine, clients: Clients) -> None:
    token = "aws:ebs/getDefaultKmsKey:getDefaultKmsKey"
    ec2 = clients.get("ec2", REGION)
    assert engine.invoke(token)["keyArn"] == "alias/aws/ebs"
    ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=1, Encrypted=True)
    assert engine.invoke(token)["keyArn"] == "alias/aws/ebs"
    key = engine.create("aws:kms/key:Key", "disks", {}).outputs["arn"]
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=key)
    assert engine.invoke(token)["keyArn"] == key
    found = engine.invoke("aws:kms/getKey:getKey", keyId=key)
    assert (found["keyManager"], found["keyState"], found["keySpec"]) == ("CUSTOMER", "Enabled", "SYMMETRIC_DEFAULT")


def test_the_objects_of_a_bucket_are_found_by_the_beginning_of_their_names(engine: Engine, clients: Clients) -> None:
    engine.create("aws:s3/bucket:Bucket", "pictures", {"bucket": "pictures"})
    for key in ("cats/1.png", "cats/2.png", "dogs.zip"):
        clients.get("s3", REGION).put_object(Bucket="pictures", Key=key, Body=b"")
    token = "aws:s3/getObjects:getObjects"
    assert engine.invoke("aws:s3/getBucket:getBucket", bucket="pictures")["bucketRegion"] == REGION
    assert engine.invoke(token, bucket="pictures", prefix="cats/", maxKeys=1)["keys"] == ["cats/1.png"]
    assert engine.invoke(token, bucket="pictures", prefix="birds/", maxKeys=1)["keys"] == []
    with pytest.raises(Exception, match=r"reading S3 Bucket \(no-such\): couldn't find resource"):
        engine.invoke("aws:s3/getBucket:getBucket", bucket="no-such")


def document(action: str) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}


def test_a_policy_has_the_document_of_its_default_version(engine: Engine, clients: Clients) -> None:
    iam, token = clients.get("iam", REGION), "aws:iam/getPolicy:getPolicy"
    arn = iam.create_policy(PolicyName="boundary", PolicyDocument=json.dumps(document("s3:*")))["Policy"]["Arn"]
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document("ec2:*")), SetAsDefault=True)
    assert json.loads(engine.invoke(token, arn=arn)["policy"]) == document("ec2:*")
    with pytest.raises(Exception, match=r"reading IAM policy \(.*:policy/none\): couldn't find resource"):
        engine.invoke(token, arn="arn:aws:iam::123456789012:policy/none")
    with pytest.raises(Exception, match="name is not covered by the stand-in for pulumi-aws; give arn"):
        engine.invoke(token, name="boundary")


def test_a_cluster_that_is_not_there_is_not_found(engine: Engine) -> None:
    with pytest.raises(Exception, match=r"reading EKS Cluster \(no-such\): couldn't find resource"):
        engine.invoke("aws:eks/getCluster:getCluster", name="no-such")


def test_an_addon_that_is_not_there_is_not_found(engine: Engine) -> None:
    with pytest.raises(Exception, match=r"reading EKS Add-On \(no:such\): couldn't find resource"):
        engine.invoke("aws:eks/getAddon:getAddon", clusterName="no", addonName="such")


@pytest.mark.usefixtures("_described")
def test_an_access_entry_has_its_tags_and_one_that_is_not_there_is_not_found(engine: Engine) -> None:
    token = "aws:eks/getAccessEntry:getAccessEntry"
    assert engine.invoke(token, clusterName="described", principalArn=PERSON)["tags"] == DESCRIBED
    with pytest.raises(Exception, match=rf"reading EKS Access Entry \(described:{PERSON}s\): couldn't find resource"):
        engine.invoke(token, clusterName="described", principalArn=f"{PERSON}s")


def test_a_role_that_is_not_there_is_not_found(engine: Engine) -> None:
    with pytest.raises(Exception, match=r"reading IAM Role \(no-such\): couldn't find resource"):
        engine.invoke("aws:iam/getRole:getRole", name="no-such")


@pytest.fixture(scope="module")
def _described(endpoint: str) -> None:
    """A cluster with a node group, and a network."""
    engine = make_engine(endpoint)
    make_network(engine, "described")
    world, names = World(engine), {"clusterName": "described", "nodeGroupName": "described"}
    engine.create("aws:eks/cluster:Cluster", "described", {**cluster_inputs(world), "name": "described"})
    engine.create("aws:eks/nodeGroup:NodeGroup", "described", {**group_inputs(world), **names})
    addon = {"clusterName": "described", "addonName": ARGUMENTS["aws:eks/getAddon:getAddon"]["addonName"]}
    engine.create("aws:eks/addon:Addon", "described", addon)
    entry = {"clusterName": "described", "principalArn": PERSON, "tags": DESCRIBED}
    engine.create("aws:eks/accessEntry:AccessEntry", "described", entry)


def test_the_interfaces_of_mount_targets_say_where_a_file_system_can_be_mounted(engine: Engine) -> None:
    vpc = engine.create("aws:ec2/vpc:Vpc", "files", {"cidrBlock": "10.0.0.0/16"})
    place = {"vpcId": vpc.id, "cidrBlock": "10.0.0.0/24", "availabilityZone": f"{REGION}b"}
    subnet = engine.create("aws:ec2/subnet:Subnet", "files", place)
    files = engine.create("aws:efs/fileSystem:FileSystem", "files", {"encrypted": True})
    group = engine.create("aws:ec2/securityGroup:SecurityGroup", "files", {"vpcId": vpc.id})
    target = {"fileSystemId": files.id, "subnetId": subnet.id, "securityGroups": [group.id]}
    engine.create("aws:efs/mountTarget:MountTarget", "files", target)
    assert engine.invoke("aws:efs/getFileSystem:getFileSystem", fileSystemId=files.id)["encrypted"] is True
    theirs = [{"name": "description", "values": [f"EFS mount target for {files.id} (*"]}]
    (id_,) = engine.invoke("aws:ec2/getNetworkInterfaces:getNetworkInterfaces", filters=theirs)["ids"]
    found = engine.invoke("aws:ec2/getNetworkInterface:getNetworkInterface", id=id_)
    assert (found["vpcId"], found["subnetId"], found["availabilityZone"]) == (vpc.id, subnet.id, f"{REGION}b")
    with pytest.raises(Exception, match=r"reading EFS file system \(fs-00000000\): couldn't find resource"):
        engine.invoke("aws:efs/getFileSystem:getFileSystem", fileSystemId="fs-00000000")


@pytest.mark.usefixtures("_described")
@pytest.mark.parametrize("token", FUNCTIONS)
def test_a_function_has_the_sdks_token_arguments_and_outputs(engine: Engine, token: str) -> None:
    name = token.rpartition(":")[2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = module_of(token)
    source = inspect.getsource(getattr(module, module.__name__.rpartition(".")[2]))
    assert f"'{token}'" in source
    arguments = set(re.findall(r"__args__\['(\w+)'\]", source))
    assert FUNCTIONS[token].arguments | {"region"} == arguments | {"region"}
    if token == "aws:iam/getRole:getRole":
        engine.create("aws:iam/role:Role", "described", {"name": "described", "assumeRolePolicy": "{}"})
    given = ARGUMENTS[token]
    if token == "aws:efs/getFileSystem:getFileSystem":
        given = {"fileSystemId": engine.create("aws:efs/fileSystem:FileSystem", "described", {}).id}
    if token.startswith("aws:s3/"):
        engine.create("aws:s3/bucket:Bucket", "described", ARGUMENTS[token])
    result = getattr(module, f"{name[0].upper()}{name[1:]}Result")
    outputs = {
        getattr(each.fget, "_pulumi_name", key) for key, each in vars(result).items() if isinstance(each, property)
    }
    answered = {key for key, value in engine.invoke(token, **given).items() if value is not None}
    assert answered <= outputs
    assert outputs - answered <= arguments, "arguments that were not given come back as null"


def test_the_newest_version_of_an_addon(engine: Engine) -> None:
    token = "aws:eks/getAddonVersion:getAddonVersion"
    newest = engine.invoke(token, addonName="vpc-cni", kubernetesVersion="1.34", mostRecent=True)["version"]
    assert newest.startswith("v1.")
    with pytest.raises(Exception, match="nope"):
        engine.invoke(token, addonName="nope", kubernetesVersion="1.34")


def test_an_unknown_argument_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(CheckFailed) as caught:
        engine.invoke("aws:index/getRegion:getRegion", regoin="x")
    assert "does not know the argument regoin" in caught.value.failures["regoin"]


def test_a_parameter_of_ssm_has_a_value_that_is_no_secret(engine: Engine) -> None:
    (image,) = [each for each in images() if (each.variant, each.release) == ("nvidia", RELEASES[NEWEST][0])]
    name = f"{PARAMETERS}/{NEWEST}/amazon-linux-2023/x86_64/nvidia/{image.name}/release_version"
    found = engine.invoke("aws:ssm/getParameter:getParameter", name=name)
    assert (found["insecureValue"], found["type"]) == (RELEASES[NEWEST][0], "String")
    with pytest.raises(Exception, match=r"reading SSM Parameter \(no-such\): couldn't find resource"):
        engine.invoke("aws:ssm/getParameter:getParameter", name="no-such")
