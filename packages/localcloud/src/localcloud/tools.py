"""The folder that `LOCALCLOUD_TOOLS` names: programs and folders that the cloud needs and does not contain.

    bin/              etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy; for the tests
                      helm and karpenter
    kubernetes/1.34/  the Kubernetes programs of another version, for clusters of that version; may be missing
    node-image/       a containerd root with the nodes' images imported and unpacked
    site-packages/    Python packages for pods, mounted into every container at /opt/site-packages
    charts/           for the tests: Karpenter's charts

Each of them may be a link. The installation of localcloud makes the folder; localcloud changes nothing in it.
"""

from __future__ import annotations

import os
from pathlib import Path

from localcloud.errors import ToolMissing

VARIABLE = "LOCALCLOUD_TOOLS"
KUBERNETES = "1.35"
"""The version of the Kubernetes programs in `bin`."""
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
PROGRAMS = ("etcd", *KUBERNETES_PROGRAMS)


def binary(name: str) -> Path:
    """Return the path of a program.

    Raises:
        ToolMissing: `LOCALCLOUD_TOOLS` is not set, or its `bin` has no such program.
    """
    return _find(Path("bin", name))


def kubernetes(version: str, name: str) -> Path:
    """Return the path of a program of a version of Kubernetes.

    Raises:
        ToolMissing: there is no such program, or not in this version.
    """
    return binary(name) if version == KUBERNETES else _find(Path("kubernetes", version, name))


def kubernetes_versions() -> list[str]:
    """Return the versions of Kubernetes that are here, oldest first."""
    others = Path(os.environ.get(VARIABLE, ""), "kubernetes").glob("*")
    return sorted({KUBERNETES, *(folder.name for folder in others)}, key=lambda text: [*map(int, text.split("."))])


def node_image() -> Path:
    """Return the containerd root that a node's own root is a copy of.

    Raises:
        ToolMissing: `LOCALCLOUD_TOOLS` is not set, or has no `node-image`.
    """
    return _find(Path("node-image"))


def site_packages() -> Path:
    """Return the folder of Python packages for pods.

    Raises:
        ToolMissing: `LOCALCLOUD_TOOLS` is not set, or has no `site-packages`.
    """
    return _find(Path("site-packages"))


def check() -> None:
    """Raise unless everything is there.

    Raises:
        ToolMissing: Names the first thing that is missing.
    """
    for name in PROGRAMS:
        binary(name)
    node_image()
    site_packages()


def _find(part: Path) -> Path:
    named = os.environ.get(VARIABLE)
    if not named:
        raise ToolMissing(
            f"{VARIABLE} is not set, so {part} can't be found: run `. ./activate` in the checkout, "
            "or set it to a folder that holds bin, node-image and site-packages"
        )
    path = Path(named, part)
    if not path.exists():
        raise ToolMissing(f"{path} is missing ({VARIABLE} is {named}): run `make install`, then `. ./activate` again")
    return path.resolve()  # nodes mount these, and a mount's source should not change with a link
