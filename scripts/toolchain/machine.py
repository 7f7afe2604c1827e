"""What the set-up needs of the machine: looked at first, so that nothing is downloaded or built in vain.

    check(steps)     # SetupError in one sentence, within seconds

The README lists the same, and a test compares the two.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.toolchain import debian, go_tools, paths, python_packages
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.steps import GIB, Step, no_room


def check(steps: Sequence[Step]) -> None:
    """Refuse to begin where a step that isn't done yet, or the one-machine cloud, would fail.

    Raises:
        StepFailed: the message says what is missing, and what to do.
    """
    check_root(os.geteuid())
    debian.here()
    undone = [step for step in steps if not step.done()]
    if undone:
        python_packages.check_python(sys.version_info[:2], sys.executable)
        check_disk(undone, paths.cache())
        if modules := [module for step in undone if (module := go_tools.module_of(step)) is not None]:
            go_tools.check_go(max(modules, key=go_tools.go_of))
    check_cloud()


def check_root(uid: int) -> None:
    """Refuse another user than root, who can neither install packages nor make the nodes' image nor start nodes."""
    if uid != 0:
        raise StepFailed("only root can install packages and start nodes: run it as root, or with `sudo make …`")


def check_disk(undone: Sequence[Step], cache: Path) -> None:
    """Refuse to begin without room for all steps that aren't done: the last one would fail, after many minutes."""
    needed = sum(step.disk_gib for step in undone)
    folder = next(each for each in (cache, *cache.absolute().parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    if free < needed * GIB:
        raise no_room(f"the set-up needs {needed:.0f} GiB", free, cache)


def check_cloud() -> None:
    """Have localcloud check that a cloud can run here: capabilities, kernel, cgroups, inotify."""
    done = subprocess.run(
        [sys.executable, "-m", "localcloud", "check"],
        env={**os.environ, "PYTHONPATH": paths.IMPORTS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StepFailed(done.stderr.strip().removeprefix("localcloud: "))
