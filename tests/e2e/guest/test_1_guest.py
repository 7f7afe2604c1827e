"""A stack in the VPC, on the cluster and on the file system that something else made: it leaves all as it was.

Each test uses the stack as the one before left it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.e2e.checkout import DESTROY, LONG_TRAINING, ROOT, UP, Checkout, wait_until
from tests.e2e.guest.platform import CLUSTER, Platform
from tests.e2e.inventory import Inventory, added, aws_inventory
from tests.e2e.training import assert_steps_only_grow, latest_step, node_of, running_workers, wait_for_world

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

GUEST = "guest"
SMALL = {"tidewater:trainerArgs": LONG_TRAINING, "tidewater:protect": False}


@dataclass(frozen=True)
class Guest:
    """The checkout with the stack's config, the platform, and both inventories from before the stack."""

    checkout: Checkout
    platform: Platform
    account: Inventory
    described: dict[str, Any]


@pytest.fixture(scope="module")
def guest(checkout: Checkout) -> Guest:
    """Make the platform, and the config of a stack into it."""
    checkout.run("localcloud start")
    platform = Platform.make(checkout)
    local = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
    del local["config"]["tidewater:publicAccessCidrs"]
    local["config"] |= {**platform.config, **SMALL}
    (checkout.path / f"Pulumi.{GUEST}.yaml").write_text(yaml.safe_dump(local))
    checkout.run(f"pulumi stack select --create {GUEST}")
    checkout.forget_outputs()
    return Guest(checkout, platform, aws_inventory(checkout.cloud()), platform.described())


def test_a_name_that_is_taken_on_the_cluster_is_refused_with_another_version_before_anything_is_made(
    guest: Guest,
) -> None:
    guest.checkout.run("kubectl create namespace training && pulumi config set kubernetesVersion 1.34")
    refused = guest.checkout.fails("pulumi preview").text
    guest.checkout.run("kubectl delete namespace training && pulumi config rm kubernetesVersion")
    assert "the configuration has 2 mistakes; nothing was changed" in refused
    assert f"kubernetesVersion = 1.34: the cluster {CLUSTER} has 1.35" in refused
    assert f"namespace = training: the cluster {CLUSTER} has one of this name already" in refused
    assert guest.platform.described() == guest.described


def test_it_trains_on_nodes_of_its_own_on_the_cluster(guest: Guest) -> None:
    guest.checkout.run(UP)
    wait_for_world(guest.checkout, 2)
    step = latest_step(guest.checkout)
    wait_until("more steps", lambda: latest_step(guest.checkout) > step)
    assert_steps_only_grow(guest.checkout)
    workers = running_workers(guest.checkout)
    assert len({node_of(guest.checkout, pod) for pod in workers}) == len(workers) == 2
    assert guest.checkout.outputs["clusterName"] == CLUSTER
    assert guest.checkout.outputs["fileSystemId"] == guest.platform.files
    made = added(guest.account, aws_inventory(guest.checkout.cloud()))
    assert (
        not {
            "vpcs",
            "subnets",
            "route tables",
            "clusters",
            "nat gateways",
            "addresses",
            "log groups",
            "file systems",
            "security groups",
        }
        & made.keys()
    )


def test_an_unchanged_stack_changes_nothing(guest: Guest) -> None:
    guest.checkout.run("pulumi refresh --yes --skip-preview")
    guest.checkout.run(f"{UP} --expect-no-changes")


def test_the_destroyed_stack_leaves_all_as_it_was(guest: Guest) -> None:
    guest.checkout.run(DESTROY)
    assert guest.platform.described() == guest.described
    assert added(guest.account, aws_inventory(guest.checkout.cloud())) == {}
