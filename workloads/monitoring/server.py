"""Prometheus on the cluster: one pod on a system node, which reads, keeps and judges the metrics.

Its data is on the node's disk and lasts as long as the pod: a new configuration, or another node, begins anew. The
shared file system is no place for it (https://prometheus.io/docs/prometheus/latest/storage/#operational-aspects: "NFS
filesystems (including AWS's EFS) are not supported"). With `monitoring: managed` Amazon keeps the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidewater.contract import labels
from tidewater.contract.metrics import NAMESPACE
from tidewater.contract.pod_defaults import RESTRICTED_NAMESPACE, lost_node_tolerations
from workloads.etcd import manifests as etcd
from workloads.manifests import CONFINED, SYSTEM_NODES, Manifest, empty_volume, metadata
from workloads.monitoring import alerts, dashboard, scrape

NAME = "prometheus"
PORT = 9090
USER = 65534
"""The user `nobody`, as which its image runs."""

RETENTION_DAYS = 15
RETENTION_GIB = 8
"""A worker has about 100 series, and a sample takes 1 to 2 bytes: room for hundreds of workers."""

DASHBOARD = "tidewater-dashboard"
DASHBOARD_LABEL = {"grafana_dashboard": "1"}
"""The label with which the Grafana of Helm's charts finds dashboards (its value `sidecar.dashboards.label`).
https://github.com/grafana-community/helm-charts/tree/main/charts/grafana#sidecar-for-dashboards"""

LABELS = {labels.NAME: labels.APPLICATION, labels.INSTANCE: NAME, labels.COMPONENT: NAME}

RULES: tuple[Manifest, ...] = (
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    # The kubelet asks for this one before it shows its metrics. `nodes/proxy` would also let it run commands in pods.
    {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
)
"""What Prometheus may do: find pods and nodes, and read the kubelets' metrics."""


@dataclass(frozen=True)
class Source:
    """Who may reach etcd's metrics: pods of a namespace, or addresses."""

    peers: tuple[Manifest, ...]


def address() -> str:
    """Return the URL at which Grafana in the cluster reaches Prometheus."""
    return f"http://{NAME}.{NAMESPACE}.svc:{PORT}"


def namespace_manifest() -> Manifest:
    """Return Prometheus' namespace, which accepts only pods without privileges."""
    own = {labels.NAME: labels.APPLICATION, **RESTRICTED_NAMESPACE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(NAMESPACE, own)}


def access_manifests() -> list[Manifest]:
    """Return the service account and its rights."""
    group = "rbac.authorization.k8s.io"
    name = NAMESPACE  # of the objects that belong to no namespace
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(NAME, LABELS, namespace=NAMESPACE),
            "automountServiceAccountToken": False,  # the pod mounts its own
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": metadata(name, LABELS),
            "rules": list(RULES),
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata(name, LABELS),
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    ]


def files(parts: scrape.Parts) -> dict[str, str]:
    """Return Prometheus' configuration and rules. JSON is YAML."""
    configuration = scrape.configuration(parts, scrape.SELF)
    configuration["global"]["evaluation_interval"] = configuration["global"]["scrape_interval"]
    configuration["rule_files"] = ["rules.yml"]
    return {"prometheus.yml": _text(configuration), "rules.yml": _text(alerts.rules(parts))}


def files_for_amazon(parts: scrape.Parts) -> tuple[str, str]:
    """Return the configuration of Amazon's collector, and the rules."""
    return _text(scrape.configuration(parts, scrape.AMAZON)), _text(alerts.rules(parts))


def configuration_manifest(content: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap. Its name changes with the content, so that another content makes another pod."""
    digest = hashlib.sha256(_text(content).encode()).hexdigest()[:8]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(f"{NAME}-{digest}", LABELS, namespace=NAMESPACE),
        "data": dict(content),
    }


def dashboard_manifest(parts: scrape.Parts) -> Manifest:
    """Return the ConfigMap of the dashboard, which a Grafana on the cluster finds by its label."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(DASHBOARD, {**LABELS, **DASHBOARD_LABEL}, namespace=NAMESPACE),
        "data": {f"{dashboard.UID}.json": dashboard.to_json(dashboard.dashboard(parts))},
    }


def service_manifest() -> Manifest:
    """Return the service at which Grafana and people reach Prometheus."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(NAME, LABELS, namespace=NAMESPACE),
        "spec": {
            "type": "ClusterIP",
            "selector": LABELS,
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }


def etcd_policy_manifest(namespace: str, source: Source) -> Manifest:
    """Open etcd's metrics, and nothing else of it, to who reads them."""
    rule = {"from": list(source.peers), "ports": [{"protocol": "TCP", "port": etcd.METRICS_PORT}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata("etcd-metrics", LABELS, namespace=namespace),
        "spec": {"podSelector": {"matchLabels": etcd.LABELS}, "policyTypes": ["Ingress"], "ingress": [rule]},
    }


def pods_source() -> Source:
    """Return the stack's own Prometheus."""
    space = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    return Source(({"namespaceSelector": space, "podSelector": {"matchLabels": LABELS}},))


def addresses_source(cidrs: Sequence[str]) -> Source:
    """Return ranges of addresses: Amazon's collector has network interfaces in the VPC's subnets."""
    return Source(tuple({"ipBlock": {"cidr": cidr}} for cidr in cidrs))


def deployment_manifest(image: str, configuration: str) -> Manifest:
    """Return the Deployment; `configuration` is the name of its ConfigMap."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, LABELS, namespace=NAMESPACE),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "serviceAccountName": NAME,
                    "automountServiceAccountToken": True,
                    "enableServiceLinks": False,
                    "nodeSelector": SYSTEM_NODES,
                    "tolerations": lost_node_tolerations(),
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": USER,
                        "runAsGroup": USER,
                        "fsGroup": USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(image)],
                    "volumes": [
                        {"name": "configuration", "configMap": {"name": configuration}},
                        {"name": "data", "emptyDir": {"sizeLimit": f"{RETENTION_GIB + 2}Gi"}},
                        empty_volume("scratch"),
                    ],
                },
            },
        },
    }


def _container(image: str) -> Manifest:
    ready = {"httpGet": {"path": "/-/ready", "port": "http"}, "periodSeconds": 1, "failureThreshold": 5}
    alive = {"httpGet": {"path": "/-/healthy", "port": "http"}, "periodSeconds": 10, "failureThreshold": 6}
    return {
        "name": NAME,
        "image": image,
        # Prometheus 2 and 3 both know these.
        "args": [
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            f"--storage.tsdb.retention.time={RETENTION_DAYS}d",
            f"--storage.tsdb.retention.size={RETENTION_GIB}GB",
            f"--web.listen-address=:{PORT}",
        ],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": ready,
        "livenessProbe": {**alive, "initialDelaySeconds": 30},
        "resources": {"requests": {"cpu": "100m", "memory": "384Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": CONFINED,
        "volumeMounts": [
            {"name": "configuration", "mountPath": "/etc/prometheus", "readOnly": True},
            {"name": "data", "mountPath": "/prometheus"},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }


def _text(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"
