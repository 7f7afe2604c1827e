"""A call of EC2 is asked about once for each of its resources, with the tags that this resource has or gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from localcloud.aws.policy import UNKNOWN_RESOURCE, Query
from localcloud.aws.requests.ec2_queries import Asked, parsed, queries
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.operations import Operation
from localcloud.aws.requests.questions import questions
from localcloud.aws.requests.resources import Profile, Template

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION

PREFIX = f"arn:aws:ec2:{REGION}:{ACCOUNT}"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/node"


@dataclass
class FakeResources:
    """Resources of a test, by their ARNs and names."""

    tagged: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)

    def tags(self, arn: str) -> Mapping[str, str]:
        return self.tagged.get(arn, {})

    def launch_template(
        self, region: str, identity: str | None, name: str | None, version: str | None
    ) -> Template | None:
        return self.templates.get(identity or name or "")

    def profile(self, name: str) -> Profile | None:
        return Profile(f"arn:aws:iam::{ACCOUNT}:instance-profile/{name}", ROLE)

    def role(self, name: str) -> str | None:
        return None


def asked(name: str, resources: FakeResources | None = None, **params: str) -> list[Query]:
    form = {key.replace("_", "."): value for key, value in params.items()}
    operation = Operation("ec2", name, REGION, ACCOUNT, params=form)
    found = queries(Asked(operation, resources or FakeResources(), {"base": ("1",)}, ("me",)))
    assert found is not None
    return found


def resources(found: list[Query], action: str) -> list[str]:
    return [query.resource.removeprefix(PREFIX + ":") for query in found if query.action == action]


def test_a_launch_is_about_what_it_makes_and_what_it_uses() -> None:
    found = asked(
        "RunInstances",
        ImageId="ami-1",
        SubnetId="subnet-1",
        SecurityGroupId_1="sg-1",
        SecurityGroupId_2="sg-2",
        IamInstanceProfile_Name="p",
    )
    assert resources(found, "ec2:RunInstances") == [
        *("instance/*", "volume/*", "network-interface/*"),
        f"arn:aws:ec2:{REGION}::image/ami-1",
        *("subnet/subnet-1", "security-group/sg-1", "security-group/sg-2"),
    ]
    assert resources(found, "iam:PassRole") == [ROLE]
    assert {query.context["base"] for query in found} == {("1",)}


def test_a_new_resource_has_the_tags_of_its_own_type() -> None:
    found = asked(
        "RunInstances",
        TagSpecification_1_ResourceType="instance",
        TagSpecification_1_Tag_1_Key="Name",
        TagSpecification_1_Tag_1_Value="a",
    )
    context = {
        query.resource.rpartition(":")[2]: query.context for query in found if query.action == "ec2:RunInstances"
    }
    assert context["instance/*"]["aws:requesttag/name"] == ("a",)
    assert context["instance/*"]["aws:tagkeys"] == ("Name",)
    assert "aws:requesttag/name" not in context["volume/*"]
    (tagging,) = [query for query in found if query.action == "ec2:CreateTags"]
    assert (tagging.resource, tagging.context["ec2:createaction"]) == (f"{PREFIX}:instance/*", ("RunInstances",))


def test_what_a_launch_template_says_counts() -> None:
    data = {
        "ImageId": "ami-2",
        "IamInstanceProfile": {"Name": "p"},
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-9"]}],
        "InstanceMarketOptions": {"MarketType": "spot"},
        "TagSpecifications": [{"ResourceType": "network-interface", "Tags": [{"Key": "a", "Value": "b"}]}],
    }
    known = FakeResources({f"{PREFIX}:launch-template/lt-1": {"owner": "me"}}, {"t": Template("lt-1", data)})
    found = asked("RunInstances", known, LaunchTemplate_LaunchTemplateName="t")
    context = {
        query.resource.rpartition(":")[2]: query.context for query in found if query.action == "ec2:RunInstances"
    }
    assert {"image/ami-2", "security-group/sg-9", "spot-instances-request/*"} <= context.keys()
    assert context["launch-template/lt-1"]["aws:resourcetag/owner"] == ("me",)
    assert context["launch-template/lt-1"]["ec2:resourcetag/owner"] == ("me",)
    assert context["network-interface/*"]["aws:requesttag/a"] == ("b",)
    assert resources(found, "iam:PassRole") == [ROLE]


def test_a_fleet_also_needs_the_permission_to_run_its_instances() -> None:
    found = asked(
        "CreateFleet",
        FakeResources(templates={"t": Template("lt-1", {"ImageId": "ami-2"})}),
        LaunchTemplateConfigs_1_LaunchTemplateSpecification_LaunchTemplateName="t",
        LaunchTemplateConfigs_1_Overrides_1_SubnetId="subnet-1",
        LaunchTemplateConfigs_1_Overrides_2_SubnetId="subnet-2",
        TargetCapacitySpecification_DefaultTargetCapacityType="spot",
    )
    launch = resources(found, "ec2:CreateFleet")
    assert launch[0] == "fleet/*"
    assert {"subnet/subnet-1", "subnet/subnet-2", "launch-template/lt-1", "spot-instances-request/*"} <= set(launch)
    assert resources(found, "ec2:RunInstances") == launch[1:]


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        pytest.param(
            "TerminateInstances",
            {"InstanceId_1": "i-1", "InstanceId_2": "i-2"},
            ["instance/i-1", "instance/i-2"],
            id="instances",
        ),
        pytest.param("CreateTags", {"ResourceId_1": "vol-1"}, ["volume/vol-1"], id="a known id"),
        pytest.param("CreateTags", {"ResourceId_1": "rtb-1"}, ["route-table/rtb-1"], id="of a network"),
        pytest.param("CreateTags", {"ResourceId_1": "tgw-1"}, [UNKNOWN_RESOURCE], id="an unknown id"),
    ],
)
def test_a_call_on_existing_resources_is_about_each_of_them(
    name: str, params: dict[str, str], expected: list[str]
) -> None:
    assert resources(asked(name, None, **params), f"ec2:{name}") == expected


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="no instance"),
        pytest.param({"InstanceId": "i-1"}, id="no list"),
        pytest.param({"InstanceId.2": "i-1"}, id="a list without a beginning"),
        pytest.param({"InstanceIds.1": "i-1"}, id="another name"),
    ],
)
def test_what_moto_does_not_read_is_no_resource(params: dict[str, str]) -> None:
    operation = Operation("ec2", "TerminateInstances", REGION, ACCOUNT, params=params)
    assert queries(Asked(operation, FakeResources(), {}, ())) == []
    # The call is then asked about as a whole, so that it never passes unasked.
    assert [query.resource for query in questions(operation, ("me",), "127.0.0.1")] == [UNKNOWN_RESOURCE]


def test_a_value_that_is_not_valid_is_refused() -> None:
    params = {"TargetCapacitySpecification.SpotTargetCapacity": "many"}
    with pytest.raises(Refused, match="parameter of CreateFleet"):
        parsed(Operation("ec2", "CreateFleet", REGION, ACCOUNT, params=params))
