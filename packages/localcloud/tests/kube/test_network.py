"""Which machines reach a cloud's addresses, and which addresses of the host a cloud reaches."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from localcloud import cleanup, kube
from localcloud.instance import Instance
from localcloud.kube.commands import run, succeeds
from localcloud.kube.network import NodeLink, firewall

from packages.localcloud.tests.kube.harness import FakeAws, traces

pytestmark = pytest.mark.e2e

OUTSIDER = "lctest-outsider"
OUTSIDE_HOST, OUTSIDE = "198.51.100.1", "198.51.100.2"  # in TEST-NET-2
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3); print('connected')"
SEND = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(b'hello', (sys.argv[1], int(sys.argv[2])))"


def connects(netns: str, address: str, port: int) -> bool:
    """Return whether a process in a network namespace can open a TCP connection."""
    return succeeds(["ip", "netns", "exec", netns, "python3", "-c", CONNECT, address, str(port)])


@contextlib.contextmanager
def served(address: str, port: int = 0) -> Iterator[int]:
    """Run an HTTP server on the host."""
    server = ThreadingHTTPServer((address, port), FakeAws)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def make_cloud(tmp_path: Path) -> Iterator[Callable[[str], Instance]]:
    """Create networks of clouds, each with one node."""
    made: list[Instance] = []

    def make(name: str) -> Instance:
        instance = Instance.create(tmp_path / name)
        made.append(instance)
        network = kube.Network(instance)
        network.create()
        network.attach_node(NodeLink.of(instance, "i-1", "10.0.0.5", "100.64.0.0/24"))
        return instance

    yield make
    for instance in made:
        cleanup.sweep(instance)


@pytest.fixture
def outsider() -> Iterator[str]:
    """Another machine, with the host as its gateway."""
    run(["ip", "netns", "add", OUTSIDER])
    try:
        run(["ip", "link", "add", "lctest0", "type", "veth", "peer", "name", "eth0", "netns", OUTSIDER])
        run(["ip", "address", "add", f"{OUTSIDE_HOST}/30", "dev", "lctest0"])
        run(["ip", "link", "set", "lctest0", "up"])
        run(["sysctl", "-q", "-w", "net.ipv4.conf.lctest0.forwarding=1"])
        run(["ip", "-n", OUTSIDER, "address", "add", f"{OUTSIDE}/30", "dev", "eth0"])
        run(["ip", "-n", OUTSIDER, "link", "set", "eth0", "up"])
        run(["ip", "-n", OUTSIDER, "route", "add", "default", "via", OUTSIDE_HOST])
        yield OUTSIDER
    finally:
        run(["ip", "netns", "delete", OUTSIDER])


def test_pods_reach_the_aws_endpoint_and_opened_ports_of_the_host_but_no_other_port(
    make_cloud: Callable[[str], Instance],
) -> None:
    cloud = make_cloud("cloud")
    node = f"{cloud.netns}-i-1"
    with served(cloud.host_address, cloud.port), served("0.0.0.0") as private, served("0.0.0.0") as webhook:
        kube.Network(cloud).allow(webhook)
        for netns in (node, cloud.netns):
            assert connects(netns, cloud.host_address, cloud.port)
            assert connects(netns, cloud.host_address, webhook)
            assert not connects(netns, cloud.host_address, private)


def test_another_machine_reaches_neither_the_endpoint_nor_the_cloud(
    make_cloud: Callable[[str], Instance], outsider: str
) -> None:
    cloud = make_cloud("cloud")
    with served(cloud.host_address, cloud.port), served("0.0.0.0") as public:
        assert connects(outsider, OUTSIDE_HOST, public)
        assert not connects(outsider, cloud.host_address, cloud.port)
    with listening(cloud) as (port, received):
        forwarded = ["ip", "netns", "exec", outsider, "python3", "-c", SEND, cloud.cloud_address, str(port)]
        run(forwarded)
        with contextlib.closing(socket.socket(type=socket.SOCK_DGRAM)) as host:
            host.sendto(b"of the host", (cloud.cloud_address, port))
        assert received() == b"of the host"


@contextlib.contextmanager
def listening(cloud: Instance) -> Iterator[tuple[int, Callable[[], bytes]]]:
    """Listen on a UDP socket in the cloud namespace; yield its port and a function that reads a datagram."""
    receive = (
        "import socket, sys\n"
        "s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "s.bind((sys.argv[1], 0))\n"
        "print(s.getsockname()[1], flush=True)\n"
        "print(s.recv(100).decode(), end='', flush=True)\n"
    )
    command = ["ip", "netns", "exec", cloud.netns, "python3", "-c", receive, cloud.cloud_address]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = process.stdout
    try:
        yield int(output.readline()), output.read
    finally:
        process.kill()
        process.wait()


def test_the_host_reaches_servers_in_the_cloud(make_cloud: Callable[[str], Instance]) -> None:
    cloud = make_cloud("cloud")
    serve = ["python3", "-u", "-m", "http.server", "6443", "--bind", cloud.cloud_address]
    process = subprocess.Popen(["ip", "netns", "exec", cloud.netns, *serve], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"Serving" in process.stdout.readline()
        socket.create_connection((cloud.cloud_address, 6443), 10).close()
    finally:
        process.kill()
        process.wait()


def test_two_clouds_do_not_reach_each_other_and_stop_independently(
    make_cloud: Callable[[str], Instance],
) -> None:
    one, two = make_cloud("one"), make_cloud("two")
    with served(one.host_address, one.port), served(two.host_address, two.port):
        assert not connects(f"{one.netns}-i-1", two.host_address, two.port)
        cleanup.sweep(one)
        assert connects(f"{two.netns}-i-1", two.host_address, two.port)


def test_a_sweep_removes_the_rules_of_a_killed_cloud_and_no_others(make_cloud: Callable[[str], Instance]) -> None:
    cloud = make_cloud("cloud")
    run(["nft", "add", "table", "inet", "lctest-of-the-host"])
    try:
        assert f"nft table {cloud.netns}" in cleanup.sweep(cloud)
        assert traces(cloud) == []
        assert "lctest-of-the-host" in run(["nft", "list", "tables"])
    finally:
        run(["nft", "delete", "table", "inet", "lctest-of-the-host"])


def test_creating_the_network_again_keeps_the_opened_ports(make_cloud: Callable[[str], Instance]) -> None:
    cloud = make_cloud("cloud")
    network = kube.Network(cloud)
    network.allow(9443)
    network.create()
    assert "9443" in run(["nft", "list", "set", "inet", cloud.netns, "host_ports"])


def test_the_rules_name_only_this_clouds_link_and_addresses(tmp_path: Path) -> None:
    instance = Instance.create(tmp_path)
    rules = firewall(instance)
    assert f'iifname "{instance.veth}"' in rules
    assert f"ip daddr 198.18.{instance.subnet}.0/30 drop" in rules
