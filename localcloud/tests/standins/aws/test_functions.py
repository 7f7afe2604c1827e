"""The functions answer as the official plug-in's do."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from localcloud.standins.serve import PluginError
from localcloud.tests.aws.fakes import ACCOUNT, REGION
from localcloud.tests.standins.aws.harness import CheckFailed, Engine

DOCUMENT = "aws:iam/getPolicyDocument:getPolicyDocument"


def test_region_account_and_partition(engine: Engine) -> None:
    assert engine.invoke("aws:index/getRegion:getRegion")["region"] == REGION
    assert engine.invoke("aws:index/getCallerIdentity:getCallerIdentity")["accountId"] == ACCOUNT
    assert engine.invoke("aws:index/getPartition:getPartition")["dnsSuffix"] == "amazonaws.com"


def test_zones_are_sorted_and_can_be_left_out(engine: Engine) -> None:
    token = "aws:index/getAvailabilityZones:getAvailabilityZones"
    zones = engine.invoke(token, state="available", excludeNames=["us-west-2a"])
    assert zones["names"] == ["us-west-2b", "us-west-2c", "us-west-2d"]
    assert len(zones["zoneIds"]) == 3


def test_a_policy_document_has_terraforms_form(engine: Engine) -> None:
    statement: dict[str, Any] = {
        "sid": "a",
        "actions": ["s3:GetObject"],
        "resources": ["b", "a"],
        "principals": [{"type": "AWS", "identifiers": ["x"]}],
        "conditions": [{"test": "StringEquals", "variable": "aws:x", "values": ["1", "2"]}],
    }
    assert json.loads(engine.invoke(DOCUMENT, statements=[statement])["json"]) == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "a",
                "Effect": "Allow",
                "Action": "s3:GetObject",
                "Resource": ["b", "a"],
                "Principal": {"AWS": "x"},
                "Condition": {"StringEquals": {"aws:x": ["1", "2"]}},
            }
        ],
    }


def test_an_override_replaces_the_statement_of_the_same_sid(engine: Engine) -> None:
    override = json.dumps({"Statement": [{"Sid": "a", "Effect": "Deny", "Action": "*", "Resource": "*"}]})
    own = [{"sid": "a", "actions": ["s3:*"], "resources": ["*"]}, {"sid": "b", "actions": ["x:*"], "resources": ["*"]}]
    text = engine.invoke(DOCUMENT, statements=own, overridePolicyDocuments=[override])["json"]
    assert [statement["Effect"] for statement in json.loads(text)["Statement"]] == ["Deny", "Allow"]


def test_the_newest_version_of_an_addon(engine: Engine) -> None:
    token = "aws:eks/getAddonVersion:getAddonVersion"
    newest = engine.invoke(token, addonName="vpc-cni", kubernetesVersion="1.34", mostRecent=True)["version"]
    assert newest.startswith("v1.")
    with pytest.raises(Exception, match="nope"):
        engine.invoke(token, addonName="nope", kubernetesVersion="1.34")


def test_instance_types_and_where_they_are_offered(engine: Engine) -> None:
    facts = engine.invoke("aws:ec2/getInstanceType:getInstanceType", instanceType="g4dn.xlarge")
    assert (facts["defaultVcpus"], facts["gpuses"][0]["count"]) == (4, 1)
    with pytest.raises(PluginError, match=r"no EC2 instance type x9\.huge"):
        engine.invoke("aws:ec2/getInstanceType:getInstanceType", instanceType="x9.huge")
    filters = [{"name": "instance-type", "values": ["m5.large"]}]
    token = "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings"
    offered = engine.invoke(token, filters=filters, locationType="availability-zone")
    assert "us-west-2a" in offered["locations"]
    one = engine.invoke(token[:-1].replace("Offerings:", "Offering:"), filters=filters)
    assert one["instanceType"] == "m5.large"


def test_a_token_for_a_cluster_names_it(engine: Engine) -> None:
    token = engine.invoke("aws:eks/getClusterAuth:getClusterAuth", name="c")["token"]
    url = base64.urlsafe_b64decode(token.removeprefix("k8s-aws-v1.") + "==").decode()
    assert "Action=GetCallerIdentity" in url
    assert "x-k8s-aws-id" in url


def test_an_unknown_argument_is_refused_by_name(engine: Engine) -> None:
    with pytest.raises(CheckFailed) as caught:
        engine.invoke("aws:index/getRegion:getRegion", regoin="x")
    assert "does not know the argument regoin" in caught.value.failures["regoin"]
