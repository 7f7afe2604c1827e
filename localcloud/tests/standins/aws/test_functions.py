"""The functions return what the official plug-in's return."""

from __future__ import annotations

import pytest

from localcloud.aws.eks_images import PARAMETERS, RELEASES, VERSION, images
from localcloud.tests.aws.fakes import ACCOUNT, REGION
from localcloud.tests.standins.aws.harness import CheckFailed, Engine


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
    name = f"{PARAMETERS}/{VERSION}/amazon-linux-2023/x86_64/nvidia/{images()[1].name}/release_version"
    found = engine.invoke("aws:ssm/getParameter:getParameter", name=name)
    assert (found["insecureValue"], found["type"]) == (RELEASES[0], "String")
    with pytest.raises(Exception, match=r"reading SSM Parameter \(no-such\): couldn't find resource"):
        engine.invoke("aws:ssm/getParameter:getParameter", name="no-such")
