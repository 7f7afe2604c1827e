"""EFA's device plug-in, which gives a worker its node's Elastic Fabric Adapters.

    EfaPlugin("efa-plugin", EfaPluginArgs(image, efa_nodes(stack), pull_secret), platform.options(namespace))

The nodes of the core have the adapters by their launch template. Karpenter adds them to the nodes of pods that ask for
them. https://docs.aws.amazon.com/eks/latest/userguide/device-management-efa.html
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pulumi

import settings
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import Manifest, metadata, on_nodes
from workloads.namespace import with_credentials

EFA_RESOURCE = "vpc.amazonaws.com/efa"

NAME = "aws-efa-k8s-device-plugin"


def efa_nodes(stack: settings.Settings) -> Manifest:
    """Return what has a pod run on the worker nodes, and on those of pools that can have adapters."""
    # Karpenter brings the type with adapters to a pod that asks for some, also where the pool has others without.
    return on_nodes(workers=True, pools=[pool.name for pool in stack.pools if any(kind.efa for kind in pool.hardware)])


def plugin_manifest(image: str, nodes: Manifest) -> Manifest:
    """Return the DaemonSet, on these nodes only, as EKS's chart `aws-efa-k8s-device-plugin` makes it.

    It uses the kubelet's socket and looks at the adapters, so it runs as root with two host paths.
    """
    own = {labels.NAME: NAME}
    paths = {"device-plugins": "/var/lib/kubelet/device-plugins", "infiniband": "/dev/infiniband"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(NAME, own, namespace="kube-system"),
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "hostNetwork": True,
                    **nodes,
                    "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                    "containers": [
                        {
                            "name": "device-plugin",
                            "image": image,
                            "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"memory": "128Mi"}},
                            "securityContext": {
                                "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"]},
                            },
                            "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()],
                        }
                    ],
                    "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()],
                },
            },
        },
    }


@dataclass(frozen=True)
class EfaPluginArgs:
    """The plug-in's image, where it runs, and Docker's configuration with the credentials of registries."""

    image: str
    nodes: Manifest
    pull_secret: str = field(repr=False)


class EfaPlugin(pulumi.ComponentResource):
    """The DaemonSet. It waits for nodes that have adapters."""

    def __init__(self, name: str, args: EfaPluginArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:EfaPlugin", name, None, opts)
        pods = with_credentials(plugin_manifest(args.image, args.nodes), args.pull_secret)
        objects.register(pods, opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})
