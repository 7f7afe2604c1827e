"""Entry point of the driver, started by a node's init."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from localcloud.kube.csi import driver, efs
from localcloud.kube.nodes.config import EFS_DIR
from localcloud.kube.rpc import handler, serve

PLUGINS = Path("/var/lib/kubelet/plugins")
REGISTRY = Path("/var/lib/kubelet/plugins_registry")


def main(node: str, zone: str) -> None:
    """Serve until killed."""
    environment = os.environ
    ask = efs.api(
        environment["AWS_ENDPOINT_URL"],
        environment["AWS_REGION"],
        environment["AWS_ACCESS_KEY_ID"],
        environment["AWS_SECRET_ACCESS_KEY"],
    )
    instance = driver.Driver(node, zone, Path(EFS_DIR), ask)
    socket = PLUGINS / driver.NAME / "csi.sock"
    services = [
        handler("csi.v1.Identity", instance.identity()),
        handler("csi.v1.Node", instance.node()),
    ]
    server = serve(socket, services)
    # kubelet calls the driver as soon as it sees the registration's socket, so that comes last.
    registrar = handler("pluginregistration.Registration", driver.registration(socket))
    registered = serve(REGISTRY / f"{driver.NAME}-reg.sock", [registrar])
    server.wait_for_termination()
    registered.stop(None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
