"""DCGM exporter: on every worker node it serves what NVIDIA's DCGM measures of the GPUs.

https://github.com/NVIDIA/dcgm-exporter
"""

from __future__ import annotations

from tidewater.contract import devices, labels
from workloads.manifests import WORKER_NODES, Manifest, environment, metadata
from workloads.monitoring.scrape import GPU_EXPORTER

PORT = 9400
POD_RESOURCES = "/var/lib/kubelet/pod-resources"

SEES_GPUS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": False,
    "runAsUser": 0,
    "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
}
"""It requests no GPU, which a worker then would lack, and gets them all by the variable NVIDIA_VISIBLE_DEVICES of its
image. EKS' images from v20260423 on allow that only to privileged containers (awslabs/amazon-eks-ami#2706), which
NVIDIA's runtime takes for those with this capability (`IsPrivileged` in internal/config/image/privileged.go of
NVIDIA/nvidia-container-toolkit). DCGM needs it too, and root (NVIDIA/dcgm-exporter#165, #402)."""


def exporter_manifest(image: str) -> Manifest:
    """Return the DaemonSet, in the namespace that accepts pods with privileges.

    The kubelet tells it which pod uses which GPU. Pulumi doesn't wait until it runs everywhere: on nodes without a
    driver it never does, such as those of an earlier configuration. `workloads.devices.check` tells what is wrong with
    GPUs, and training needs no exporter.
    """
    own = {labels.NAME: GPU_EXPORTER}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(
            GPU_EXPORTER, own, namespace=devices.NAMESPACE, annotations={"pulumi.com/skipAwait": "true"}
        ),
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "nodeSelector": WORKER_NODES,
                    "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [_container(image)],
                    "volumes": [
                        {"name": "pod-resources", "hostPath": {"path": POD_RESOURCES}},
                        {"name": "scratch", "emptyDir": {}},
                    ],
                },
            },
        },
    }


def _container(image: str) -> Manifest:
    return {
        "name": GPU_EXPORTER,
        "image": image,
        "env": environment({"DCGM_EXPORTER_KUBERNETES": "true", "DCGM_EXPORTER_LISTEN": f":{PORT}"}),
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": SEES_GPUS,
        "volumeMounts": [
            {"name": "pod-resources", "mountPath": POD_RESOURCES, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }
