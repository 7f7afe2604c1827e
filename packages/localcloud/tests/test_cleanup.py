"""What a sweep takes for ours, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

from localcloud.cleanup import mounts
from localcloud.instance import Instance


def test_only_mounts_below_our_directories_are_ours_innermost_first(tmp_path: Path) -> None:
    instance = Instance.create(tmp_path / "state")
    state = instance.state
    table = "\n".join(
        [
            f"tmpfs {state}/nodes/a tmpfs rw 0 0",
            f"overlay {state}/nodes/a/pod\\040one overlay rw 0 0",
            f"tmpfs {state}-other/nodes tmpfs rw 0 0",
            f"tmpfs {instance.run_dir}/x tmpfs rw 0 0",
            "proc /proc proc rw 0 0",
        ]
    )
    found = mounts(instance, table)
    assert sorted(found) == sorted([f"{state}/nodes/a/pod one", f"{state}/nodes/a", f"{instance.run_dir}/x"])
    assert found.index(f"{state}/nodes/a/pod one") < found.index(f"{state}/nodes/a")
