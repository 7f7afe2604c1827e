"""Which pods' and nodes' metrics Prometheus reads, and the labels that their series get.

    configuration(Parts(gpus=True), SELF)       # the content of prometheus.yml, without rules

Targets are found through the API server, so workers and nodes that come and go need no configuration. Series of workers
have the labels `namespace`, `elasticjob`, `pod` and `node`; those of nodes have `node` and `role`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidewater.contract import devices, labels
from tidewater.elasticjob import names
from tidewater.elasticjob.install.pods import NAMESPACE as CONTROLLER_NAMESPACE

Config = dict[str, Any]

WORKERS = "workers"
CONTROLLER = "controller"
ETCD = "etcd"
NODES = "nodes"
KARPENTER = "karpenter"
GPUS = "gpus"
"""Values of the label `job`, which in Prometheus names a group of targets."""

GPU_EXPORTER = "dcgm-exporter"
"""Value of the label `app.kubernetes.io/name` of the pods that measure GPUs."""

_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
_AUTHORITY = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


@dataclass(frozen=True)
class Parts:
    """What there is to measure, in addition to the training, its control and the nodes."""

    gpus: bool = False
    karpenter: bool = False


@dataclass(frozen=True)
class Reader:
    """Who reads.

    Attributes:
        seconds: from one reading of a target to the next.
        node_address: where a node's metrics are, with `$1` for its name; empty: at the kubelet's own address.
        node_path: the path there.
    """

    seconds: int
    node_address: str
    node_path: str


SELF = Reader(10, "", "/metrics/resource")
"""A Prometheus on the cluster. It asks each kubelet, for which it needs `get` on `nodes/metrics` and nothing more.
https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/"""

AMAZON = Reader(30, "kubernetes.default.svc:443", "/api/v1/nodes/$1/proxy/metrics/resource")
"""Amazon's collector. It asks the API server, and the time between two readings is at least 30 s in its default
configuration. https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-collector-how-to.html"""


def configuration(parts: Parts, reader: Reader) -> Config:
    """Return the targets. https://prometheus.io/docs/prometheus/latest/configuration/configuration/"""
    found = [_workers(), _controller(), _etcd(), _nodes(reader)]
    if parts.karpenter:
        found.append(_karpenter())
    if parts.gpus:
        found.append(_gpus())
    return {"global": {"scrape_interval": f"{reader.seconds}s"}, "scrape_configs": found}


def _workers() -> Config:
    """Every process of every worker of an ElasticJob: they serve at the ports metrics, metrics-1, …"""
    ours = {names.LABEL_GROUP_NAME: re.escape(names.GROUP)}
    return _pods(WORKERS, ours, "metrics(-[0-9]+)?", {"elasticjob": names.LABEL_JOB_NAME})


def _controller() -> Config:
    ours = {labels.NAME: labels.APPLICATION, labels.COMPONENT: labels.COMPONENT_CONTROLLER}
    return _pods(CONTROLLER, ours, "metrics", namespace=CONTROLLER_NAMESPACE)


def _etcd() -> Config:
    ours = {labels.NAME: labels.APPLICATION, labels.COMPONENT: labels.COMPONENT_ETCD}
    return _pods(ETCD, ours, "metrics")


def _karpenter() -> Config:
    # The names are the chart's.
    return _pods(KARPENTER, {labels.NAME: "karpenter"}, "http-metrics", namespace="kube-system")


def _gpus() -> Config:
    found = _pods(GPUS, {labels.NAME: GPU_EXPORTER}, "metrics", namespace=devices.NAMESPACE)
    # The exporter's own labels `namespace`, `pod` and `container` name the pod that uses the GPU.
    kept = [rule for rule in found["relabel_configs"] if rule.get("target_label") not in ("namespace", "pod")]
    return {**found, "relabel_configs": kept}


def _pods(
    job: str, wanted: Mapping[str, str], port: str, extra: Mapping[str, str] | None = None, *, namespace: str = ""
) -> Config:
    """Return the targets of pods with these labels (patterns), at the ports with a name that matches `port`."""
    discovery: Config = {"role": "pod"}
    if namespace:
        discovery["namespaces"] = {"names": [namespace]}
    keep = [_keep(_pod_label(key), pattern) for key, pattern in wanted.items()]
    taken = {"namespace": "namespace", "pod": "pod_name", "node": "pod_node_name"}
    copied = [_copy(f"__meta_kubernetes_{source}", target) for target, source in taken.items()]
    copied += [_copy(_pod_label(key), target) for target, key in (extra or {}).items()]
    return {
        "job_name": job,
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [
            *keep,
            _keep("__meta_kubernetes_pod_container_port_name", port),
            # A pod that has ended keeps its address in its status.
            {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed"},
            *copied,
        ],
    }


def _nodes(reader: Reader) -> Config:
    """CPU and memory of nodes, pods and containers, as the kubelet measures them for its own decisions.

    https://kubernetes.io/docs/reference/instrumentation/node-metrics/
    """
    name = "__meta_kubernetes_node_name"
    rules = [_copy(name, "node"), _copy(_label("node", labels.NODE_ROLE), "role")]
    if reader.node_address:
        rules.append({"target_label": "__address__", "replacement": reader.node_address})
        path = {"source_labels": [name], "target_label": "__metrics_path__", "replacement": reader.node_path}
        rules.append(path)
        how: Config = {"metrics_path": "/metrics"}  # Amazon's collector knows the authority of the API server
    else:
        # EKS signs the kubelets' certificates with the cluster's own authority.
        how = {"metrics_path": reader.node_path, "tls_config": {"ca_file": _AUTHORITY}}
    return {
        "job_name": NODES,
        "scheme": "https",
        **how,
        "authorization": {"type": "Bearer", "credentials_file": _TOKEN},
        "kubernetes_sd_configs": [{"role": "node"}],
        "relabel_configs": rules,
    }


def _keep(source: str, pattern: str) -> Config:
    return {"action": "keep", "source_labels": [source], "regex": pattern}


def _copy(source: str, target: str) -> Config:
    return {"source_labels": [source], "target_label": target}


def _pod_label(key: str) -> str:
    return _label("pod", key)


def _label(kind: str, key: str) -> str:
    """Return Prometheus' name for a label of a Kubernetes object: other characters become underscores."""
    return f"__meta_kubernetes_{kind}_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}"
