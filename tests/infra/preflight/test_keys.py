"""Customers' keys, for the disks of nodes and for the data, can be used, or are refused while nothing is made.

That of the disks is given to those who start nodes. Nothing is made of that of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import settings
from infra import preflight
from infra.account import connect
from infra.preflight import keys
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
    assert keys.mistakes(wanted, there) == []
    assert len(keys.warnings(wanted, there)) == 1


def test_a_default_key_that_could_not_be_read_is_a_warning() -> None:
    wanted = stack()
    (warning,) = keys.warnings(wanted, replace(region(wanted), disk_key=Key(ARN, customer=None), exists=False))
    assert ARN in warning
    assert "allow kms:DescribeKey" in warning


UNUSABLE: dict[str, tuple[Any, str, str]] = {
    "off": ({**ALL, "keyState": "Disabled"}, "its state is Disabled", "aws kms enable-key --key-id"),
    "not imported": ({**ALL, "keyState": "PendingImport"}, "its state is PendingImport", "or name another"),
    "deleted soon": (
        {**ALL, "keyState": "PendingDeletion"},
        "is scheduled for deletion",
        f"aws kms cancel-key-deletion --key-id {ARN} --region us-west-2 && aws kms enable-key --key-id {ARN}",
    ),
    "rsa": ({**ALL, "keySpec": "RSA_4096"}, "is no symmetric key", "SYMMETRIC_DEFAULT"),
    "of AWS": ({**ALL, "keyManager": "AWS"}, "is a key of AWS's", "name one of your own"),
    "none": (graph.Refused(f"reading KMS Key ({ARN}): couldn't find resource"), "there is no such key", "correct it"),
    "none, in KMS's words": (graph.Refused("NotFoundException: Key 'x' does not exist"), "there is no such key", ""),
}


@pytest.mark.parametrize("setting", ["nodeDiskKeyArn", "dataKeyArn"])
@pytest.mark.parametrize(("key", "reason", "remedy"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_key_that_no_service_can_use_is_refused_with_the_reason_and_the_remedy(
    key: Any, reason: str, remedy: str, setting: str
) -> None:
    (mistake,) = checked({KEY: key}, **{setting: ARN})
    assert mistake.startswith(f"{setting} = {ARN}: {reason}")
    assert remedy in mistake


def test_all_keys_that_can_not_be_used_are_named_together() -> None:
    found = checked({KEY: UNUSABLE["off"][0]}, nodeDiskKeyArn=ARN, dataKeyArn=ARN)
    assert [each.partition(" = ")[0] for each in found] == ["dataKeyArn", "nodeDiskKeyArn"]


def test_a_key_of_the_data_that_can_not_be_read_is_refused_for_a_new_stack_and_a_warning_for_one_that_exists() -> None:
    (mistake,) = checked({KEY: graph.Refused("AccessDeniedException")}, dataKeyArn=ARN)
    assert mistake.startswith(f"dataKeyArn = {ARN}: could not be read by the identity that deploys")
    assert "allow kms:DescribeKey and kms:CreateGrant" in mistake
    wanted = stack(dataKeyArn=ARN)
    there = replace(region(wanted), data_key=Key(ARN, customer=None))
    assert (keys.mistakes(wanted, there), keys.warnings(wanted, there)) == ([], [mistake])


def test_a_key_that_can_be_used_is_neither_refused_nor_warned_of() -> None:
    assert checked({}, dataKeyArn=ARN) == []
    wanted = stack(dataKeyArn=ARN)
    assert keys.warnings(wanted, replace(region(wanted), data_key=Key(ARN, customer=True))) == []


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
