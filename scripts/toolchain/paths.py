"""Where the set-up puts things: a cache outside the checkout, keyed by version or by content.

Two checkouts with the same pins share everything; one with other pins gets folders of its own.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from scripts.toolchain.table import KARPENTER, Tool

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
REQUIREMENTS = CHECKOUT / "requirements"
LOCALCLOUD = CHECKOUT / "packages" / "localcloud" / "src"
PACKAGES = ("localcloud", "elasticdl", "torchx", "accelerate", "lightning", "transformers")
IMPORTS = os.pathsep.join(
    str(path) for path in (CHECKOUT, *(CHECKOUT / "packages" / name / "src" for name in PACKAGES))
)
"""PYTHONPATH of the commands that run a package of this checkout."""

# What containerd writes in place in its root, and so what a copy by hard links must copy for good.
NODE_IMAGE_DATABASES = (
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
)


def cache() -> Path:
    """The cache's root: $TIDEWATER_CACHE, else ~/.cache/tidewater."""
    return Path(os.environ.get("TIDEWATER_CACHE") or "~/.cache/tidewater").expanduser()


def key_of(*parts: bytes) -> str:
    """Twelve hex digits that change when any of `parts` does."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def lock(name: str) -> Path:
    """The hash-locked requirements file of an environment; the workers' is in `trainer/`."""
    return CHECKOUT / "trainer" / "requirements.txt" if name == "trainer" else REQUIREMENTS / f"{name}.txt"


def _locked(*names: str) -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}".encode()
    return key_of(version, *(lock(name).read_bytes() for name in names))


def tool_path(tool: Tool) -> Path:
    """Where the build of `tool` lies. If its main is our own, other plug-ins make another build of the same version."""
    module = HERE / tool.module
    own = module / "main.go"
    key = f"-{key_of(own.read_bytes(), (module / 'go.mod').read_bytes())}" if own.is_file() else ""
    return cache() / "tools" / f"{tool.folder}{key}" / tool.name


def charts_folder() -> Path:
    """Where Karpenter's charts lie, each in a folder of its name."""
    return cache() / "charts" / f"karpenter-{KARPENTER}"


def trainer_folder() -> Path:
    """Where the workers' Python packages lie."""
    return cache() / "python" / f"trainer-{_locked('trainer')}"


def stack_folder() -> Path:
    """Where the virtual environment of the program, the cloud and the tests lies."""
    return cache() / "python" / f"stack-{_locked('stack', 'dev', 'libraries', 'trainer')}"


def torchx_folder() -> Path:
    """Where the virtual environment of TorchX lies. It refers to the stack's, so it has the key of those locks too."""
    return cache() / "python" / f"torchx-{_locked('torchx', 'stack', 'dev', 'libraries', 'trainer')}"


def bench_folder() -> Path:
    """Where the virtual environment of the elastic benchmark's workers lies."""
    return cache() / "python" / f"bench-{_locked('bench', 'trainer')}"
