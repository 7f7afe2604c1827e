"""Where the tools are that the set-up built or found.

    from localcloud import toolchain

    toolchain.binary("kubelet")             # on PATH or in the cache, of the pinned version
    toolchain.trainer_site_packages()       # mounted into every container at /opt/site-packages

`python3 -m scripts.toolchain install` puts them there. Everything in this package needs nothing
but the standard library: it runs before there is a virtual environment.
"""

from __future__ import annotations

from pathlib import Path

from scripts.toolchain import found, paths
from scripts.toolchain.errors import SetupError, StepFailed, ToolMissing
from scripts.toolchain.paths import NODE_IMAGE_DATABASES, cache
from scripts.toolchain.table import TOOLS

__all__ = [
    "NODE_IMAGE_DATABASES",
    "SetupError",
    "StepFailed",
    "ToolMissing",
    "bench_python",
    "binary",
    "cache",
    "node_image",
    "stack_python",
    "trainer_site_packages",
]


def binary(name: str) -> Path:
    """The executable `name` of the pinned version, from the cache or from PATH.

    Raises:
        ToolMissing: neither has it in that version.
        KeyError: `name` is none of `table.TOOLS`.
    """
    tool = TOOLS[name]
    path = found.locate(tool)
    if path is None:
        raise ToolMissing(f"{name} {tool.version}")
    return path


def trainer_site_packages() -> Path:
    """The folder of Python packages (torch and what the trainer imports) for the worker pods."""
    return _existing(paths.trainer_folder(), "the folder of the trainer's Python packages")


def stack_python() -> Path:
    """The Python that has the Pulumi SDKs, moto and the test tools."""
    folder = paths.stack_folder()
    _existing(folder / "bin" / "python", "the Python environment")
    return folder / "bin" / "python"


def bench_python() -> Path:
    """The Python that has torchft beside the trainer's torch, for the elastic benchmark's workers."""
    python = paths.bench_folder() / "bin" / "python"
    if not python.exists():
        raise ToolMissing("the elastic benchmark's environment", "`make bench-elastic`")
    return python


def node_image() -> Path:
    """A containerd root directory with the nodes' images imported and unpacked.

    A node's own root is `cp -al` of it, but for `NODE_IMAGE_DATABASES` (paths in it), which
    containerd writes in place and a node must not share.
    """
    from scripts.toolchain import image_build  # here, as it is only needed here

    return _existing(image_build.folder() / "containerd", "the nodes' image")


def _existing(path: Path, what: str) -> Path:
    if not path.exists():
        raise ToolMissing(what)
    return path
