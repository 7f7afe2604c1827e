"""Where the tools are that the set-up built or found.

    from scripts import toolchain

    toolchain.binary("kubelet")             # on PATH or in the cache, of the pinned version
    toolchain.trainer_site_packages()       # mounted into every container at /opt/site-packages

`python3 -m scripts.toolchain install` puts them there. Everything in this package needs nothing
but the standard library: it runs before there is a virtual environment.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from scripts.toolchain import found, paths
from scripts.toolchain.errors import SetupError, StepFailed, ToolMissing
from scripts.toolchain.paths import NODE_IMAGE_DATABASES, cache
from scripts.toolchain.table import BENCH_TOOLS, MONITORING_TOOLS, PREVIOUS_KUBERNETES, PREVIOUS_TOOLS, TOOLS

__all__ = [
    "NODE_IMAGE_DATABASES",
    "TORCHX",
    "SetupError",
    "StepFailed",
    "ToolMissing",
    "bench_binary",
    "bench_module",
    "bench_python",
    "binary",
    "cache",
    "charts",
    "localcloud_tools",
    "monitoring_binary",
    "node_image",
    "stack_python",
    "torchx_python",
    "trainer_site_packages",
]

TORCHX = ("TorchX's Python environment", "`make torchx`")
"""What `ToolMissing` says if it isn't there: `make up` doesn't need it."""
_DOWNLOAD = "`go mod download` in its folder of scripts/toolchain"


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


def bench_binary(name: str) -> Path:
    """The executable `name` of `table.BENCH_TOOLS`, which only the controller's benchmark runs."""
    tool = BENCH_TOOLS[name]
    path = found.locate(tool)
    if path is None:
        raise ToolMissing(f"{name} {tool.version}", "`make bench-controller`")
    return path


def bench_module(name: str) -> Path:
    """The folder with the sources of a tool of `table.BENCH_TOOLS`, as Go downloaded them to build it."""
    tool = BENCH_TOOLS[name]
    folder = found.sources(tool)
    if folder is None:
        raise ToolMissing(f"the source of {name} {tool.version}", _DOWNLOAD)
    return folder


def monitoring_binary(name: str) -> Path:
    """The executable `prometheus` or `promtool`."""
    path = found.locate(MONITORING_TOOLS[name])
    if path is None:
        raise ToolMissing(name, "`make monitoring`")
    return path


def charts() -> Path:
    """The folder with Karpenter's charts: `karpenter` and `karpenter-crd`."""
    return _existing(paths.charts_folder(), "the folder of Karpenter's charts")


def trainer_site_packages() -> Path:
    """The folder of Python packages (torch and what the trainer imports) for the worker pods."""
    return _existing(paths.trainer_folder(), "the folder of the trainer's Python packages")


def stack_python() -> Path:
    """The Python that has the Pulumi SDKs, moto and the test tools."""
    folder = paths.stack_folder()
    _existing(folder / "bin" / "python", "the Python environment")
    return folder / "bin" / "python"


def torchx_python() -> Path:
    """The Python that has TorchX, and what the tests of its scheduler need."""
    python = paths.torchx_folder() / "bin" / "python"
    if not python.exists():
        raise ToolMissing(*TORCHX)
    return python


def bench_python() -> Path:
    """The Python that has torchft in addition to the trainer's torch, for the elastic benchmark's workers."""
    python = paths.bench_folder() / "bin" / "python"
    if not python.exists():
        raise ToolMissing("the elastic benchmark's environment", "`make bench-elastic`")
    return python


def node_image() -> Path:
    """A containerd root directory with the nodes' images imported and unpacked.

    A node's own root is `cp -al` of it, but for `NODE_IMAGE_DATABASES` (paths in it), which
    containerd writes in place and a node must not share.
    """
    from scripts.toolchain.image import build  # here, as it is only needed here

    return _existing(build.folder() / "containerd", "the nodes' image")


def localcloud_tools() -> Path:
    """The folder that LOCALCLOUD_TOOLS names: links to what the one-machine cloud and its tests run.

    Made on demand, one for each set of pins. It has the version of Kubernetes before if all of that is built.

    Raises:
        ToolMissing: the set-up has not run.
    """
    wanted = {Path("bin", name): binary(name) for name in TOOLS}
    wanted |= {Path("node-image"): node_image(), Path("site-packages"): trainer_site_packages()}
    wanted |= {Path("charts"): charts(), **_previous_kubernetes()}
    key = paths.key_of(*(f"{name} {target}".encode() for name, target in wanted.items()))
    folder = cache() / "localcloud" / key
    if not folder.is_dir():
        _make_links(folder, wanted)
    return folder


def _previous_kubernetes() -> dict[Path, Path]:
    minor = PREVIOUS_KUBERNETES.removeprefix("v").rpartition(".")[0]
    built = {Path("kubernetes", minor, name): found.locate(tool) for name, tool in PREVIOUS_TOOLS.items()}
    programs = {link: target for link, target in built.items() if target is not None}
    return programs if len(programs) == len(built) else {}


def _make_links(folder: Path, wanted: Mapping[Path, Path]) -> None:
    """Make the folder as a whole; several processes may try at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    draft.chmod(0o755)
    for name, target in wanted.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).symlink_to(target)
    try:
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft)
        if not folder.is_dir():
            raise


def _existing(path: Path, what: str) -> Path:
    if not path.exists():
        raise ToolMissing(what)
    return path
