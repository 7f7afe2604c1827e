"""What is read in the conditions of Karpenter's objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.controller.fakes import karpenter
from tests.controller.fakes.karpenter import LAUNCHED, NO_SUBNETS, POOL_UNREADY, READY, REFUSED, UNTRIED, condition
from tidewater.controller.provisioning.conditions import NOT_READY, launch, node_class, unready
from tidewater.controller.provisioning.messages import Explanation


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        pytest.param((), "", id="new"),
        pytest.param((UNTRIED,), "", id="untried"),
        pytest.param((LAUNCHED,), "", id="launched"),
        pytest.param((REFUSED,), "Unauthorized", id="refused"),
    ],
)
def test_a_node_claim_says_why_it_is_refused(conditions: tuple[dict[str, Any], ...], reason: str) -> None:
    assert launch(karpenter.claim("workers-a", *conditions)).reason == reason


def test_what_karpenter_has_not_looked_at_has_no_cause() -> None:
    bare = {"kind": "NodePool", "metadata": {"name": "workers"}}
    assert (unready(bare), launch(bare), node_class(bare)) == (Explanation(), Explanation(), "")
    assert unready(karpenter.node_class(READY)) == Explanation()


def test_only_the_conditions_that_are_a_cause_are_named() -> None:
    found = unready(karpenter.node_class(*NO_SUBNETS))
    assert found.reason == "SubnetsNotFound"
    assert found.why == "EC2NodeClass workers isn't ready: SubnetsReady: SubnetSelector did not match any Subnets"


def test_a_role_that_does_not_exist_leaves_the_instance_profile_waiting() -> None:
    """Karpenter says more only in its log."""
    waits = condition("InstanceProfileReady", "Unknown", "AwaitingReconciliation", "object is awaiting reconciliation")
    ready = condition("Ready", "Unknown", "ReconcilingDependents", "InstanceProfileReady=Unknown")
    found = unready(karpenter.node_class(waits, ready))
    assert found.reason == NOT_READY
    assert found.why.endswith("isn't ready: InstanceProfileReady: object is awaiting reconciliation")


def test_a_node_pool_without_its_node_class_says_what_does_not_hold() -> None:
    found = unready(karpenter.pool(*POOL_UNREADY))
    assert found.why == "NodePool workers isn't ready: NodeClassReady: SubnetsReady=False, ValidationSucceeded=False"
    missing = condition("NodeClassReady", "False", "NodeClassNotFound", "NodeClass not found on cluster")
    assert unready(karpenter.pool(missing, condition("Ready", "False"))).reason == "NodeClassNotFound"
