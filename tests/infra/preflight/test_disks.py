"""A customer's key for the disks of nodes is given to those who start nodes, or refused while nothing is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import settings
from infra import preflight
from infra.account import connect
from infra.preflight import disks
from infra.preflight.region import Key
from tests import graph
from tests.infra.preflight.world import region, stack

ARN = "arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab"
DISK_KEY, KEY, ROLE = (
    f"aws:{each}" for each in ("ebs/getDefaultKmsKey:getDefaultKmsKey", "kms/getKey:getKey", "iam/getRole:getRole")
)
ALL = {"keyState": "Enabled", "keyManager": "CUSTOMER", "keySpec": "SYMMETRIC_DEFAULT"}


def checked(answers: Mapping[str, Any], **changes: Any) -> list[str]:
    """Run the check with these answers, or errors, of AWS; return the mistakes. The stack doesn't exist yet."""

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = {"aws:ec2/getVpcs:getVpcs": {"ids": []}, **answers}.get(token) or graph.answer(token, arguments)
        if isinstance(found, Exception):
            raise found
        return found

    def program() -> None:
        wanted = settings.load()
        preflight.check(wanted, connect(wanted), graph.aws)

    try:
        graph.run(program, {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], **changes}, ask=ask)
    except settings.ConfigurationError as error:
        return list(error.mistakes)
    return []


def test_an_account_with_a_customers_default_key_gets_the_command_that_gives_it_to_the_nodes() -> None:
    (mistake,) = checked({DISK_KEY: {"keyArn": ARN}})
    assert mistake.startswith(f"the account's default EBS key in us-west-2, {ARN}, is a customer's, and EC2 Auto Sc")
    assert mistake.endswith(f"pulumi config set tidewater:nodeDiskKeyArn {ARN}")
    assert checked({DISK_KEY: {"keyArn": ARN}}, nodeDiskKeyArn=ARN) == []


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({DISK_KEY: {"keyArn": ARN}, KEY: {**ALL, "keyManager": "AWS"}}, id="aws-by-its-arn"),
        pytest.param({DISK_KEY: graph.Refused("UnauthorizedOperation")}, id="denied"),
        pytest.param({DISK_KEY: {"keyArn": ARN}, KEY: graph.Refused("AccessDenied")}, id="the-key-is-denied"),
    ],
)
def test_a_key_of_awss_or_one_that_is_not_known_is_not_refused(answers: Mapping[str, Any]) -> None:
    assert checked(answers) == []


def test_a_stack_that_runs_with_a_customers_default_key_is_warned_only() -> None:
    wanted = stack()
    there = replace(region(wanted), disk_key=Key(ARN, customer=True))
    assert disks.mistakes(wanted, there) == []
    assert len(disks.warnings(wanted, there)) == 1


def test_a_default_key_that_could_not_be_read_is_a_warning() -> None:
    wanted = stack()
    (warning,) = disks.warnings(wanted, replace(region(wanted), disk_key=Key(ARN, customer=None), exists=False))
    assert ARN in warning
    assert "allow kms:DescribeKey" in warning


@pytest.mark.parametrize("key", [{**ALL, "keyState": "Disabled"}, {**ALL, "keySpec": "RSA_4096"}], ids=["off", "rsa"])
def test_a_key_that_no_disk_can_have_is_refused(key: Mapping[str, Any]) -> None:
    (mistake,) = checked({KEY: key}, nodeDiskKeyArn=ARN)
    assert mistake.startswith(f"nodeDiskKeyArn = {ARN}: is disabled, or no symmetric key")


@pytest.mark.parametrize("words", ["reading IAM Role (x): couldn't find resource", "NoSuchEntity: no role x"])
def test_a_key_is_not_granted_to_a_role_that_is_not_there(words: str) -> None:
    (mistake,) = checked({ROLE: graph.Refused(words)}, nodeDiskKeyArn=ARN)
    assert "aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com" in mistake
    assert checked({ROLE: graph.Refused("AccessDenied")}, nodeDiskKeyArn=ARN) == []


def test_all_nodes_have_disks_with_the_key_and_who_starts_them_may_use_it() -> None:
    made = graph.deploy({**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS], "nodeDiskKeyArn": ARN})
    for template in made.all("aws:ec2/launchTemplate:LaunchTemplate"):
        (disk,) = template.inputs["blockDeviceMappings"]
        assert disk["ebs"]["kmsKeyId"] == ARN
    (surge,) = made.one("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass").inputs["spec"]["blockDeviceMappings"]
    assert surge["ebs"]["kmsKeyID"] == ARN
    grant = made.one("aws:kms/grant:Grant")
    assert grant.inputs["keyId"] == ARN
    role = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
    assert grant.inputs["granteePrincipal"] == f"arn:aws:iam::{graph.ACCOUNT}:{role}"
    assert {"CreateGrant", "Decrypt", "GenerateDataKeyWithoutPlaintext"} <= set(grant.inputs["operations"])
    assert all(made.needs(each, grant) for each in made.all("aws:eks/nodeGroup:NodeGroup"))
    assert "GrantTheDiskKeyToVolumes" in made.one("aws:iam/rolePolicy:RolePolicy", "karpenter").inputs["policy"]


def test_without_the_key_nothing_is_granted_and_templates_stay_as_they_are() -> None:
    made = graph.deploy({**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS]})
    assert made.all("aws:kms/grant:Grant") == []
    for template in made.all("aws:ec2/launchTemplate:LaunchTemplate"):
        assert "kmsKeyId" not in template.inputs["blockDeviceMappings"][0]["ebs"]
