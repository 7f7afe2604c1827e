"""The scaler's manifests: a Deployment that may read and patch one Job, and nothing else.

Its code is `controller/scale.py`. A ConfigMap mounts it into any image with Python.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pulumi

from contract import labels
from workloads import objects
from workloads.manifests import (
    CONFINED,
    NON_ROOT,
    SCRATCH_MOUNT,
    SYSTEM_NODES,
    Manifest,
    empty_volume,
    environment,
    metadata,
)


@dataclass(frozen=True)
class ScalerArgs:
    """Which job to keep at how many workers."""

    namespace: str
    job: str
    workers: int
    image: str
    code: str

    @property
    def name(self) -> str:
        """Name of all the scaler's objects."""
        return f"{self.job}-scaler"

    @property
    def code_map(self) -> str:
        """Name of the ConfigMap with the code. It changes with the code, so the pod is replaced."""
        return f"{self.name}-{hashlib.sha256(self.code.encode()).hexdigest()[:8]}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the scaler's pod."""
        return labels.component(labels.COMPONENT_SCALER, instance=self.job)


def manifests(args: ScalerArgs) -> list[Manifest]:
    """Return every object except the Deployment."""
    place = args.namespace
    rbac = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(args.name, args.labels, namespace=place),
            "automountServiceAccountToken": False,  # the pod mounts its own
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": metadata(args.name, args.labels, namespace=place),
            "rules": [
                {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [args.job], "verbs": ["get", "patch"]}
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(args.name, args.labels, namespace=place),
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": args.name},
            "subjects": [{"kind": "ServiceAccount", "name": args.name, "namespace": args.namespace}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(args.code_map, args.labels, namespace=place),
            "data": {"scale.py": args.code},
        },
    ]


def deployment_manifest(args: ScalerArgs) -> Manifest:
    """Return a Deployment of one pod. It is ready once the Job has its size, so Pulumi waits for that."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(args.name, args.labels, namespace=args.namespace),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # two pods with different numbers would undo each other's work
            "selector": {"matchLabels": args.labels},
            "template": {
                "metadata": {"labels": args.labels},
                "spec": {
                    "serviceAccountName": args.name,
                    "automountServiceAccountToken": True,
                    "nodeSelector": SYSTEM_NODES,
                    "securityContext": NON_ROOT,
                    "terminationGracePeriodSeconds": 5,
                    "containers": [_container(args)],
                    "volumes": [empty_volume("scratch"), {"name": "program", "configMap": {"name": args.code_map}}],
                },
            },
        },
    }


def _container(args: ScalerArgs) -> Manifest:
    return {
        "name": "scaler",
        "image": args.image,
        "command": [
            "python3",
            "/program/scale.py",
            f"--namespace={args.namespace}",
            f"--job={args.job}",
            f"--workers={args.workers}",
            "--ready-file=/tmp/ready",
        ],
        "env": environment({"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}),
        "readinessProbe": {"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": CONFINED,
        "volumeMounts": [SCRATCH_MOUNT, {"name": "program", "mountPath": "/program", "readOnly": True}],
    }


class Scaler(pulumi.ComponentResource):
    """The scaler. It is ready once the Job has its size."""

    def __init__(self, name: str, args: ScalerArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Scaler", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        around = [objects.register(manifest, opts=child) for manifest in manifests(args)]
        objects.register(deployment_manifest(args), opts=pulumi.ResourceOptions(parent=self, depends_on=list(around)))
        self.register_outputs({})
