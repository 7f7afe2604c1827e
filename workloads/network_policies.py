"""What the pods of the training namespace may reach, and who may reach them: nothing but what is opened here.

    NetworkPolicies(space, NetworkPoliciesArgs(stack.network.cidrs, training.proxy), platform.options(namespace))

Policies add up: to open more, for a database or a port other than 443, add a NetworkPolicy of your own in that
namespace. Who reaches etcd is in `etcd`. The file system needs no policy, since nodes mount it and not pods.

How the VPC CNI enforces them, which these manifests keep to
(https://docs.aws.amazon.com/eks/latest/userguide/cni-network-policy.html#cni-network-policy-considerations):

- It applies them to pods with an owner only. Pods of one owner share what applies to them.
- It sees the address of a Service before that of the pod behind it, and lets it pass if the labels of the egress rule
  select the Service's selector too, and the Service's port is the container's. So egress names the Service's labels.
  https://github.com/aws/amazon-network-policy-controller-k8s/issues/194
- Names of ports are not resolved everywhere, and `except` opens more than it says: neither is used.
  https://github.com/aws/amazon-network-policy-controller-k8s/issues/81
  https://github.com/aws/aws-network-policy-agent/issues/180
- A new pod is open for the second or so until they apply to it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

import settings
from tidewater.contract import labels, metrics
from workloads import objects
from workloads.etcd import manifests as etcd
from workloads.manifests import JOB_PODS, Manifest, metadata

HTTPS_PORT = 443
DNS_PORT = 53
DNS_PODS = {"k8s-app": "kube-dns"}
SYSTEM_NAMESPACE = {"kubernetes.io/metadata.name": "kube-system"}

POD_IDENTITY_AGENT = "169.254.170.23/32"
POD_IDENTITY_PORT = 80
"""On every node. https://docs.aws.amazon.com/eks/latest/userguide/pod-identities.html#pod-id-considerations"""

METRICS_PORTS = 8
"""As many as a worker can have processes: `gpusPerWorker` is 8 at most."""

OWN = {labels.NAME: labels.APPLICATION}

EVERYTHING: Manifest = {}
"""As a selector: all pods, or all namespaces."""


def policy(name: str, namespace: str, pods: Manifest, **rules: list[Manifest]) -> Manifest:
    """Return a NetworkPolicy for the pods that `pods` selects; `rules` are its lists `ingress` and `egress`."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, OWN, namespace=namespace),
        "spec": {"podSelector": pods, "policyTypes": [kind.capitalize() for kind in rules], **rules},
    }


def manifests(namespace: str, vpc_cidrs: Sequence[str], proxy: settings.Proxy | None = None) -> list[Manifest]:
    """Return the policies that open something."""
    through = [_proxy(proxy)] if proxy else []
    jobs = {"matchLabels": JOB_PODS}
    members = {"matchLabels": etcd.LABELS}
    not_etcd = {"matchExpressions": [{"key": labels.COMPONENT, "operator": "NotIn", "values": [labels.COMPONENT_ETCD]}]}
    # Workers reach each other on any port: the system chooses those of gloo, NCCL and the trainer.
    each_other = [{"podSelector": jobs}]
    return [
        policy("dns", namespace, EVERYTHING, egress=[_names()]),
        policy("aws", namespace, not_etcd, egress=[_https(), _credentials(), *through]),
        policy(
            "jobs",
            namespace,
            jobs,
            ingress=[{"from": each_other}, _scrapes(vpc_cidrs)],
            egress=[{"to": each_other}, _to_pods(members, etcd.CLIENT_PORT)],
        ),
        policy(
            "etcd-peers",
            namespace,
            members,
            egress=[_to_pods(members, etcd.PEER_PORT), _to_pods(members, etcd.CLIENT_PORT)],
        ),
    ]


def default_deny(namespace: str) -> Manifest:
    """Return the policy that isolates every pod of the namespace, in both directions."""
    return policy("default-deny", namespace, EVERYTHING, ingress=[], egress=[])


def _names() -> Manifest:
    peer = {"namespaceSelector": {"matchLabels": SYSTEM_NAMESPACE}, "podSelector": {"matchLabels": DNS_PODS}}
    return {"to": [peer], "ports": [{"protocol": protocol, "port": DNS_PORT} for protocol in ("UDP", "TCP")]}


def _https() -> Manifest:
    """S3 and what the user's script loads: neither has addresses that a policy could name."""
    return {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"protocol": "TCP", "port": HTTPS_PORT}]}


def _credentials() -> Manifest:
    """Credentials of the pod's own role. Those of the node, at 169.254.169.254:80, stay closed."""
    ports = [{"protocol": "TCP", "port": POD_IDENTITY_PORT}]
    return {"to": [{"ipBlock": {"cidr": POD_IDENTITY_AGENT}}], "ports": ports}


def _proxy(proxy: settings.Proxy) -> Manifest:
    """The HTTP proxy; if that has a name, its port on every address, since a policy has no names."""
    try:
        cidr = str(ipaddress.IPv4Network(proxy.host))
    except ValueError:
        cidr = "0.0.0.0/0"
    return {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [{"protocol": "TCP", "port": proxy.port}]}


def _scrapes(vpc_cidrs: Sequence[str]) -> Manifest:
    """Metrics, for Prometheus in the cluster, a collector in the VPC, and the API server, through which `tidewater top`
    reads them: its addresses are in the VPC's subnets."""
    last = metrics.FIRST_PORT + METRICS_PORTS - 1
    return {
        "from": [{"namespaceSelector": EVERYTHING}, *({"ipBlock": {"cidr": cidr}} for cidr in vpc_cidrs)],
        "ports": [{"protocol": "TCP", "port": metrics.FIRST_PORT, "endPort": last}],
    }


def _to_pods(pods: Manifest, port: int) -> Manifest:
    return {"to": [{"podSelector": pods}], "ports": [{"protocol": "TCP", "port": port}]}


@dataclass(frozen=True)
class NetworkPoliciesArgs:
    """The VPC's ranges, and the proxy through which pods reach the internet, if there is one."""

    vpc_cidrs: Sequence[str]
    proxy: settings.Proxy | None = None


class NetworkPolicies(pulumi.ComponentResource):
    """The policies of the namespace that the component is named after.

    Pods depend on it, so that they never run without their policies. What is denied is denied last, and allowed again
    first on the way down: a stack that already trains goes on meanwhile.
    """

    def __init__(self, name: str, args: NetworkPoliciesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:NetworkPolicies", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        opened = [objects.register(each, opts=child) for each in manifests(name, args.vpc_cidrs, args.proxy)]
        last = pulumi.ResourceOptions(parent=self, depends_on=opened)
        objects.register(default_deny(name), opts=last)
        self.register_outputs({})
