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
from localcloud.kube import network
from localcloud.kube.commands import run, succeeds
from localcloud.kube.network import NodeLink, firewall, inside
from localcloud.namespace import NETNS_DIR

from packages.localcloud.tests.kube.harness import FakeAws, fake_aws, traces, wait_for

pytestmark = pytest.mark.e2e

OUTSIDER, HOST = "lctest-outsider", "lctest-host"
DENY = """
table inet filter {{
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    {more}
  }}
}}
"""
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


@contextlib.contextmanager
def endpoint(cloud: Instance) -> Iterator[None]:
    """Serve the AWS endpoint of a cloud as its daemon does."""
    server = fake_aws(kube.Network(cloud).listen(cloud.port))
    try:
        yield
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


def test_pods_reach_what_the_daemon_serves_in_the_cloud_but_no_port_of_the_host(
    make_cloud: Callable[[str], Instance],
) -> None:
    cloud = make_cloud("cloud")
    node = f"{cloud.netns}-i-1"
    with endpoint(cloud), served("0.0.0.0") as private:
        socket.create_connection((cloud.cloud_address, cloud.port), 10).close()
        for netns in (node, cloud.netns):
            assert connects(netns, cloud.cloud_address, cloud.port)
            assert not connects(netns, cloud.host_address, private)


def host_with(firewall: str) -> Iterator[Path]:
    """Yield the network namespace of another host, which has these rules; its clouds are made inside it."""
    run(["ip", "netns", "add", HOST])
    try:
        run(["ip", "-n", HOST, "link", "set", "lo", "up"])
        run(["ip", "netns", "exec", HOST, "nft", "-f", "-"], stdin=firewall)
        yield NETNS_DIR / HOST
    finally:
        run(["ip", "netns", "delete", HOST])


@pytest.fixture
def deny_host() -> Iterator[Path]:
    """A host with ufw's default: incoming packets are dropped, unless they answer."""
    yield from host_with(DENY.format(more="ct state established,related accept"))


@pytest.fixture
def silent_host() -> Iterator[Path]:
    """A host that drops answers too."""
    yield from host_with(DENY.format(more=""))


@pytest.fixture
def cloud_on(tmp_path: Path) -> Iterator[Callable[[Path], Instance]]:
    """Create the network of a cloud, with one node, on another host."""
    instance = Instance.create(tmp_path / "cloud")
    link = NodeLink.of(instance, "i-1", "10.0.0.5", "100.64.0.0/24")

    def make(host: Path) -> Instance:
        inside(host, kube.Network(instance).create)
        inside(host, lambda: kube.Network(instance).attach_node(link))
        return instance

    yield make
    cleanup.sweep(instance)


def test_a_firewall_that_drops_incoming_packets_keeps_no_pod_from_the_aws_endpoint(
    deny_host: Path, cloud_on: Callable[[Path], Instance]
) -> None:
    cloud = cloud_on(deny_host)
    with endpoint(cloud):
        assert connects(f"{cloud.netns}-i-1", cloud.cloud_address, cloud.port)
        assert cloud.cloud_endpoint == f"http://{cloud.cloud_address}:{cloud.port}"
        inside(deny_host, lambda: kube.Network(cloud).check([cloud.port]))


def test_a_firewall_that_drops_answers_is_named_with_the_command_that_helps(
    silent_host: Path, cloud_on: Callable[[Path], Instance], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "CONNECT_SECONDS", 0.5)
    cloud = cloud_on(silent_host)
    with endpoint(cloud), pytest.raises(kube.KubeError, match=f"ufw allow in on {cloud.veth}"):
        inside(silent_host, lambda: kube.Network(cloud).check([cloud.port]))


def test_the_check_names_a_port_that_nothing_serves(make_cloud: Callable[[str], Instance]) -> None:
    cloud = make_cloud("cloud")
    with pytest.raises(kube.KubeError, match=rf"nodes and pods can't connect to .*:{cloud.port}"):
        kube.Network(cloud).check([cloud.port])


def test_rules_that_a_restart_of_nftables_flushed_are_put_back(
    deny_host: Path,
    cloud_on: Callable[[Path], Instance],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(network, "GUARD_SECONDS", 0.05)
    cloud, ended = cloud_on(deny_host), threading.Event()
    tables = ["ip", "netns", "exec", HOST, "nft", "list", "tables"]
    run(["ip", "netns", "exec", HOST, "nft", "flush", "ruleset"])
    assert cloud.netns not in run(tables)
    guard = threading.Thread(target=inside, args=[deny_host, lambda: kube.Network(cloud).guard(ended)])
    guard.start()
    try:
        wait_for("the rules", lambda: cloud.netns in run(tables))
    finally:
        ended.set()
        guard.join()
    assert f"the nft table {cloud.netns} was removed" in caplog.text


def test_another_machine_reaches_neither_the_endpoint_nor_the_cloud(
    make_cloud: Callable[[str], Instance], outsider: str
) -> None:
    cloud = make_cloud("cloud")
    with endpoint(cloud), served("0.0.0.0") as public:
        assert connects(outsider, OUTSIDE_HOST, public)
        assert not connects(outsider, cloud.host_address, public)
        assert not connects(outsider, cloud.cloud_address, cloud.port)
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
    with endpoint(one), endpoint(two):
        assert not connects(f"{one.netns}-i-1", two.cloud_address, two.port)
        cleanup.sweep(one)
        assert connects(f"{two.netns}-i-1", two.cloud_address, two.port)


def test_a_sweep_removes_the_rules_of_a_killed_cloud_and_no_others(make_cloud: Callable[[str], Instance]) -> None:
    cloud = make_cloud("cloud")
    run(["nft", "add", "table", "inet", "lctest-of-the-host"])
    try:
        assert f"nft table {cloud.netns}" in cleanup.sweep(cloud)
        assert traces(cloud) == []
        assert "lctest-of-the-host" in run(["nft", "list", "tables"])
    finally:
        run(["nft", "delete", "table", "inet", "lctest-of-the-host"])


def test_creating_the_network_again_changes_no_rule(make_cloud: Callable[[str], Instance]) -> None:
    cloud = make_cloud("cloud")
    table = ["nft", "list", "table", "inet", cloud.netns]
    before = run(table)
    kube.Network(cloud).create()
    assert run(table) == before


def test_the_rules_name_only_this_clouds_link_and_addresses(tmp_path: Path) -> None:
    instance = Instance.create(tmp_path)
    rules = firewall(instance)
    assert f'iifname "{instance.veth}"' in rules
    assert f"ip daddr 198.18.{instance.subnet}.0/30 drop" in rules
