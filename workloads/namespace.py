"""The namespace, its priority classes and the device plug-in that shows GPUs to Kubernetes."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from contract import labels
from infra.outputs import ClusterOutputs
from workloads import objects
from workloads.manifests import WORKER_NODES, Manifest, metadata

DEVICE_PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True)
class PriorityClasses:
    """Names of the stack's priority classes; they are not namespaced, so the namespace is part of the name."""

    namespace: str

    @property
    def etcd(self) -> str:
        """For etcd's members."""
        return f"{self.namespace}-etcd"

    @property
    def core(self) -> str:
        """For workers up to the minimum."""
        return f"{self.namespace}-core"

    @property
    def surge(self) -> str:
        """For workers above the minimum."""
        return f"{self.namespace}-surge"

    def values(self) -> dict[str, tuple[int, str]]:
        """Value and description of each, by name."""
        return {
            self.etcd: (1_000_000, "The workers' rendezvous: training stops without it"),
            self.core: (10_000, "Workers up to the job's minimum"),
            self.surge: (1_000, "Workers above the job's minimum, the first to go"),
        }


def namespace_manifest(name: str) -> Manifest:
    """A namespace that takes only pods without privileges."""
    enforced = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION, **enforced}),
    }


def priority_class_manifest(name: str, value: int, description: str) -> Manifest:
    """One priority class; the lower never pushes anything off a node that isn't lower still."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(name, {labels.NAME: labels.APPLICATION}),
        "value": value,
        "description": description,
    }


def device_plugin_manifest() -> Manifest:
    """NVIDIA's device plug-in, on the worker nodes only.

    https://github.com/NVIDIA/k8s-device-plugin: it needs the kubelet's socket, hence root and a host path.
    """
    own = {labels.NAME: "nvidia-device-plugin"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata("nvidia-device-plugin", own, namespace="kube-system"),
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": WORKER_NODES,
                    "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [
                        {
                            "name": "device-plugin",
                            "image": DEVICE_PLUGIN_IMAGE,
                            "env": [{"name": "FAIL_ON_INIT_ERROR", "value": "true"}],
                            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [{"name": "plugins", "mountPath": "/var/lib/kubelet/device-plugins"}],
                        }
                    ],
                    "volumes": [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
                },
            },
        },
    }


class Namespace(pulumi.ComponentResource):
    """The namespace and what belongs to the cluster as a whole."""

    priorities: PriorityClasses

    def __init__(self, stack: settings.Settings, cluster: ClusterOutputs) -> None:
        name = stack.training.namespace
        super().__init__("tidewater:workloads:Namespace", name, None, cluster.options())
        child = pulumi.ResourceOptions(parent=self)
        objects.register(namespace_manifest(name), opts=child)
        self.priorities = PriorityClasses(name)
        for class_name, (value, description) in self.priorities.values().items():
            objects.register(priority_class_manifest(class_name, value, description), opts=child)
        if stack.workers.gpus:
            objects.register(device_plugin_manifest(), opts=child)
        self.register_outputs({})
