"""The cloud's network namespace: one veth pair to the host, and routes to nodes and their pods.

    network = Network(instance)
    network.create()
    network.attach_node(link)     # a node's namespace, joined by a veth of its own
    network.destroy()

Everything is layer 3. A node has `<private ip>/32` and sends everything to the gateway 169.254.1.1. The cloud namespace
has that address on its loopback, so it answers ARP for it on every link; it routes a node's address and pods to the
node's link. Deleting the namespaces deletes their links, routes and nft rules.

The host has one nft table per cloud, with the name of its namespace. It concerns packets to and from the link only:
others than the host itself are kept out of the cloud, and the cloud reaches no port of the host. What the daemon serves
to nodes and pods it serves inside the namespace (`listen`), so that no other firewall of the host can drop it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from localcloud.host import cgroups
from localcloud.instance import Instance
from localcloud.kube.commands import run, succeeds
from localcloud.kube.errors import KubeError
from localcloud.namespace import NETNS_DIR

GATEWAY = "169.254.1.1"
POD_IDENTITY_ADDRESS = "169.254.170.23"
UPLINK = "uplink"
CLONE_NEWNET = 0x40000000
CONNECT_SECONDS = 5.0
GUARD_SECONDS = 5.0

log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")

# The host has a route to the cloud's own address, but none to nodes and pods, so what leaves gets that address.
MASQUERADE = f"""
table ip localcloud {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{UPLINK}" masquerade
  }}
}}
"""


# Without connection tracking, which would be switched on for all of the host's traffic. A TCP packet that is not the
# first of its connection can only be the answer to a connection that the host has opened.
FIREWALL = """
table inet {table} {{
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    iifname "lo" accept
    iifname "{link}" jump from_cloud
    ip daddr {subnet} drop
  }}
  chain from_cloud {{
    tcp flags & (syn | ack) == syn reject with tcp reset
    meta l4proto tcp accept
    icmp type {{ echo-reply, destination-unreachable, time-exceeded }} accept
    drop
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
    iifname "{link}" drop
    oifname "{link}" drop
  }}
}}
"""


@dataclass(frozen=True)
class NodeLink:
    """What joins one node to the cloud.

    Args:
        netns: Name of the node's network namespace.
        interface: Name of the veth's end in the cloud namespace, at most 15 characters.
        address: The node's private IP.
        pod_cidr: The pods' range behind it.
    """

    netns: str
    interface: str
    address: str
    pod_cidr: str

    @classmethod
    def of(cls, instance: Instance, instance_id: str, address: str, pod_cidr: str) -> NodeLink:
        """The link of the node with this EC2 instance id."""
        return cls(node_netns(instance, instance_id), interface_name(instance_id), address, pod_cidr)


def node_netns(instance: Instance, instance_id: str) -> str:
    """Name of a node's network namespace: the cloud's own, then the EC2 instance id."""
    return f"{instance.netns}-{instance_id}"


def interface_name(instance_id: str) -> str:
    """Name of a node's link in the cloud namespace; ids are longer than the 15 characters that Linux allows."""
    return "n" + hashlib.sha256(instance_id.encode()).hexdigest()[:10]


def firewall(instance: Instance) -> str:
    """The host's rules for one cloud."""
    return FIREWALL.format(
        table=instance.netns,
        link=instance.veth,
        subnet=f"198.18.{instance.subnet}.0/30",
    )


class Network:
    """The cloud namespace of one instance; every method may be called again."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def create(self) -> None:
        """Make the namespace, its link to the host and the host's rules, unless they exist."""
        instance = self._instance
        if not (NETNS_DIR / instance.netns).exists():
            run(["ip", "netns", "add", instance.netns])
        if not Path(f"/sys/class/net/{instance.veth}").exists():
            run(["ip", "link", "add", instance.veth, "type", "veth", "peer", "name", UPLINK, "netns", instance.netns])
        run(["ip", "address", "replace", f"{instance.host_address}/30", "dev", instance.veth])
        run(["ip", "link", "set", instance.veth, "up"])
        batch(
            instance.netns,
            "link set lo up",
            f"address replace {GATEWAY}/32 dev lo",
            f"address replace {instance.cloud_address}/30 dev {UPLINK}",
            f"link set {UPLINK} up",
        )
        forward_packets(instance.netns)
        nft = ["nsenter", f"--net={NETNS_DIR / instance.netns}", "nft"]
        if not succeeds([*nft, "list", "table", "ip", "localcloud"]):
            run([*nft, "-f", "-"], stdin=MASQUERADE)
        self.protect()

    def protect(self) -> bool:
        """Put the host's rules in place; return False if they were there."""
        if succeeds(["nft", "list", "table", "inet", self._instance.netns]):
            return False
        run(["nft", "-f", "-"], stdin=firewall(self._instance))
        return True

    def guard(self, ended: threading.Event) -> None:
        """Put the host's rules back whenever something has removed them, until `ended` is set."""
        table = self._instance.netns
        while not ended.wait(GUARD_SECONDS):
            try:
                if self.protect():
                    log.warning("the nft table %s was removed, as `systemctl restart nftables` does: it is back", table)
            except KubeError as error:
                log.error("the nft table %s was removed and can't be put back: %s", table, error)

    def listen(self, port: int = 0) -> socket.socket:
        """Open a TCP port (0: a free one) of the cloud's address for nodes, pods, API servers and this machine."""
        return inside(
            NETNS_DIR / self._instance.netns, lambda: socket.create_server((self._instance.cloud_address, port))
        )

    def check(self, ports: Iterable[int]) -> None:
        """Connect to these ports of the cloud's address, from this machine and from inside the cloud.

        Raises:
            KubeError: No connection; the message has the command that helps.
        """
        instance = self._instance
        for port in ports:
            address = (instance.cloud_address, port)
            inside(NETNS_DIR / instance.netns, functools.partial(_connect, address, "nodes and pods"))
            try:
                _connect(address, "this machine")
            except KubeError as error:
                raise KubeError(
                    f"{error}: its firewall drops packets of the interface {instance.veth}; with ufw, run "
                    f"`ufw allow in on {instance.veth} && ufw allow out on {instance.veth}`; with other firewalls, "
                    "accept what comes in and goes out there"
                ) from error

    def destroy(self) -> list[str]:
        """Remove the link, the namespace, the host's rules, and the cgroup that the nodes' cgroups were in.

        Returns:
            What was there and is gone now.
        """
        instance = self._instance
        removed = []
        if succeeds(["ip", "link", "delete", instance.veth]):
            removed.append(f"interface {instance.veth}")
        if (NETNS_DIR / instance.netns).exists():
            run(["ip", "netns", "delete", instance.netns])
            removed.append(f"network namespace {instance.netns}")
        if succeeds(["nft", "delete", "table", "inet", instance.netns]):
            removed.append(f"nft table {instance.netns}")
        if cgroups.folders(instance.cgroup):
            cgroups.destroy(instance.cgroup)
            removed.append(f"cgroup {instance.cgroup}")
        return removed

    def attach_node(self, link: NodeLink) -> None:
        """Make a node's namespace and route its address and its pods there."""
        self.detach_node(link)
        run(["ip", "netns", "add", link.netns])
        batch(
            self._instance.netns,
            f"link add {link.interface} type veth peer name eth0 netns {link.netns}",
            f"link set {link.interface} up",
            f"route replace {link.address}/32 dev {link.interface}",
            f"route replace {link.pod_cidr} via {link.address} dev {link.interface} onlink",
        )
        batch(
            link.netns,
            "link set lo up",
            f"address add {POD_IDENTITY_ADDRESS}/32 dev lo",
            f"address add {link.address}/32 dev eth0",
            "link set eth0 up",
            f"route add {GATEWAY} dev eth0 scope link",
            f"route add default via {GATEWAY} src {link.address}",
        )
        forward_packets(link.netns)

    def detach_node(self, link: NodeLink) -> None:
        """Remove a node's link and namespace, if they are there."""
        succeeds(["ip", "-n", self._instance.netns, "link", "delete", link.interface])
        if (NETNS_DIR / link.netns).exists():
            run(["ip", "netns", "delete", link.netns])


def inside(netns: Path, work: Callable[[], T]) -> T:
    """Do something inside a network namespace; a socket that is opened there stays there.

    A namespace can be entered by a single thread. This one ends with its work, and never comes back.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_enter_and_do, netns, work).result()


def _enter_and_do(netns: Path, work: Callable[[], T]) -> T:
    descriptor = os.open(netns, os.O_RDONLY)
    try:
        if _libc.setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"enter {netns}: {os.strerror(number)}")
    finally:
        os.close(descriptor)
    return work()


def _connect(address: tuple[str, int], who: str) -> None:
    try:
        socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError as error:
        raise KubeError(f"{who} can't connect to {address[0]}:{address[1]} ({error})") from error


def batch(netns: str, *lines: str) -> None:
    """Run several `ip` commands inside a namespace by one process."""
    run(["ip", "-n", netns, "-batch", "-"], stdin="\n".join(lines) + "\n")


def forward_packets(netns: str) -> None:
    """Let a namespace route between its links."""
    run(["nsenter", f"--net={NETNS_DIR / netns}", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
