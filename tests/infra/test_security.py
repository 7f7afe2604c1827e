"""The security checks that the program must pass. The numbers are checkov's and Prowler's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import graph


@pytest.fixture(scope="module", params=["local", "aws"])
def deployed(request: pytest.FixtureRequest) -> graph.Graph:
    """Return the graphs of the stacks that come with the project."""
    file = {"local": "Pulumi.local.yaml", "aws": "Pulumi.aws.yaml.example"}[request.param]
    return graph.deploy(graph.stack_config(file), stack=request.param)


def policies(deployed: graph.Graph) -> list[tuple[str, dict[str, Any]]]:
    """Return every policy document in the graph, with its resource's name."""
    found = []
    for each in deployed.resources:
        for key in ("policy", "assumeRolePolicy"):
            text = each.inputs.get(key)
            if isinstance(text, str) and text.startswith("{"):
                found.append((f"{each.type} {each.name}", json.loads(text)))
    return found


def reads(statement: dict[str, Any]) -> bool:
    """Return whether a statement allows only what AWS allows for no resource or for all."""
    actions = statement["Action"]
    names = [each.partition(":")[2] for each in ([actions] if isinstance(actions, str) else actions)]
    return all(name.startswith(("Describe", "List")) or name == "GetProducts" for name in names)


def test_the_control_plane_keeps_all_five_logs(deployed: graph.Graph) -> None:  # CKV_AWS_37
    logs = deployed.one("eks:index:Cluster").inputs["enabledClusterLogTypes"]
    assert set(logs) == {"api", "audit", "authenticator", "controllerManager", "scheduler"}


def test_the_api_is_private_and_open_only_to_named_addresses(deployed: graph.Graph) -> None:  # CKV_AWS_38, 39
    cluster = deployed.one("eks:index:Cluster").inputs
    assert cluster["endpointPrivateAccess"] is True
    assert cluster["endpointPublicAccess"] is bool(cluster.get("publicAccessCidrs"))
    assert "0.0.0.0/0" not in cluster.get("publicAccessCidrs", [])


def test_secrets_are_encrypted_with_a_customer_key_that_rotates(deployed: graph.Graph) -> None:  # CKV_AWS_58, 7
    assert deployed.one("eks:index:Cluster").inputs["encryptionConfigKeyArn"]
    assert deployed.one("aws:kms/key:Key").inputs["enableKeyRotation"] is True


def test_access_entries_are_the_only_access_and_no_default_group_opens_the_api(deployed: graph.Graph) -> None:
    cluster = deployed.one("eks:index:Cluster").inputs
    assert cluster["authenticationMode"] == "API"
    assert cluster["skipDefaultSecurityGroups"] is True
    assert cluster["skipDefaultNodeGroup"] is True
    assert cluster["vpcCniOptions"]["enableNetworkPolicy"] is True


def test_the_log_group_exists_before_the_cluster(deployed: graph.Graph) -> None:  # CKV_AWS_66, 338, 158
    group = deployed.one("aws:cloudwatch/logGroup:LogGroup")
    cluster = deployed.one("eks:index:Cluster")
    assert group.inputs["name"] == f"/aws/eks/{cluster.inputs['name']}/cluster"
    assert group.inputs["retentionInDays"] >= 365
    assert group.inputs["kmsKeyId"]
    assert deployed.needs(cluster, group)


def test_pods_cannot_read_the_nodes_credentials(deployed: graph.Graph) -> None:  # CKV_AWS_79, 341
    templates = deployed.all("aws:ec2/launchTemplate:LaunchTemplate")
    assert len(templates) == 2
    for template in templates:
        options = template.inputs["metadataOptions"]
        assert options["httpTokens"] == "required"
        assert options["httpPutResponseHopLimit"] == 1
        for device in template.inputs["blockDeviceMappings"]:
            assert device["ebs"]["encrypted"] == "true"


def test_nodes_are_private_and_have_no_remote_access(deployed: graph.Graph) -> None:  # CKV_AWS_88, 100, 130
    private = {f"{each.name}-id" for each in deployed.all("aws:ec2/subnet:Subnet") if "-private-" in each.name}
    for group in deployed.all("aws:eks/nodeGroup:NodeGroup"):
        assert set(group.inputs["subnetIds"]) <= private
        assert "remoteAccess" not in group.inputs
        assert "nodeGroupName" not in group.inputs
    for subnet in deployed.all("aws:ec2/subnet:Subnet"):
        assert subnet.inputs["mapPublicIpOnLaunch"] is False


def test_the_file_system_is_encrypted_backed_up_and_mounted_through_one_access_point(
    deployed: graph.Graph,
) -> None:  # CKV_AWS_42, 184, 329, 330
    file_system = deployed.one("aws:efs/fileSystem:FileSystem").inputs
    assert file_system["encrypted"] is True
    assert file_system["kmsKeyId"]
    assert file_system["throughputMode"] == "elastic"
    access_point = deployed.one("aws:efs/accessPoint:AccessPoint").inputs
    assert access_point["rootDirectory"]["path"] != "/"
    assert access_point["posixUser"]["uid"] > 0
    assert deployed.one("aws:efs/backupPolicy:BackupPolicy").inputs["backupPolicy"]["status"] == "ENABLED"
    assert deployed.one("aws:efs/fileSystemPolicy:FileSystemPolicy").inputs["policy"]


def test_nfs_comes_from_the_nodes_only(deployed: graph.Graph) -> None:  # CKV_AWS_23, 382
    rule = deployed.one("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule").inputs
    assert rule["referencedSecurityGroupId"] == graph.NODES_SECURITY_GROUP
    assert (rule["ipProtocol"], rule["fromPort"], rule["toPort"]) == ("tcp", 2049, 2049)
    assert rule["description"]
    assert "cidrIpv4" not in rule
    group = deployed.one("aws:ec2/securityGroup:SecurityGroup").inputs
    assert group["description"]
    assert "egress" not in group


def test_each_private_subnet_has_a_mount_target(deployed: graph.Graph) -> None:
    private = {f"{each.name}-id" for each in deployed.all("aws:ec2/subnet:Subnet") if "-private-" in each.name}
    assert {each.inputs["subnetId"] for each in deployed.all("aws:efs/mountTarget:MountTarget")} == private


def test_the_bucket_is_private_versioned_encrypted_and_tidied(deployed: graph.Graph) -> None:
    blocked = deployed.one("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock").inputs  # CKV_AWS_53 to 56
    for switch in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        assert blocked[switch] is True
    versioning = deployed.one("aws:s3/bucketVersioning:BucketVersioning").inputs  # CKV_AWS_21
    assert versioning["versioningConfiguration"]["status"] == "Enabled"
    (rule,) = deployed.one(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
    ).inputs["rules"]  # CKV_AWS_145
    assert rule["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    assert rule["applyServerSideEncryptionByDefault"]["kmsMasterKeyId"]
    (tidy,) = deployed.one("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration").inputs["rules"]
    assert tidy["abortIncompleteMultipartUpload"]["daysAfterInitiation"] > 0  # CKV_AWS_300, CKV2_AWS_61
    assert tidy["noncurrentVersionExpiration"]["noncurrentDays"] > 0


def test_policies_name_what_they_allow(deployed: graph.Graph) -> None:  # CKV_AWS_290, 355, 356, 70
    found = policies(deployed)
    assert len(found) >= 7
    for name, document in found:
        for statement in document["Statement"]:
            if statement["Effect"] != "Allow":
                continue
            resource = statement.get("Resource")
            assert resource != "*" or name.startswith("aws:kms/key:Key") or reads(statement), name
            if statement.get("Principal") in ("*", {"AWS": "*"}):
                assert "elasticfilesystem:AccessPointArn" in json.dumps(statement["Condition"]), name


def test_bucket_and_file_system_deny_requests_without_tls(deployed: graph.Graph) -> None:
    for kind in ("aws:s3/bucketPolicy:BucketPolicy", "aws:efs/fileSystemPolicy:FileSystemPolicy"):
        statements = json.loads(deployed.one(kind).inputs["policy"])["Statement"]
        denied = [each for each in statements if each["Effect"] == "Deny"]
        assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_every_role_trusts_one_service_and_none_is_administrator(deployed: graph.Graph) -> None:
    for role in deployed.all("aws:iam/role:Role"):  # CKV_AWS_60, 61
        for statement in json.loads(role.inputs["assumeRolePolicy"])["Statement"]:
            assert set(statement["Principal"]) == {"Service"}
    attached = [each.inputs["policyArn"] for each in deployed.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment")]
    assert not [arn for arn in attached if "Administrator" in arn or "FullAccess" in arn]  # CKV_AWS_274


def test_the_default_security_group_lets_nothing_through(deployed: graph.Graph) -> None:
    group = deployed.one("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup").inputs
    assert group["ingress"] == []
    assert group["egress"] == []
