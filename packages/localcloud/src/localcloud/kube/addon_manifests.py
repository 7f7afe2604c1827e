"""The Kubernetes objects of addons, as pure functions of their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localcloud.kube.control_plane_config import CLUSTER_DOMAIN, DNS_ADDRESS

NAMESPACE = "kube-system"
EFS, LUSTRE = "efs.csi.aws.com", "fsx.csi.aws.com"
CSI_DRIVERS = {"aws-efs-csi-driver": EFS, "aws-fsx-csi-driver": LUSTRE}
"""The names that the drivers of addons have in volumes."""
COREDNS_IMAGE = "localcloud/coredns:1.12.4"
COREDNS_REPLICAS = 2
DNS_LABELS = {"k8s-app": "kube-dns", "eks.amazonaws.com/component": "coredns"}

# Names outside the cluster don't exist on this machine: saying so at once saves every resolver its timeout.
COREFILE = f"""{CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health :8080
    ready :8181
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    prometheus :9153
    cache 5
    loadbalance
}}
.:53 {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def service_account(name: str) -> dict[str, Any]:
    """A service account of an addon."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


def csi_driver(name: str) -> dict[str, Any]:
    """A CSI driver's registration with the cluster."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"attachRequired": False},
    }


def coredns(configuration: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Everything of the coredns addon.

    Args:
        configuration: The addon's: `replicaCount`, `corefile`, `nodeSelector`, `tolerations` and `resources` count.
    """
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    subject = {"kind": "ServiceAccount", "name": "coredns", "namespace": NAMESPACE}
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    return [
        service_account("coredns"),
        {**rbac, "kind": "ClusterRole", "metadata": {"name": "system:coredns"}, "rules": rules},
        {
            **rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": role,
            "subjects": [subject],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "coredns", "namespace": NAMESPACE, "labels": DNS_LABELS},
            "data": {"Corefile": configuration.get("corefile", COREFILE)},
        },
        _dns_service(),
        _dns_deployment(configuration),
    ]


def _dns_service() -> dict[str, Any]:
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
        {"name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153},
    ]
    labels = {**DNS_LABELS, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": NAMESPACE, "labels": labels},
        "spec": {"selector": {"k8s-app": "kube-dns"}, "clusterIP": DNS_ADDRESS, "ports": ports},
    }


def _dns_deployment(configuration: Mapping[str, Any]) -> dict[str, Any]:
    spread = {
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        },
    }
    tolerations = [
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
    ]
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "nodeSelector": configuration.get("nodeSelector", {"kubernetes.io/os": "linux"}),
        "tolerations": configuration.get("tolerations", tolerations),
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [spread]}},
        "containers": [_dns_container(configuration)],
        "volumes": [
            {"name": "config", "configMap": {"name": "coredns", "items": [{"key": "Corefile", "path": "Corefile"}]}}
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": NAMESPACE, "labels": DNS_LABELS},
        "spec": {
            "replicas": configuration.get("replicaCount", COREDNS_REPLICAS),
            "selector": {"matchLabels": DNS_LABELS},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {"metadata": {"labels": DNS_LABELS}, "spec": pod},
        },
    }


def _dns_container(configuration: Mapping[str, Any]) -> dict[str, Any]:
    resources = {"limits": {"memory": "170Mi"}, "requests": {"cpu": "100m", "memory": "70Mi"}}
    ports = [
        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
    ]
    ready = {"path": "/ready", "port": 8181}
    healthy = {"path": "/health", "port": 8080}
    return {
        "name": "coredns",
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": ports,
        "resources": configuration.get("resources", resources),
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": ready, "periodSeconds": 1},
        "livenessProbe": {"httpGet": healthy, "initialDelaySeconds": 60, "timeoutSeconds": 5, "failureThreshold": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
