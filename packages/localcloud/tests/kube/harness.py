"""Helpers for tests of a real cluster: a handle to it, a fake AWS, and a search for what it leaves on the host."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from localcloud import kube, tools
from localcloud.host import cgroups
from localcloud.instance import Instance
from localcloud.kube.commands import run
from localcloud.supervise import Supervisor

FILE_SYSTEM = "fs-0123456789abcdef0"
ACCESS_POINT = "fsap-0123456789abcdef0"
READY_SECONDS = 180
DRIVER_KEY = kube.DriverKey("AKIADRIVER", "secret")


def node_spec(number: int, version: str = tools.KUBERNETES) -> kube.NodeSpec:
    return kube.NodeSpec(
        name=f"ip-10-0-{number}-5.us-west-2.compute.internal",
        private_ip=f"10.0.{number}.5",
        instance_id=f"i-0123456789abcdef{number}",
        instance_type="m5.large",
        vcpus=2,
        memory_mib=8192,
        zone="us-west-2" + "abc"[number],
        region="us-west-2",
        cluster="demo",
        version=version,
        labels={"eks.amazonaws.com/nodegroup": "workers"},
        taints=[],
    )


@dataclass
class Cluster:
    """A running cluster, with kubectl for it."""

    instance: Instance
    supervisor: Supervisor
    plane: kube.ControlPlane
    addons: kube.Addons
    nodes: list[kube.Node]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = [str(tools.binary("kubectl")), "--kubeconfig", str(self.plane.admin_kubeconfig), *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=READY_SECONDS + 30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in objects))


@contextlib.contextmanager
def running_cluster(folder: Path, version: str) -> Iterator[Cluster]:
    """Run a cluster with two Ready nodes of a version of Kubernetes and every addon."""
    instance = Instance.create(folder)
    supervisor = Supervisor(instance)
    network = kube.Network(instance)
    plane = kube.ControlPlane(instance, supervisor, kube.ControlPlaneSpec("demo", version, 0))
    made = Cluster(instance, supervisor, plane, kube.Addons(plane), [])
    network.create()
    aws = fake_aws(network.listen(instance.port))
    try:
        plane.start(time.monotonic() + READY_SECONDS)
        for name, versions in made.addons.VERSIONS.items():
            made.addons.install(name, versions[0], {})
        specs = [node_spec(number, version) for number in range(2)]
        made.nodes += [kube.Node(instance, supervisor, plane, spec, DRIVER_KEY) for spec in specs]
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


def fake_aws(listening: socket.socket) -> ThreadingHTTPServer:
    """Serve a `FakeAws` on a socket until the caller ends it."""
    server = ThreadingHTTPServer(listening.getsockname(), FakeAws, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def wait_for(what: str, condition: Callable[[], bool]) -> float:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < READY_SECONDS, f"not within {READY_SECONDS} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - started


class FakeAws(BaseHTTPRequestHandler):
    """EFS with one file system and mount targets in zones a and b; EKS Auth that accepts one token."""

    def do_GET(self) -> None:
        root = {"Path": "/job", "CreationInfo": {"OwnerUid": 1000, "OwnerGid": 1000, "Permissions": "0750"}}
        zones = [{"AvailabilityZoneName": f"us-west-2{z}", "LifeCycleState": "available"} for z in "ab"]
        answers: dict[str, dict[str, Any]] = {
            "file-systems": {"FileSystems": [{"FileSystemId": FILE_SYSTEM, "LifeCycleState": "available"}]},
            "mount-targets": {"MountTargets": zones},
            "access-points": {"AccessPoints": [{"FileSystemId": FILE_SYSTEM, "RootDirectory": root}]},
        }
        self._reply(answers[self.path.split("/")[2].split("?")[0]])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        credentials = {"accessKeyId": "A", "secretAccessKey": "B", "sessionToken": "C", "expiration": 4e9}
        self._reply({"credentials": credentials})

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _reply(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def traces(instance: Instance, cgroup_root: Path = cgroups.CGROUP_ROOT) -> list[str]:
    """Return what an instance has on the host: mounts, namespaces, links, cgroups and the processes in them."""
    found = [line for line in Path("/proc/self/mounts").read_text().splitlines() if instance.netns in line]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(instance.state) in line]
    found += [str(path) for path in Path("/run/netns").glob(f"{instance.netns}*")]
    found += [str(path) for path in Path("/sys/class/net").glob(f"{instance.veth}*")]
    found += [str(path) for path in cgroups.folders(instance.cgroup, cgroup_root)]
    found += [line for line in run(["nft", "list", "tables"]).splitlines() if instance.netns in line]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(instance.state) in entry.read_text():
                found.append(entry.read_text().replace("\0", " "))
        except OSError:
            continue
    return found
