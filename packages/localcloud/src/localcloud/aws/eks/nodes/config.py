"""A node's configuration, about its cluster and itself: the NodeConfig of AL2023's nodeadm, as a value.

    config = NodeConfig("demo", flags=("--node-labels=role=worker",))
    labels(config)      # {"role": "worker"}

EKS writes one for the nodes of a node group; the user data of other instances has one (see `user_data`).
https://github.com/awslabs/amazon-eks-ami/blob/main/nodeadm/api/v1alpha1/nodeconfig_types.go
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from localcloud.aws.eks.model import Json

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

# kubelet doesn't start with other labels of these domains.
# https://github.com/kubernetes/kubernetes/blob/v1.34.4/staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go
KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
KUBELET_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)


class BadNodeConfig(Exception):
    """The NodeConfig or the user data around it is wrong; the message says what."""


@dataclass(frozen=True)
class NodeConfig:
    """A NodeConfig.

    Args:
        cluster: The cluster's name.
        endpoint: The URL of its API server.
        ca_pem: The certificate of its authority.
        cidr: The range of its services.
        kubelet: Fields of KubeletConfiguration.
        flags: Arguments of kubelet.
        named_by_instance_id: The node's name is the instance's id instead of its private DNS name.
    """

    cluster: str = ""
    endpoint: str = ""
    ca_pem: str = ""
    cidr: str = ""
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    named_by_instance_id: bool = False

    def merged(self, later: NodeConfig) -> NodeConfig:
        """Return this configuration with a later one merged into it, as nodeadm merges several of one instance.

        What the later one sets is taken from it; kubelet's fields are merged, and its flags are appended.
        https://github.com/awslabs/amazon-eks-ami/blob/main/nodeadm/internal/api/merge.go
        """
        return NodeConfig(
            cluster=later.cluster or self.cluster,
            endpoint=later.endpoint or self.endpoint,
            ca_pem=later.ca_pem or self.ca_pem,
            cidr=later.cidr or self.cidr,
            kubelet=_deep(self.kubelet, later.kubelet),
            flags=(*self.flags, *later.flags),
            named_by_instance_id=later.named_by_instance_id or self.named_by_instance_id,
        )


def check(config: NodeConfig) -> None:
    """Raise BadNodeConfig if nodeadm or kubelet would refuse the configuration.

    https://github.com/awslabs/amazon-eks-ami/blob/main/nodeadm/internal/api/validation.go
    """
    required = {
        "name": config.cluster,
        "apiServerEndpoint": config.endpoint,
        "certificateAuthority": config.ca_pem,
        "cidr": config.cidr,
    }
    missing = [f"spec.cluster.{name}" for name, value in required.items() if not value]
    if missing:
        raise BadNodeConfig(f"its NodeConfig has no {', '.join(missing)}")
    for key, value in labels(config).items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise BadNodeConfig(f"{key}={value} is no label")
        if not _kubelet_may_set(key):
            raise BadNodeConfig(
                f"kubelet may not set the label {key}: of the namespaces kubernetes.io and k8s.io, it may set those "
                f"of {' and '.join(KUBELET_NAMESPACES)} and a few others"
            )
    taints(config)
    kubelet_options(config)


def labels(config: NodeConfig) -> dict[str, str]:
    """Return the labels of all `--node-labels`; of several values of a label, the last one."""
    found: dict[str, str] = {}
    for name, value in _flags(config):
        if name == "node-labels":
            found |= _pairs(name, value)
    return found


def taints(config: NodeConfig) -> list[Json]:
    """Return the taints in the form of Kubernetes: of the last `--register-with-taints`, else of kubelet's fields."""
    flags = [value for name, value in _flags(config) if name == "register-with-taints"]
    if flags:
        return [_taint(each) for each in flags[-1].split(",") if each]
    given = config.kubelet.get("registerWithTaints") or []
    if not isinstance(given, list) or not all(isinstance(each, dict) and each.get("key") for each in given):
        raise BadNodeConfig(f"registerWithTaints: {given!r} is no list of taints with a key")
    return [_made(str(each["key"]), str(each.get("value") or ""), str(each.get("effect") or "")) for each in given]


def kubelet_options(config: NodeConfig) -> dict[str, Any]:
    """Return the fields of KubeletConfiguration, those of flags included; kubelet prefers its flags.

    The address of the cluster's DNS follows from the range of its services, unless it is given.
    """
    options: dict[str, Any] = {"clusterDNS": [cluster_dns(config.cidr)], **config.kubelet}
    options.pop("registerWithTaints", None)
    for name, value in _flags(config):
        if name in FIELDS:
            key, parse = FIELDS[name]
            try:
                options[key] = parse(name, value)
            except ValueError as error:
                raise BadNodeConfig(f"--{name}: {value!r} is no number") from error
    return options


def unknown_flags(config: NodeConfig) -> list[str]:
    """Return the flags that have no effect on this cloud."""
    known = {"node-labels", "register-with-taints", *FIELDS}
    return sorted({f"--{name}" for name, _ in _flags(config)} - {f"--{name}" for name in known})


def cluster_dns(cidr: str) -> str:
    """Return the address of the cluster's DNS: the tenth of the services' range.

    https://github.com/awslabs/amazon-eks-ami/blob/main/nodeadm/internal/api/net.go
    """
    try:
        return str(ipaddress.IPv4Network(cidr, strict=False).network_address + 10)
    except ValueError as error:
        raise BadNodeConfig(f"spec.cluster.cidr: {cidr!r} is no range of IPv4 addresses") from error


def _flags(config: NodeConfig) -> Iterator[tuple[str, str]]:
    """Yield names and values.

    nodeadm joins the flags with spaces, so `--name value` can be one element or two. systemd splits them again, and
    removes quotes, as Karpenter puts them around labels.
    https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Command%20lines
    """
    try:
        words = shlex.split(" ".join(config.flags))
    except ValueError as error:
        raise BadNodeConfig(f"spec.kubelet.flags: {error}") from error
    for word, following in zip(words, [*words[1:], "-"], strict=False):
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            yield name, value if equals else ("" if following.startswith("-") else following)


def _pairs(name: str, text: str) -> dict[str, str]:
    found = {}
    for each in filter(None, text.split(",")):
        key, equals, value = each.partition("=")
        if not equals:
            raise BadNodeConfig(f"--{name}: {each!r} must have the form key=value")
        found[key.strip()] = value.strip()
    return found


def _number(_: str, text: str) -> int:
    return int(text)


def _text(_: str, text: str) -> str:
    return text


def _list(_: str, text: str) -> list[str]:
    return text.split(",")


def _verbosity(_: str, text: str) -> dict[str, int]:
    return {"verbosity": int(text)}


# Flag → the field of KubeletConfiguration with the same meaning, and how its value is read.
FIELDS: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "max-pods": ("maxPods", _number),
    "pods-per-core": ("podsPerCore", _number),
    "pod-max-pids": ("podPidsLimit", _number),
    "cluster-dns": ("clusterDNS", _list),
    "cluster-domain": ("clusterDomain", _text),
    "cpu-manager-policy": ("cpuManagerPolicy", _text),
    "topology-manager-policy": ("topologyManagerPolicy", _text),
    "kube-reserved": ("kubeReserved", _pairs),
    "v": ("logging", _verbosity),
}


def _taint(text: str) -> Json:
    """Read `key=value:effect` or `key:effect`."""
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return _made(key, value, effect)


def _made(key: str, value: str, effect: str) -> Json:
    if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value) or effect not in EFFECTS:
        raise BadNodeConfig(f"{key}={value}:{effect} is no taint: its effect must be one of {', '.join(EFFECTS)}")
    return {"key": key, "value": value, "effect": effect}


def _kubelet_may_set(key: str) -> bool:
    namespace = key.rpartition("/")[0]
    if not any(_within(namespace, domain) for domain in KUBERNETES_DOMAINS) or key in KUBELET_LABELS:
        return True
    return any(_within(namespace, allowed) for allowed in KUBELET_NAMESPACES)


def _within(name: str, domain: str) -> bool:
    return name == domain or name.endswith(f".{domain}")


def _deep(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _deep(made[key], value) if both else value
    return made
