"""The cloud's network namespace: one veth pair to the host, and routes to nodes and their pods.

    network = Network(instance)
    network.create()
    network.attach_node(link)     # a node's namespace, joined by a veth of its own
    network.destroy()

Everything is layer 3. A node has `<private ip>/32` and sends everything to the gateway 169.254.1.1. The cloud namespace
has that address on its loopback, so it answers ARP for it on every link; it routes a node's address and pods to the
node's link. Deleting the namespaces deletes their links, routes and nft rules.

The host has one nft table per cloud, with the name of its namespace. It concerns packets to and from the link only:
others than the host itself are kept out of the cloud, and the cloud reaches the ports of the host that `allow` opened.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from localcloud.instance import Instance
from localcloud.kube.commands import run, succeeds
from localcloud.kube.nodes import cgroups

NETNS_DIR = Path("/run/netns")
GATEWAY = "169.254.1.1"
POD_IDENTITY_ADDRESS = "169.254.170.23"
UPLINK = "uplink"

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
  set host_ports {{
    type inet_service
  }}
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    iifname "lo" accept
    iifname "{link}" jump from_cloud
    ip daddr {subnet} drop
  }}
  chain from_cloud {{
    ip daddr {host} tcp dport @host_ports accept
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
        host=instance.host_address,
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
        inside = ["nsenter", f"--net={NETNS_DIR / instance.netns}", "nft"]
        if not succeeds([*inside, "list", "table", "ip", "localcloud"]):
            run([*inside, "-f", "-"], stdin=MASQUERADE)
        if not succeeds(["nft", "list", "table", "inet", instance.netns]):
            run(["nft", "-f", "-"], stdin=firewall(instance))
            self.allow(instance.port)

    def allow(self, port: int) -> None:
        """Let nodes and pods connect to a TCP port of `host_address`; the AWS endpoint's is open from the start."""
        run(["nft", "add", "element", "inet", self._instance.netns, "host_ports", f"{{ {port} }}"])

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


def batch(netns: str, *lines: str) -> None:
    """Run several `ip` commands inside a namespace by one process."""
    run(["ip", "-n", netns, "-batch", "-"], stdin="\n".join(lines) + "\n")


def forward_packets(netns: str) -> None:
    """Let a namespace route between its links."""
    run(["nsenter", f"--net={NETNS_DIR / netns}", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
