"""The controller's Deployment, the ConfigMap with its program, and its disruption budget."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidewater.contract import labels
from tidewater.contract.controller_program import PACKAGES_DIRECTORY, Quota, quotas_text, size_text
from tidewater.contract.pod_defaults import confined, lost_node_tolerations
from tidewater.elasticjob.install.program import Program

Manifest = dict[str, Any]

IMAGE = "public.ecr.aws/docker/library/python:3.12.12-slim"
"""Any image with Python 3.11 or later. It needs pip and the package index, unless it has the packages."""

NAMESPACE = "tidewater-system"
USER = 65532
PROGRAM_DIRECTORY = "/program"
PROGRAM_FILE = "controller.zip"
PORT = 8080
"""Of health and metrics."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """How to install the controller."""

    program: Program
    namespace: str = NAMESPACE
    name: str = "tidewater-controller"
    """Of all its objects."""
    image: str = IMAGE
    replicas: int = 2
    node_selector: Mapping[str, str] = field(default_factory=dict)
    priority_class: str | None = None
    fixed_nodes: bool = False
    """Whether no program makes nodes for pods that wait."""
    taint_bad_nodes: bool = False
    """Whether it taints nodes on which devices fail; it then may change nodes."""
    namespaces: Sequence[str] = ()
    """Of the jobs that it serves; none for all."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """Of namespaces that lend each other what they leave."""
    worker_size: Mapping[str, str] = field(default_factory=dict)
    """What counts as one worker in a quota, in Kubernetes' quantities by resource; nothing: each worker counts once."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the pods."""
        return labels.component(labels.COMPONENT_CONTROLLER, instance=self.name)

    @property
    def program_map(self) -> str:
        """Name of the ConfigMap. It changes with the program, so that a change replaces the pods one by one."""
        return f"{self.name}-{self.program.digest[:8]}"

    def metadata(self, name: str) -> Manifest:
        """Return the `metadata` of an object in the controller's namespace."""
        return {"name": name, "namespace": self.namespace, "labels": self.labels}


def program_map(wanted: Installation) -> Manifest:
    """Return the ConfigMap with the program."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": wanted.metadata(wanted.program_map),
        "binaryData": {PROGRAM_FILE: base64.b64encode(wanted.program.zipped()).decode()},
    }


def disruption_budget(wanted: Installation) -> Manifest:
    """Let a drain evict one replica at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": wanted.metadata(wanted.name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": wanted.labels}},
    }


def deployment(wanted: Installation) -> Manifest:
    """Return the Deployment. A replica is ready when it leads and has read all objects, or knows who leads."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": wanted.metadata(wanted.name),
        "spec": {
            "replicas": wanted.replicas,
            "selector": {"matchLabels": wanted.labels},
            "template": {
                "metadata": {
                    "labels": wanted.labels,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/path": "/metrics",
                        "prometheus.io/port": str(PORT),
                    },
                },
                "spec": pod_spec(wanted),
            },
        },
    }


def pod_spec(wanted: Installation) -> Manifest:
    """Return the pod of a replica."""
    optional: Manifest = {}
    if wanted.node_selector:
        optional["nodeSelector"] = dict(wanted.node_selector)
    if wanted.priority_class:
        optional["priorityClassName"] = wanted.priority_class
    return {
        **optional,
        "serviceAccountName": wanted.name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": _apart(wanted)}},
        "tolerations": lost_node_tolerations(),
        "initContainers": [packages_container(wanted)],
        "containers": [container(wanted)],
        "volumes": [
            {"name": "program", "configMap": {"name": wanted.program_map}},
            {"name": "packages", "emptyDir": {}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }


def _apart(wanted: Installation) -> list[Manifest]:
    """Return preferences for replicas on different nodes, best in different zones; a single node must do too."""
    keys = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    return [
        {"weight": 50, "podAffinityTerm": {"labelSelector": {"matchLabels": wanted.labels}, "topologyKey": key}}
        for key in keys
    ]


def packages_container(wanted: Installation) -> Manifest:
    """Return the init container that installs the packages; it does nothing in an image that has them."""
    return {
        "name": "packages",
        "image": wanted.image,
        "command": ["python3", f"{PROGRAM_DIRECTORY}/{PROGRAM_FILE}", "install"],
        "env": _environment(),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": confined(),
        "volumeMounts": _mounts(packages_read_only=False),
    }


def container(wanted: Installation) -> Manifest:
    """Return the container of the controller."""

    def probe(path: str, **times: int) -> Manifest:
        return {"httpGet": {"path": path, "port": "metrics"}, "timeoutSeconds": 5, **times}

    chosen = {"--fixed-nodes": wanted.fixed_nodes, "--taint-bad-nodes": wanted.taint_bad_nodes}
    flags = [flag for flag, is_set in chosen.items() if is_set]
    flags += [f"--namespaces={','.join(wanted.namespaces)}"] if wanted.namespaces else []
    flags += [f"--quotas={quotas_text(wanted.quotas)}"] if wanted.quotas else []
    flags += [f"--worker-size={size_text(wanted.worker_size)}"] if wanted.quotas and wanted.worker_size else []
    return {
        "name": "controller",
        "image": wanted.image,
        "command": ["python3", f"{PROGRAM_DIRECTORY}/{PROGRAM_FILE}"],
        **({"args": flags} if flags else {}),
        "env": [
            *_environment(),
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "startupProbe": probe("/healthz", periodSeconds=1, failureThreshold=60),
        "livenessProbe": probe("/healthz", periodSeconds=10, failureThreshold=3),
        "readinessProbe": probe("/readyz", periodSeconds=2, failureThreshold=3),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": confined(),
        "volumeMounts": _mounts(packages_read_only=True),
    }


def _environment() -> list[Manifest]:
    return [{"name": "HOME", "value": "/tmp"}, {"name": "PYTHONUNBUFFERED", "value": "1"}]


def _mounts(*, packages_read_only: bool) -> list[Manifest]:
    return [
        {"name": "program", "mountPath": PROGRAM_DIRECTORY, "readOnly": True},
        {"name": "packages", "mountPath": PACKAGES_DIRECTORY, "readOnly": packages_read_only},
        {"name": "scratch", "mountPath": "/tmp"},
    ]
