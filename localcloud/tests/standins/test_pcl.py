"""The code that `pulumi import` suggests."""

from __future__ import annotations

import pytest

from localcloud.standins.pcl import PclError, constructor, snake, to_python

SOURCE = r"""
resource my-vpc "aws:ec2/vpc:Vpc" {
  __logicalName = "my vpc"
  cidrBlock = "10.0.0.0/16"
  enableDnsSupport = true # a comment
  tags = {
    "a.b/camelCase" = "say \"$${x}\""
  }
  options {
    protect = true
  }
}
resource role "aws:ec2/launchTemplate:LaunchTemplate" {
  metadataOptions = {
    httpTokens = "required",
    httpPutResponseHopLimit = 1
  }
  vpcSecurityGroupIds = [my-vpc.defaultSecurityGroupId, "sg-1"]
  userData = secret("x")
}
"""
EXPECTED = """import pulumi
import pulumi_aws as aws

my_vpc = aws.ec2.Vpc(
    "my vpc",
    cidr_block="10.0.0.0/16",
    enable_dns_support=True,
    tags={
        "a.b/camelCase": "say \\"${x}\\"",
    },
    opts=pulumi.ResourceOptions(protect=True),
)
role = aws.ec2.LaunchTemplate(
    "role",
    metadata_options={
        "http_tokens": "required",
        "http_put_response_hop_limit": 1,
    },
    vpc_security_group_ids=[
        my_vpc.default_security_group_id,
        "sg-1",
    ],
    user_data=pulumi.Output.secret("x"),
)
"""


def test_resources_become_declarations() -> None:
    assert to_python(SOURCE) == EXPECTED


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("output x { value = 1 }", "a block of output"),
        ('resource a "b:c:D" { e = "${f}" }', "the template"),
        ('resource a "b:c:D" { e = toJSON(1) }', "a call of toJSON"),
        ('resource a "b:c:D" { e = 1', "ends within a block"),
        ('resource a "b:c:D" { e = 1 @ }', "cannot read"),
    ],
)
def test_what_it_cannot_write_is_shown(source: str, words: str) -> None:
    with pytest.raises(PclError, match=words):
        to_python(source)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("aws:s3/bucketObjectv2:BucketObjectv2", "aws.s3.BucketObjectv2"),
        ("aws:index/provider:Provider", "aws.Provider"),
        ("kubernetes:apps/v1:Deployment", "kubernetes.apps.v1.Deployment"),
        ("kubernetes:rbac.authorization.k8s.io/v1:Role", "kubernetes.rbac.v1.Role"),
    ],
)
def test_a_type_is_the_sdks_class(token: str, expected: str) -> None:
    assert constructor(token) == expected


@pytest.mark.parametrize(("name", "expected"), [("cidrIpv4", "cidr_ipv4"), ("userARN", "user_arn"), ("from", "from_")])
def test_a_property_has_its_name_in_python(name: str, expected: str) -> None:
    assert snake(name) == expected
