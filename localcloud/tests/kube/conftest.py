"""Fixtures of the Kubernetes tests: a specification of a node, and one real cluster with two nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer

import pytest

from localcloud import kube
from localcloud.instance import Instance
from localcloud.supervise import Supervisor
from localcloud.tests.kube.harness import DRIVER_KEY, READY_SECONDS, Cluster, FakeAws, node_spec, wait_for


@pytest.fixture
def spec() -> kube.NodeSpec:
    return node_spec(0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with two Ready nodes and every addon. A test checks that stopping it leaves nothing on the host."""
    instance = Instance.create(tmp_path_factory.mktemp("cloud"))
    supervisor = Supervisor(instance)
    network = kube.Network(instance)
    plane = kube.ControlPlane(instance, supervisor, kube.ControlPlaneSpec("demo", "1.34", 0))
    made = Cluster(instance, supervisor, plane, kube.Addons(plane), [])
    network.create()
    aws = ThreadingHTTPServer((instance.host_address, instance.port), FakeAws)
    threading.Thread(target=aws.serve_forever, daemon=True).start()
    try:
        plane.start(time.monotonic() + READY_SECONDS)
        for name, versions in made.addons.VERSIONS.items():
            made.addons.install(name, versions[0], {})
        made.nodes += [kube.Node(instance, supervisor, plane, node_spec(number), DRIVER_KEY) for number in range(2)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(kube.Node.start, made.nodes))
        wait_for("both nodes Ready", lambda: all(node.ready() for node in made.nodes))
        yield made
    finally:
        for node in made.nodes:
            node.stop()
        plane.stop()
        network.destroy()
        aws.shutdown()
        aws.server_close()
