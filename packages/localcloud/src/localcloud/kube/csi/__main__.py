"""Entry point of a driver, started by a node's init."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from queue import SimpleQueue

from localcloud.kube.addon_manifests import LUSTRE
from localcloud.kube.csi import driver, efs, lustre
from localcloud.kube.nodes.config import EFS_DIR, LUSTRE_DIR
from localcloud.kube.rpc import handler, serve

PLUGINS = Path("/var/lib/kubelet/plugins")
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
ANSWER_SECONDS = 5.0
"""What is being mounted, and the answer to kubelet, have this long to end."""


def finder(name: str, zone: str) -> driver.Find:
    """Return what finds the volumes of the driver of this name."""
    if name == LUSTRE:
        return lustre.finder(Path(LUSTRE_DIR))
    environment = os.environ
    ask = efs.api(
        environment["AWS_ENDPOINT_URL"],
        environment["AWS_REGION"],
        environment["AWS_ACCESS_KEY_ID"],
        environment["AWS_SECRET_ACCESS_KEY"],
    )
    return efs.finder(ask, Path(EFS_DIR), zone)


def main(name: str, node: str, zone: str) -> None:
    """Serve until killed, or until kubelet refuses the driver, as it does while it can't reach the API server.

    kubelet doesn't ask a refused driver again until that makes a new socket. So this process ends, as
    node-driver-registrar does, and the node's init starts another one.
    https://github.com/kubernetes-csi/node-driver-registrar
    """
    instance = driver.Driver(name, node, finder(name, zone))
    socket = PLUGINS / name / "csi.sock"
    services = [
        handler("csi.v1.Identity", instance.identity()),
        handler("csi.v1.Node", instance.node()),
    ]
    server = serve(socket, services)
    # kubelet calls the driver as soon as it sees the registration's socket, so that comes last.
    refusals = SimpleQueue[str]()
    registrar = handler("pluginregistration.Registration", driver.registration(name, socket, refusals.put))
    registered = serve(REGISTRY / f"{name}-reg.sock", [registrar])
    reason = refusals.get()
    for each in (registered, server):
        each.stop(ANSWER_SECONDS).wait()
    sys.exit(f"kubelet refused the registration: {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
