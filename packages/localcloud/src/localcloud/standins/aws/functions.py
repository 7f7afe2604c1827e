"""The functions (invokes) that the stand-in covers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from localcloud.standins.aws import eks_functions, instance_types, network_functions
from localcloud.standins.aws.entry import Call, Tree, absent_as_none, words
from localcloud.standins.aws.network_functions import filters
from localcloud.standins.aws.resources.efs import read_system
from localcloud.standins.serve import PluginError


@dataclass(frozen=True)
class Function:
    """A function: its arguments, and what computes its result."""

    arguments: frozenset[str]
    answer: Callable[[Call], Tree]


def _region(call: Call) -> Tree:
    region = call.region
    wanted = call.inputs.get("endpoint")
    if wanted:
        region = wanted.split(".")[1]
    found = call.client("ec2").describe_regions(RegionNames=[region])["Regions"]
    if not found:
        raise PluginError(f"there is no AWS region {region}")
    host = found[0].get("Endpoint") or f"ec2.{region}.amazonaws.com"
    return {"id": region, "name": region, "region": region, "endpoint": host, "description": region}


def _caller(call: Call) -> Tree:
    me = call.client("sts").get_caller_identity()
    return {"id": me["Account"], "accountId": me["Account"], "arn": me["Arn"], "userId": me["UserId"]}


def _partition(call: Call) -> Tree:
    partition, suffix = ("aws-cn", "amazonaws.com.cn") if call.region.startswith("cn-") else ("aws", "amazonaws.com")
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _zones(call: Call) -> Tree:
    arguments: Tree = {"Filters": filters(call)}
    if call.inputs.get("allAvailabilityZones"):
        arguments["AllAvailabilityZones"] = True
    found = call.client("ec2").describe_availability_zones(**arguments)["AvailabilityZones"]
    state = call.inputs.get("state")
    barred = {*(call.inputs.get("excludeNames") or []), *(call.inputs.get("excludeZoneIds") or [])}
    zones = sorted(
        (zone["ZoneName"], zone.get("ZoneId", ""), zone.get("GroupName") or call.region)
        for zone in found
        if state in (None, zone.get("State")) and not barred & {zone["ZoneName"], zone.get("ZoneId")}
    )
    return {
        "id": call.region,
        "region": call.region,
        "names": [name for name, _, _ in zones],
        "zoneIds": [zone_id for _, zone_id, _ in zones],
        "groupNames": sorted({group for _, _, group in zones}),
        **{name: value for name, value in call.inputs.items() if name != "region"},
    }


def _offerings(call: Call) -> Tree:
    wanted = call.inputs.get("locationType")
    arguments = {"LocationType": wanted} if wanted else {}
    pages = call.client("ec2").get_paginator("describe_instance_type_offerings")
    found = [
        offering
        for page in pages.paginate(Filters=filters(call), **arguments)
        for offering in page["InstanceTypeOfferings"]
    ]
    return {
        "id": call.region,
        "region": call.region,
        "instanceTypes": [offering["InstanceType"] for offering in found],
        "locations": [offering["Location"] for offering in found],
        "locationTypes": [offering["LocationType"] for offering in found],
        **{name: value for name, value in call.inputs.items() if name != "region"},
    }


def _instance_type(call: Call) -> Tree:
    found = call.client("ec2").describe_instance_types(InstanceTypes=[call.inputs["instanceType"]])["InstanceTypes"]
    return {**instance_types.outputs(found[0]), "region": call.region}


def _service_quota(call: Call) -> Tree:
    """The default, and the account's own value if it has one, as the official plug-in asks for them.

    https://github.com/hashicorp/terraform-provider-aws (internal/service/servicequotas/service_quota_data_source.go)
    """
    service, code = call.inputs.get("serviceCode"), call.inputs.get("quotaCode")
    if code is None:
        reason = (
            "quotaName is not covered by the stand-in for pulumi-aws" if call.inputs.get("quotaName") else "missing"
        )
        raise PluginError(f"aws:servicequotas/getServiceQuota:getServiceQuota: {reason}; give quotaCode")
    client = call.client("service-quotas")
    default = client.get_aws_default_service_quota(ServiceCode=service, QuotaCode=code)["Quota"]
    asked = {"ServiceCode": service, "QuotaCode": code}
    own = absent_as_none(lambda: client.get_service_quota(**asked)["Quota"]) or default
    metric = default.get("UsageMetric") or {}
    dimensions = metric.get("MetricDimensions") or {}
    known = {key.lower(): value for key, value in dimensions.items()} if dimensions.get("Service") else {}
    return {
        "id": default["QuotaArn"],
        "arn": own["QuotaArn"],
        "adjustable": default["Adjustable"],
        "defaultValue": default["Value"],
        "globalQuota": default["GlobalQuota"],
        "quotaCode": code,
        "quotaName": default["QuotaName"],
        "region": call.region,
        "serviceCode": service,
        "serviceName": default["ServiceName"],
        "usageMetrics": [
            {
                "metricName": metric["MetricName"],
                "metricNamespace": metric["MetricNamespace"],
                "metricStatisticRecommendation": metric.get("MetricStatisticRecommendation", ""),
                "metricDimensions": [known],
            }
        ]
        if metric
        else [],
        "value": own["Value"],
    }


def _default_disk_key(call: Call) -> Tree:
    found = call.client("ec2").get_ebs_default_kms_key_id()["KmsKeyId"]
    return {"id": call.region, "region": call.region, "keyArn": found}


def _bucket(call: Call) -> Tree:
    name, s3 = call.inputs["bucket"], call.client("s3")
    try:
        region = s3.head_bucket(Bucket=name)["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", call.region)
    except s3.exceptions.ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        raise PluginError(f"reading S3 Bucket ({name}): couldn't find resource") from error
    return {
        "id": name,
        "bucket": name,
        "arn": f"arn:aws:s3:::{name}",
        "region": call.region,
        "bucketRegion": region,
        "bucketDomainName": f"{name}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{name}.s3.{region}.amazonaws.com",
        "hostedZoneId": "",
        "websiteDomain": "",
        "websiteEndpoint": "",
    }


def _objects(call: Call) -> Tree:
    names = {"bucket": "Bucket", "prefix": "Prefix", "delimiter": "Delimiter", "startAfter": "StartAfter"}
    asked = {theirs: call.inputs[ours] for ours, theirs in names.items() if call.inputs.get(ours)}
    most = call.inputs.get("maxKeys") or 1000
    pages = call.client("s3").get_paginator("list_objects_v2").paginate(**asked, PaginationConfig={"MaxItems": most})
    found = list(pages)
    return {
        **{name: value for name, value in call.inputs.items() if name != "region"},
        "id": call.inputs["bucket"],
        "region": call.region,
        "keys": [each["Key"] for page in found for each in page.get("Contents") or []],
        "commonPrefixes": [each["Prefix"] for page in found for each in page.get("CommonPrefixes") or []],
        "owners": [],
        "requestCharged": "",
    }


def _file_system(call: Call) -> Tree:
    call.id = call.inputs.get("fileSystemId") or ""
    found = read_system(call)
    if found is None:
        raise PluginError(f"reading EFS file system ({call.id}): couldn't find resource")
    size = found.pop("sizeInBytes")[0]["value"]
    for name in ("ownerId", "numberOfMountTargets"):
        found.pop(name)
    none: Tree = {"availabilityZoneName": "", "lifecyclePolicies": [], "protections": [], "kmsKeyId": ""}
    return {
        **none,
        "provisionedThroughputInMibps": 0,
        **found,
        "id": call.id,
        "fileSystemId": call.id,
        "sizeInBytes": size,
        "region": call.region,
    }


def _key(call: Call) -> Tree:
    described = call.client("kms").describe_key(KeyId=call.inputs["keyId"])["KeyMetadata"]
    # moto leaves out what a key was created without; AWS answers its defaults.
    plain = {"Description": "", "KeyUsage": "ENCRYPT_DECRYPT", "KeySpec": "SYMMETRIC_DEFAULT", "MultiRegion": False}
    found = {**plain, **described}
    return {
        **{name: value for name, value in call.inputs.items() if name == "grantTokens"},
        "id": found["KeyId"],
        "keyId": call.inputs["keyId"],
        "region": call.region,
        "arn": found["Arn"],
        "awsAccountId": found["AWSAccountId"],
        "cloudHsmClusterId": found.get("CloudHsmClusterId", ""),
        "creationDate": f"{found['CreationDate']:%Y-%m-%dT%H:%M:%SZ}",
        "customKeyStoreId": found.get("CustomKeyStoreId", ""),
        "customerMasterKeySpec": found["KeySpec"],
        "deletionDate": f"{found['DeletionDate']:%Y-%m-%dT%H:%M:%SZ}" if "DeletionDate" in found else "",
        "description": found["Description"],
        "enabled": found["Enabled"],
        "expirationModel": found.get("ExpirationModel", ""),
        "keyManager": found["KeyManager"],
        "keySpec": found["KeySpec"],
        "keyState": found["KeyState"],
        "keyUsage": found["KeyUsage"],
        "multiRegion": found["MultiRegion"],
        "multiRegionConfigurations": [],
        "origin": found["Origin"],
        "pendingDeletionWindowInDays": found.get("PendingDeletionWindowInDays", 0),
        "validTo": "",
        "xksKeyConfigurations": [],
    }


def _role(call: Call) -> Tree:
    name, iam = call.inputs["name"], call.client("iam")
    try:
        found = iam.get_role(RoleName=name)["Role"]
    except iam.exceptions.NoSuchEntityException as error:
        raise PluginError(f"reading IAM Role ({name}): couldn't find resource") from error
    return {
        "id": found["RoleName"],
        "name": found["RoleName"],
        "arn": found["Arn"],
        "assumeRolePolicy": json.dumps(found["AssumeRolePolicyDocument"]),
        "createDate": f"{found['CreateDate']:%Y-%m-%dT%H:%M:%SZ}",
        "description": found.get("Description", ""),
        "maxSessionDuration": found.get("MaxSessionDuration", 3600),
        "path": found["Path"],
        "permissionsBoundary": (found.get("PermissionsBoundary") or {}).get("PermissionsBoundaryArn", ""),
        "roleLastUseds": [],
        "tags": {each["Key"]: each["Value"] for each in found.get("Tags") or []},
        "uniqueId": found["RoleId"],
    }


def _policy(call: Call) -> Tree:
    arn, iam = call.inputs.get("arn"), call.client("iam")
    if not arn:
        raise PluginError("name is not covered by the stand-in for pulumi-aws; give arn")
    try:
        found = iam.get_policy(PolicyArn=arn)["Policy"]
    except iam.exceptions.NoSuchEntityException as error:
        raise PluginError(f"reading IAM policy ({arn}): couldn't find resource") from error
    version = iam.get_policy_version(PolicyArn=arn, VersionId=found["DefaultVersionId"])["PolicyVersion"]
    return {
        "id": arn,
        "arn": arn,
        "attachmentCount": found["AttachmentCount"],
        "description": found.get("Description", ""),
        "name": found["PolicyName"],
        "path": found["Path"],
        "policy": json.dumps(version["Document"]),
        "policyId": found["PolicyId"],
        "tags": {each["Key"]: each["Value"] for each in found.get("Tags") or []},
    }


def _parameter(call: Call) -> Tree:
    name = call.inputs["name"]
    decrypt = call.inputs.get("withDecryption") is not False
    ssm = call.client("ssm")
    try:
        found = ssm.get_parameter(Name=name, WithDecryption=decrypt)["Parameter"]
    except ssm.exceptions.ParameterNotFound as error:
        raise PluginError(f"reading SSM Parameter ({name}): couldn't find resource") from error
    plain = "" if found["Type"] == "SecureString" else found["Value"]
    return {
        "id": name,
        "name": name,
        "region": call.region,
        "arn": found["ARN"],
        "type": found["Type"],
        "value": found["Value"],
        "insecureValue": plain,
        "version": found["Version"],
        "withDecryption": decrypt,
    }


FUNCTIONS: Final = {
    "aws:index/getRegion:getRegion": Function(words("endpoint id name"), _region),
    "aws:index/getCallerIdentity:getCallerIdentity": Function(words("id"), _caller),
    "aws:index/getPartition:getPartition": Function(words("id"), _partition),
    "aws:index/getAvailabilityZones:getAvailabilityZones": Function(
        words("allAvailabilityZones excludeNames excludeZoneIds filters state"), _zones
    ),
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": Function(words("filters locationType"), _offerings),
    "aws:ec2/getInstanceType:getInstanceType": Function(words("instanceType"), _instance_type),
    "aws:ec2/getVpcs:getVpcs": Function(words("filters tags"), network_functions.vpcs),
    "aws:ec2/getVpc:getVpc": Function(
        words("cidrBlock default dhcpOptionsId filters id state tags"), network_functions.vpc
    ),
    "aws:ec2/getSubnet:getSubnet": Function(
        words("availabilityZone availabilityZoneId cidrBlock defaultForAz filters id ipv6CidrBlock state tags vpcId"),
        network_functions.subnet,
    ),
    "aws:ec2/getRouteTable:getRouteTable": Function(
        words("filters gatewayId routeTableId subnetId tags vpcId"), network_functions.route_table
    ),
    "aws:ec2/getVpcEndpoint:getVpcEndpoint": Function(
        words("filters id serviceName serviceRegion state tags vpcEndpointType vpcId"), network_functions.endpoint
    ),
    "aws:ec2/getEips:getEips": Function(words("filters tags"), network_functions.addresses),
    "aws:ec2/getNatGateways:getNatGateways": Function(words("filters tags vpcId"), network_functions.nat_gateways),
    "aws:ec2/getNetworkInterfaces:getNetworkInterfaces": Function(words("filters tags"), network_functions.interfaces),
    "aws:ec2/getNetworkInterface:getNetworkInterface": Function(words("filters id tags"), network_functions.interface),
    "aws:efs/getFileSystem:getFileSystem": Function(words("creationToken fileSystemId tags"), _file_system),
    "aws:ebs/getDefaultKmsKey:getDefaultKmsKey": Function(words(""), _default_disk_key),
    "aws:s3/getBucket:getBucket": Function(words("bucket"), _bucket),
    "aws:s3/getObjects:getObjects": Function(
        words("bucket delimiter encodingType fetchOwner maxKeys prefix requestPayer startAfter"), _objects
    ),
    "aws:kms/getKey:getKey": Function(words("grantTokens keyId"), _key),
    "aws:iam/getRole:getRole": Function(words("name tags"), _role),
    "aws:iam/getPolicy:getPolicy": Function(words("arn name pathPrefix tags"), _policy),
    "aws:servicequotas/getServiceQuota:getServiceQuota": Function(
        words("quotaCode quotaName serviceCode"), _service_quota
    ),
    "aws:eks/getAddonVersion:getAddonVersion": Function(
        words("addonName kubernetesVersion mostRecent"), eks_functions.addon_version
    ),
    "aws:eks/getClusterVersions:getClusterVersions": Function(
        words("clusterType clusterVersionsOnlies defaultOnly includeAll versionStatus"), eks_functions.cluster_versions
    ),
    "aws:eks/getCluster:getCluster": Function(words("name tags"), eks_functions.cluster),
    "aws:eks/getAccessEntry:getAccessEntry": Function(
        words("clusterName principalArn tags tagsAll"), eks_functions.access_entry
    ),
    "aws:eks/getAddon:getAddon": Function(words("addonName clusterName tags"), eks_functions.addon),
    "aws:eks/getClusters:getClusters": Function(words(""), eks_functions.clusters),
    "aws:eks/getNodeGroups:getNodeGroups": Function(words("clusterName"), eks_functions.node_groups),
    "aws:eks/getNodeGroup:getNodeGroup": Function(words("clusterName nodeGroupName tags"), eks_functions.node_group),
    "aws:ssm/getParameter:getParameter": Function(words("name withDecryption"), _parameter),
}
