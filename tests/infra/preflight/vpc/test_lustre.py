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
    assert lustre.mistakes(stack(), found) == lustre.warnings(found) == []


def no_aws(_: tuple[str, ...]) -> Ended:
    raise FileNotFoundError(2, "No such file")


@pytest.mark.parametrize("aws", [answering(Ended(255, "", "AccessDenied")), answering(Ended(0, "hello")), no_aws])
def test_one_that_the_deployer_may_not_describe_is_a_warning_that_names_the_right(aws: Run) -> None:
    found = lustre.look(stack(), aws)
    assert lustre.mistakes(stack(), found) == []
    (warning,) = lustre.warnings(found)
    assert "allow fsx:DescribeFileSystems" in warning


def test_without_the_key_nothing_is_asked() -> None:
    assert lustre.look(stack(lustre={}), no_aws) is None
    assert lustre.mistakes(stack(lustre={}), None) == lustre.warnings(None) == []


def test_one_that_is_not_there_is_refused_before_anything_is_made() -> None:
    made, program = graph.Graph(), functools.partial(graph.program, ABSENT)
    with pytest.raises(settings.ConfigurationError, match=f"{NAMED}us-west-2 has no such file system"):
        graph.run(program, CONFIG, ask=existing_vpc.ask, graph=made)
    assert [each.type for each in made.resources if each.type.startswith("aws:")] == []


def test_the_least_policies_let_the_deployer_describe_it_and_nothing_else() -> None:
    def actions(wanted: settings.Settings) -> set[str]:
        printed = documents.policies(wanted, Place.of(wanted, graph.ACCOUNT))
        return {action for policy in printed for each in policy["Statement"] for action in each["Action"]}

    assert actions(stack()) - actions(stack(lustre={})) == {"fsx:DescribeFileSystems"}


def test_an_error_of_the_command_is_no_description() -> None:
    assert lustre.mistakes(stack(), Lustre(error="x")) == []
