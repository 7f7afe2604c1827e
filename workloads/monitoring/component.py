"""Prometheus and what it reads, as Pulumi resources."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from tidewater.contract import devices, labels, metrics
from workloads import objects
from workloads.manifests import Manifest, environment, gpu_nodes, metadata
from workloads.monitoring import server
from workloads.monitoring.scrape import GPU_EXPORTER, Parts
from workloads.namespace import pull_secret, with_credentials

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


def parts(stack: settings.Settings) -> Parts:
    """Return what there is to measure in a stack."""
    return Parts(gpus=stack.has_gpus, karpenter=stack.surge is not None)


@dataclass(frozen=True)
class MonitoringArgs:
    """The stack, and who reads its metrics."""

    stack: settings.Settings
    wanted: settings.Monitoring


class Monitoring(pulumi.ComponentResource):
    """What reads the metrics on the cluster, what measures GPUs, and the dashboard.

    Nothing depends on it: training goes on without. With GPUs it needs the namespace of the GPUs' device plug-in.
    """

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Monitoring", name, None, opts)
        self._stack, self._wanted = args.stack, args.wanted
        space = self._register(server.namespace_manifest())
        after = pulumi.ResourceOptions(parent=self, depends_on=[space])
        pull_secret(metrics.NAMESPACE, args.stack.training.pull_secret, after)
        self._register(server.dashboard_manifest(parts(args.stack)), space)
        if args.stack.has_gpus:
            self._register(exporter_manifest(args.wanted.gpu_exporter, gpu_nodes(args.stack)))
        if args.wanted.managed:
            source = server.addresses_source(args.stack.network.cidrs)
        else:
            source = server.pods_source()
            self._server(space)
        self._register(server.etcd_policy_manifest(args.stack.training.namespace, source))
        self.register_outputs({})

    def _server(self, space: pulumi.Resource) -> None:
        content = server.configuration_manifest(server.files(parts(self._stack)))
        before = [self._register(each, space) for each in [*server.access_manifests(), content]]
        deployment = server.deployment_manifest(self._wanted.image, content["metadata"]["name"])
        pods = self._register(deployment, *before)
        # Pulumi waits until a Service has a ready pod.
        self._register(server.service_manifest(), pods)

    def _register(self, manifest: Manifest, *after: pulumi.Resource) -> pulumi.Resource:
        wanted = with_credentials(manifest, self._stack.training.pull_secret)
        return objects.register(wanted, opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)))


def exporter_manifest(image: str, nodes: Manifest) -> Manifest:
    """Return the DaemonSet on these nodes, in the namespace that accepts pods with privileges.

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
                    **nodes,
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
