"""SSM and EC2 answer for the images of EKS nodes as Karpenter asks for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError
from localcloud.aws import eks_images
from localcloud.aws.ec2 import AMI
from localcloud.aws.eks.model import VERSIONS
from localcloud.aws.eks_images import NEWEST, OWNER, RELEASES, find, images
from moto.ssm.models import ParameterDict

from packages.localcloud.tests.aws.account import Clients

X86 = f"/aws/service/eks/optimized-ami/{NEWEST}/amazon-linux-2023/x86_64"


def value(ssm: Any, name: str) -> str:
    found: str = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    return found


def test_a_request_finds_the_parameters_while_another_one_adds_them(
    operator: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answered, found = threading.Event(), threading.Event(), eks_images.parameters()

    def slowly() -> Mapping[str, str]:
        if not begun.is_set():
            begun.set()
            assert answered.wait(60)
        return found

    monkeypatch.setattr(eks_images, "parameters", slowly)
    store, name = ParameterDict("123456789012", "us-west-2"), f"{X86}/standard/recommended/image_id"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: name in store)
        assert begun.wait(60)
        assert name in store
        answered.set()
        assert first.result(60)


def test_every_version_of_clusters_has_images() -> None:
    assert tuple(RELEASES) == VERSIONS
    assert VERSIONS[-1] == NEWEST
    assert {(image.version, image.release) for image in images()} == {
        (version, release) for version, releases in RELEASES.items() for release in releases
    }


def test_every_image_has_an_id_of_its_own() -> None:
    assert len({image.id for image in images()}) == len(images()) == 8
    assert [find(image.id) for image in images()] == list(images())


def test_the_recommended_standard_image_is_that_of_node_groups(operator: Clients) -> None:
    assert value(operator("ssm"), f"{X86}/standard/recommended/image_id") == AMI
    assert value(operator("ssm"), f"{X86}/standard/recommended/release_version") == RELEASES[NEWEST][0]


@pytest.mark.parametrize("variant", ["standard", "nvidia"])
@pytest.mark.parametrize("day", ["20260903", "20260512"])
def test_a_pinned_alias_finds_the_image_of_its_release(operator: Clients, variant: str, day: str) -> None:
    name = f"amazon-eks-node-al2023-x86_64-{variant}-{NEWEST}-v{day}"
    found = value(operator("ssm"), f"{X86}/{variant}/{name}/image_id")
    (image,) = operator("ec2").describe_images(Filters=[{"Name": "image-id", "Values": [found]}])["Images"]
    assert (image["Name"], image["Architecture"], image["State"], image["OwnerId"]) == (
        name,
        "x86_64",
        "available",
        OWNER,
    )
    assert image["CreationDate"] == f"{day[:4]}-{day[4:6]}-{day[6:]}T00:00:00.000Z"


def test_the_newest_image_of_a_name_can_be_found_without_ssm(operator: Clients) -> None:
    wanted = [{"Name": "name", "Values": [f"amazon-eks-node-al2023-x86_64-standard-{NEWEST}-*"]}]
    found = operator("ec2").describe_images(Owners=["amazon"], Filters=wanted)["Images"]
    assert max(found, key=lambda image: image["CreationDate"])["ImageId"] == AMI
    assert len(found) == len(RELEASES[NEWEST])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(X86.replace("x86_64", "arm64") + "/standard/recommended/image_id", id="architecture"),
        pytest.param(f"{X86}/neuron/recommended/image_id", id="variant"),
        pytest.param(f"{X86}/standard/amazon-eks-node-al2023-x86_64-standard-{NEWEST}-v20990101/image_id", id="day"),
    ],
)
def test_what_there_is_no_image_for_has_no_parameter(operator: Clients, name: str) -> None:
    with pytest.raises(ClientError, match="ParameterNotFound"):
        value(operator("ssm"), name)


def test_the_parameters_can_be_listed(operator: Clients) -> None:
    ssm = operator("ssm")
    listed = ssm.get_parameters_by_path(Path=f"{X86}/nvidia", Recursive=True)["Parameters"]
    assert {each["Name"].rpartition("/")[2] for each in listed} == {"image_id", "image_name", "release_version"}
    assert len(listed) == 9
