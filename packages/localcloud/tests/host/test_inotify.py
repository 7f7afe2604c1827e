"""The inotify instances and watches that a cloud needs, those that are used, and the remedy."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
from localcloud.errors import KernelFeature
from localcloud.host import inotify
from localcloud.host.inotify import Amount

PLENTY = Amount(8192, 1 << 20)


def test_v2_needs_instances_for_pods_too() -> None:
    v1, v2 = inotify.needed(v2=False), inotify.needed(v2=True)
    assert v1.instances == inotify.NODES * 8
    assert v2.instances == v1.instances + inotify.PODS * 2


def test_the_default_limits_of_a_distribution_are_sufficient_for_two_clouds() -> None:
    cloud = inotify.needed(v2=True)
    inotify.check(Amount(128, 8192), Amount(20 + cloud.instances, 500 + cloud.watches), cloud)


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        pytest.param(Amount(128, 1 << 20), "sysctl -w fs.inotify.max_user_instances=296", id="instances"),
        pytest.param(Amount(8192, 2000), "sysctl -w fs.inotify.max_user_watches=4160", id="watches"),
    ],
)
def test_too_low_a_limit_is_named_with_the_command_that_raises_it(limit: Amount, command: str) -> None:
    with pytest.raises(KernelFeature) as caught:
        inotify.check(limit, Amount(100, 1000), inotify.needed(v2=True))
    assert command in str(caught.value)
    assert "/etc/sysctl.d" in str(caught.value)


def test_the_limits_are_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "max_user_instances").write_text("128\n")
    (tmp_path / "max_user_watches").write_text("65536\n")
    assert inotify.limits(tmp_path) == Amount(128, 65536)
    assert inotify.limits().instances > 0


def test_instances_and_watches_that_root_holds_are_counted(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None)
    process = tmp_path / "1"  # a copy of what /proc shows of this process alone: others come and go
    process.symlink_to(f"/proc/{os.getpid()}")
    before = inotify.used(tmp_path)
    instance = libc.inotify_init()
    try:
        assert libc.inotify_add_watch(instance, str(tmp_path).encode(), 2) > 0
        after = inotify.used(tmp_path)
    finally:
        os.close(instance)
    assert (after.instances - before.instances, after.watches - before.watches) == (1, 1)
