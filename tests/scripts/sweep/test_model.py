"""Which stack a thing belongs to: by the stack's own tags, or by one of those that its cluster's controllers give."""

from __future__ import annotations

import pytest

from scripts.sweep.model import Stack

STACK = Stack("tidewater", "dev")


@pytest.mark.parametrize(
    "tags",
    [
        {"Project": "tidewater", "Stack": "dev", "Name": "anything"},
        {"kubernetes.io/cluster/tidewater-dev": "owned"},
        {"cluster.k8s.amazonaws.com/name": "tidewater-dev"},
        {"elbv2.k8s.aws/cluster": "tidewater-dev"},
        {"eks:eks-cluster-name": "tidewater-dev"},
        {"aws:eks:cluster-name": "tidewater-dev"},
    ],
    ids=lambda tags: next(iter(tags)),
)
def test_what_has_a_tag_of_the_stack_is_the_stacks(tags: dict[str, str]) -> None:
    assert STACK.owns(tags)


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param({}, id="no tags"),
        pytest.param({"Stack": "dev"}, id="a stack of another project"),
        pytest.param({"Project": "tidewater", "Stack": "dev-2"}, id="another stack"),
        pytest.param({"kubernetes.io/cluster/tidewater-dev": "shared"}, id="used by the cluster, not made for it"),
        pytest.param({"kubernetes.io/cluster/tidewater-dev-2": "owned"}, id="another cluster"),
    ],
)
def test_what_has_none_is_not(tags: dict[str, str]) -> None:
    assert not STACK.owns(tags)
