"""NVIDIA's device plug-in, which makes the GPUs of the worker nodes known to Kubernetes.

    plugin = DevicePlugin("gpus", DevicePluginArgs(image, gpu_nodes(stack), pull_secret), platform.options())

A pod gets GPUs by its resource limit only. The plug-in writes a CDI specification of the GPUs to the node, names the
allocated ones to the kubelet, and the container runtime adds their devices and the driver's libraries to the container.

EKS' AL2023 NVIDIA images from v20260423 on ignore NVIDIA_VISIBLE_DEVICES in containers without privileges, so what
other plug-in manifests rely on does not work there: an unprivileged plug-in sees no GPU itself, and with the strategy
`envvar` neither do the pods that it serves. https://github.com/awslabs/amazon-eks-ami/issues/2706
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pulumi

from tidewater.contract import devices, labels
from workloads import objects
from workloads.manifests import Manifest, environment, metadata
from workloads.namespace import pull_secret, with_credentials

NAME = "nvidia-device-plugin"

DRIVER_ROOT = "/driver-root"
"""Where the plug-in looks for the node's driver when it writes the CDI specification.
https://github.com/NVIDIA/k8s-device-plugin (templates/daemonset-device-plugin.yml of its Helm chart)"""

PLUGINS = "/var/lib/kubelet/device-plugins"
CDI = "/var/run/cdi"


def namespace_manifest() -> Manifest:
    """Return the plug-in's namespace: a namespace of restricted pods would refuse it."""
    privileged = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "warn", "audit")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata(devices.NAMESPACE, {labels.NAME: labels.APPLICATION, **privileged}),
    }


def plugin_manifest(image: str, nodes: Manifest) -> Manifest:
    """Return the plug-in's DaemonSet, on the worker nodes only.

    It tolerates every taint, since a node has to have its GPUs before other pods may come.

    Pulumi doesn't wait until it runs everywhere: nodes of an earlier configuration, without GPUs, may still be there,
    and on those it never does. `check` looks at the others, and says what is wrong.
    """
    own = {labels.NAME: NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(NAME, own, namespace=devices.NAMESPACE, annotations={"pulumi.com/skipAwait": "true"}),
        "spec": {
            "selector": {"matchLabels": own},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": own},
                "spec": {
                    "automountServiceAccountToken": False,
                    "priorityClassName": "system-node-critical",
                    **nodes,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [_container(image)],
                    "volumes": [
                        _host_path("plugins", PLUGINS, "Directory"),
                        _host_path("cdi", CDI, "DirectoryOrCreate"),
                        _host_path("driver-root", "/", "Directory"),
                    ],
                },
            },
        },
    }


def _container(image: str) -> Manifest:
    settings = {
        "DEVICE_LIST_STRATEGY": "cdi-cri",
        "NVIDIA_DRIVER_ROOT": "/",
        # A plug-in that finds no driver ends, and Kubernetes shows that. By itself it would wait for ever.
        "FAIL_ON_INIT_ERROR": "true",
        # The node's container runtime gives the driver to the plug-in itself by these; it has the privileges for it.
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    return {
        "name": "device-plugin",
        "image": image,
        "command": ["nvidia-device-plugin"],
        "env": environment(settings),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "plugins", "mountPath": PLUGINS},
            {"name": "cdi", "mountPath": CDI},
            {"name": "driver-root", "mountPath": DRIVER_ROOT, "readOnly": True},
        ],
    }


def _host_path(name: str, path: str, kind: str) -> Manifest:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


@dataclass(frozen=True)
class DevicePluginArgs:
    """The plug-in's image, where it runs, and Docker's configuration with the credentials of registries."""

    image: str
    nodes: Manifest
    pull_secret: str = field(repr=False)


class DevicePlugin(pulumi.ComponentResource):
    """The namespace and the plug-in."""

    def __init__(self, name: str, args: DevicePluginArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:DevicePlugin", name, None, opts)
        space = objects.register(namespace_manifest(), opts=pulumi.ResourceOptions(parent=self))
        pull_secret(devices.NAMESPACE, args.pull_secret, pulumi.ResourceOptions(parent=self, depends_on=[space]))
        pods = with_credentials(plugin_manifest(args.image, args.nodes), args.pull_secret)
        objects.register(pods, opts=pulumi.ResourceOptions(parent=self, depends_on=[space]))
        self.register_outputs({})
