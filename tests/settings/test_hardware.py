"""What a node has room for."""

from __future__ import annotations

import pytest

from settings.hardware import Size

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
