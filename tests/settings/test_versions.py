"""The table of versions: what goes together, in the forms that EKS takes."""

from __future__ import annotations

import itertools
import re

import pytest
from localcloud.aws import eks_images
from localcloud.aws.eks.model import VERSIONS
from localcloud.kube.addons import Addons

import settings
from settings import versions
from tests import graph

TABLE = versions.KUBERNETES


@pytest.mark.parametrize("kubernetes", list(TABLE))
def test_every_version_has_an_image_and_the_same_addons(kubernetes: str) -> None:
    release = TABLE[kubernetes]
    assert re.fullmatch(r"v20\d{6}", release.node_image)
    assert release.addons.keys() == TABLE["1.35"].addons.keys()
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", version) for version in release.addons.values())
    assert release.addons["kube-proxy"].startswith(f"v{kubernetes}."), "it must match the nodes' Kubernetes"


def test_no_addon_goes_back_or_skips_a_minor_version_from_one_kubernetes_to_the_next() -> None:
    # EKS moves an addon by one minor version at a time, and coredns must not go back.
    # https://docs.aws.amazon.com/eks/latest/userguide/updating-an-add-on.html
    for older, newer in itertools.pairwise(TABLE.values()):
        for name in older.addons:
            before, after = (number(release.addons[name]) for release in (older, newer))
            assert before <= after, name
            assert after[1] - before[1] <= 1, name


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@pytest.mark.parametrize("kubernetes", VERSIONS)
def test_the_one_machine_cloud_has_what_the_table_names(kubernetes: str) -> None:
    release = TABLE[kubernetes]
    offered = Addons.VERSIONS
    assert {name for name, version in release.addons.items() if version not in offered.get(name, {})} == set()
    days = {f"v{image.day}" for image in eks_images.images() if image.version == kubernetes}
    assert release.node_image in days


@pytest.mark.parametrize("version", list(TABLE))
def test_the_node_monitoring_agent_knows_the_types_of_this_year(version: str) -> None:
    agent = TABLE[version].addons["eks-node-monitoring-agent"]
    assert tuple(int(each) for each in agent.removeprefix("v").partition("-")[0].split(".")) >= (1, 7, 0)


def test_the_default_is_the_newest_version_that_is_tried_on_one_machine() -> None:
    stack = settings.parse(graph.stack_config("Pulumi.local.yaml"), stack="local")
    assert stack.cluster.version == VERSIONS[-1]
    assert set(VERSIONS) <= set(TABLE)


def test_the_documentation_says_until_when_each_version_is_supported() -> None:
    rows = re.findall(
        r"^\| (\d\.\d+) \| (\d{4}-\d\d-\d\d) \|", (graph.ROOT / "docs/upgrades.md").read_text(), re.MULTILINE
    )
    assert dict(rows) == {version: release.standard_support_until for version, release in TABLE.items()}
    default = VERSIONS[-1]
    assert f"({default}: {TABLE[default].standard_support_until})" in (graph.ROOT / "docs/deploy-aws.md").read_text()


def test_the_image_goes_with_the_version_unless_it_is_configured() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    assert settings.parse(config, stack="local").node_image == TABLE["1.35"].node_image
    assert settings.parse({**config, "nodeImageVersion": "v20260917"}, stack="local").node_image == "v20260917"
