"""A file system of FSx for Lustre that nodes could not mount is refused, and one that fits is left as it is."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

import settings
from infra.preflight.login import Ended, Run
from infra.preflight.vpc import lustre
from infra.preflight.vpc.lustre import Lustre
from scripts.policy import documents
from scripts.policy.scopes import Place
from tests import graph
from tests.infra.preflight.vpc import existing_vpc

ID = "fs-0123456789abcdef0"
CONFIG: dict[str, Any] = {
    **graph.defaults(),
    **existing_vpc.CONFIG,
    "lustre": {"fileSystemId": ID, "mountName": "abcdefgh"},
    "profile": "work",
}
GOOD: dict[str, Any] = {
    "FileSystemId": ID,
    "FileSystemType": "LUSTRE",
    "Lifecycle": "AVAILABLE",
    "VpcId": existing_vpc.VPC,
    "LustreConfiguration": {"MountName": "abcdefgh"},
}
NAMED = f"lustre.fileSystemId = {ID}: "


def stack(**changes: Any) -> settings.Settings:
    return settings.parse({**CONFIG, **changes}, stack="dev")


def answering(ended: Ended) -> Run:
    """Return an `aws` of a person who has logged in, for which FSx answers so."""

    def aws(arguments: tuple[str, ...]) -> Ended:
        if "fsx" not in arguments:
            return graph.aws(arguments)
        assert arguments[:5] == ("--region", "us-west-2", "fsx", "describe-file-systems", "--file-system-ids")
        assert arguments[-2:] == ("--profile", "work")
        return ended

    return aws


def described(**changes: Any) -> Run:
    return answering(Ended(0, json.dumps({"FileSystems": [{**GOOD, **changes}]})))


ABSENT = answering(Ended(254, "", "An error occurred (FileSystemNotFound) when calling DescribeFileSystems: none"))
BAD: dict[str, tuple[Run, list[str]]] = {
    "no such": (ABSENT, [f"{NAMED}us-west-2 has no such file system; correct it, or the region"]),
    "another type": (
        described(FileSystemType="OPENZFS"),
        [f"{NAMED}is of the type OPENZFS; name one of the type LUSTRE"],
    ),
    "all at once": (
        described(Lifecycle="CREATING", VpcId="vpc-00000000", LustreConfiguration={"MountName": "fsx"}),
        [
            f"{NAMED}is CREATING, so nodes can't mount it; wait until it is AVAILABLE",
            f"{NAMED}is in vpc-00000000, and the stack is in {existing_vpc.VPC}; name one that is there",
            f"lustre.mountName = abcdefgh: the mount name of {ID} is fsx; set it to that",
        ],
    ),
}


@pytest.mark.parametrize(("aws", "expected"), BAD.values(), ids=BAD)
def test_what_nodes_could_not_mount_is_refused_with_the_remedy(aws: Run, expected: list[str]) -> None:
    found = lustre.mistakes(stack(), lustre.look(stack(), aws))
    assert len(found) == len(expected), found
    assert all(part in each for part, each in zip(expected, found, strict=True)), found


@pytest.mark.parametrize("state", lustre.USABLE)
def test_one_that_fits_is_no_mistake_and_no_warning(state: str) -> None:
    found = lustre.look(stack(), described(Lifecycle=state))
    assert lustre.mistakes(stack(), found) == lustre.warnings(stack(), found) == []


GROUP = "sg-of-lustre"


def rule(
    protocol: str = "tcp", ports: tuple[int, int] | None = (988, 988), **of: list[dict[str, str]]
) -> dict[str, Any]:
    return {"IpProtocol": protocol, **(dict(zip(("FromPort", "ToPort"), ports, strict=True)) if ports else {}), **of}


def of_group(id_: str) -> list[dict[str, str]]:
    return [{"GroupId": id_}]


def warned(*rules: dict[str, Any], name: str = "lustre") -> list[str]:
    """Return the warnings about a file system with one security group with these rules."""

    def aws(arguments: tuple[str, ...]) -> Ended:
        answers = {
            "describe-file-systems": {"FileSystems": [{**GOOD, "NetworkInterfaceIds": ["eni-1", "eni-2"]}]},
            "describe-network-interfaces": {"NetworkInterfaces": [{"Groups": [{"GroupId": GROUP}]}]},
            "describe-security-groups": {
                "SecurityGroups": [{"GroupId": GROUP, "GroupName": name, "IpPermissions": list(rules)}]
            },
        }
        return Ended(0, json.dumps(answers[arguments[3]]))

    here = stack().with_vpc(tuple(existing_vpc.CIDRS), ())
    return lustre.warnings(here, lustre.look(here, aws))


ITSELF = rule("-1", None, UserIdGroupPairs=of_group(GROUP))


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([ITSELF], id="itself"),
        pytest.param([rule(IpRanges=[{"CidrIp": "192.168.0.0/16"}])], id="another network"),
        pytest.param([rule(ports=(1018, 1023), UserIdGroupPairs=of_group("sg-nodes"))], id="other ports"),
        pytest.param([rule("udp", UserIdGroupPairs=of_group("sg-nodes"))], id="another protocol"),
        pytest.param([], id="nothing"),
    ],
)
def test_security_groups_that_let_in_only_themselves_are_a_warning_with_the_command(
    rules: list[dict[str, Any]],
) -> None:
    (warning,) = warned(*rules)
    assert warning.startswith(f"{NAMED}its security groups ({GROUP}) let in TCP port 988 from no address of the VPC")
    assert f"aws ec2 authorize-security-group-ingress --group-id {GROUP}" in warning


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param([ITSELF, rule(ports=(900, 1000), UserIdGroupPairs=of_group("sg-nodes"))], id="a group"),
        pytest.param([rule(IpRanges=[{"CidrIp": "10.8.64.0/18"}])], id="a part of the VPC"),
        pytest.param([rule("-1", None, IpRanges=[{"CidrIp": "0.0.0.0/0"}])], id="everything"),
        pytest.param([rule(PrefixListIds=[{"PrefixListId": "pl-1"}])], id="a list"),
    ],
)
def test_security_groups_that_may_let_in_nodes_are_no_warning(rules: list[dict[str, Any]]) -> None:
    assert warned(*rules) == []


def test_a_file_system_in_the_clusters_own_group_is_no_warning() -> None:
    assert warned(ITSELF, name="eks-cluster-sg-platform-1234") == []


def no_aws(_: tuple[str, ...]) -> Ended:
    raise FileNotFoundError(2, "No such file")


@pytest.mark.parametrize(
    "aws", [answering(Ended(255, "", "AccessDenied")), *(answering(Ended(0, each)) for each in ("hello", "[]")), no_aws]
)
def test_one_that_the_deployer_may_not_describe_is_a_warning_that_names_the_right(aws: Run) -> None:
    found = lustre.look(stack(), aws)
    assert lustre.mistakes(stack(), found) == []
    (warning,) = lustre.warnings(stack(), found)
    assert "allow fsx:DescribeFileSystems" in warning


def test_without_the_key_nothing_is_asked() -> None:
    assert lustre.look(stack(lustre={}), no_aws) is None
    assert lustre.mistakes(stack(lustre={}), None) == lustre.warnings(stack(lustre={}), None) == []


def test_one_that_is_not_there_is_refused_before_anything_is_made() -> None:
    made, program = graph.Graph(), functools.partial(graph.program, ABSENT)
    with pytest.raises(settings.ConfigurationError, match=f"{NAMED}us-west-2 has no such file system"):
        graph.run(program, CONFIG, ask=existing_vpc.ask, graph=made)
    assert [each.type for each in made.resources if each.type.startswith("aws:")] == []


def test_what_could_not_be_checked_is_a_warning_of_the_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    refused = functools.partial(graph.program, answering(Ended(255, "", "AccessDenied")))
    graph.run(refused, CONFIG, ask=existing_vpc.ask)
    assert [each for each in said if "the FSx for Lustre file system could not be checked" in each]


def test_the_least_policies_let_the_deployer_describe_it_and_nothing_else() -> None:
    def actions(wanted: settings.Settings) -> set[str]:
        printed = documents.policies(wanted, Place.of(wanted, graph.ACCOUNT))
        return {action for policy in printed for each in policy["Statement"] for action in each["Action"]}

    more = actions(stack()) - actions(stack(lustre={}))
    assert {action for action in more if not action.startswith("ec2:Describe")} == {"fsx:DescribeFileSystems"}


def test_an_error_of_the_command_is_no_description() -> None:
    assert lustre.mistakes(stack(), Lustre(error="x")) == []
