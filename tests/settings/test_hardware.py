"""What a node has room for."""

from __future__ import annotations

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from settings.hardware import Size
from tests import facts

DAEMON_SETS_MILLIS = 300
"""What the DaemonSets of a worker node request together, at most: those of the addons, of GPUs, EFA and monitoring."""


def reserved_millis(vcpus: int) -> int:
    """Return what EKS' images reserve for the kubelet, as nodeadm's config.go counts it."""
    ends, parts = (0, 1000, 2000, 4000, max(4000, vcpus * 1000)), (600, 100, 50, 25)
    within = [max(0, min(vcpus * 1000, ends[index + 1]) - ends[index]) for index in range(4)]
    return sum(each * part // 10_000 for each, part in zip(within, parts, strict=True))


@pytest.mark.parametrize("vcpus", [2, 4, 8, 16, 48, 96, 192])
def test_a_worker_fits_on_its_node_beside_the_daemon_sets(vcpus: int) -> None:
    free = vcpus * 1000 - reserved_millis(vcpus) - DAEMON_SETS_MILLIS
    assert 0 <= free - Size(vcpus, 4096).schedulable_cpu_millis <= 50


def with_efa(name: str) -> bool:
    return bool(facts.instance_type(name).efa and facts.instance_type(name).gpus)


@pytest.mark.parametrize("name", [name for name in INSTANCE_TYPES if with_efa(name)])
def test_efas_are_on_the_network_cards_that_aws_lists_them_for(name: str) -> None:
    cards = INSTANCE_TYPES[name]["NetworkInfo"]["NetworkCards"]
    listed = [card["NetworkCardIndex"] for card in cards if "efa-only" in card["InterfaceTypes"]]
    assert list(facts.instance_type(name).efa_cards) == listed


@pytest.mark.parametrize(
    ("efa", "cards", "expected"),
    [
        pytest.param(1, 1, range(1), id="g5.8xlarge"),
        pytest.param(4, 4, range(4), id="p4d.24xlarge"),
        pytest.param(32, 32, range(32), id="p5.48xlarge and p5e.48xlarge"),
        pytest.param(16, 16, range(16), id="p5en.48xlarge"),
        pytest.param(8, 8, range(8), id="p6-b200.48xlarge"),
        pytest.param(16, 17, range(1, 17), id="p6-b300.48xlarge"),
        pytest.param(2, 0, range(2), id="AWS did not say"),
        pytest.param(0, 1, range(1, 1), id="no EFA"),
    ],
)
def test_only_the_last_cards_have_efas_where_there_are_more_cards(efa: int, cards: int, expected: range) -> None:
    assert Size(192, 2_097_152, 8, efa, cards).efa_cards == expected
