"""Pods, volumes and DaemonSets of the tests of a real cluster."""

from __future__ import annotations

from typing import Any

from packages.localcloud.tests.kube.harness import ACCESS_POINT, FILE_SYSTEM

GPU = "nvidia.com/gpu"
SERVE = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)"
FETCH = "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())"


def web_pod(name: str, node: str) -> dict[str, Any]:
    """Return a pod that serves the volume over HTTP."""
    container = {
        "name": "web",
        "image": "localcloud/shell:1",
        "command": ["python3", "-u", "-c", SERVE],
        "workingDir": "/data",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }


def volume() -> list[dict[str, Any]]:
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    csi = {"driver": "efs.csi.aws.com", "volumeHandle": f"{FILE_SYSTEM}::{ACCESS_POINT}"}
    claim = {**common, "volumeName": "data", "resources": {"requests": size}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "data"},
            "spec": {**common, "capacity": size, "csi": csi},
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim},
    ]


def service(name: str) -> dict[str, Any]:
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


INTRUDE = """
import json, os, pathlib, stat, sys
mark, paths = sys.argv[1], sys.argv[2:]
mounts = [pathlib.Path(f'/host/{number}') for number in range(len(paths))]
for mount in mounts:
    (mount / mark).write_text('written by a pod')
shared = pathlib.Path('/host/0/var/lib/containerd')
image = [next((shared / 'io.containerd.content.v1.content/blobs/sha256').iterdir())]
layer = shared / 'io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs'
image += [next(path for path in layer.rglob('*') if path.is_file())]
changed = []
for path in image:
    try:
        with path.open('ab') as file:
            file.write(mark.encode())
        changed.append(path.name)
    except OSError:
        pass
seen = [name for mount in (*mounts, pathlib.Path('/proc/1/root/root')) for name in os.listdir(mount)]
try:
    os.mknod('/tmp/disk', stat.S_IFBLK | 0o600, os.stat('/host/0/var').st_dev)
    made = True
except PermissionError:
    made = False
disks = [str(path) for path in pathlib.Path('/host/0/dev').iterdir() if path.is_block_device()]
print(json.dumps({'seen': seen, 'disks': disks, 'made': made, 'changed': changed}))
"""


def intruder(node: str, paths: list[str]) -> dict[str, Any]:
    """Return a privileged pod in its node's PID namespace that mounts these paths of the node."""
    names = [f"path-{number}" for number in range(len(paths))]
    container = {
        "name": "intruder",
        "image": "localcloud/shell:1",
        "command": ["sleep", "600"],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": name, "mountPath": f"/host/{number}"} for number, name in enumerate(names)],
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "hostPID": True,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in zip(names, paths, strict=True)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "intruder"}, "spec": spec}


def plugin(node: str, strategy: str = "cdi-cri", *, privileged: bool = True) -> dict[str, Any]:
    """Return the DaemonSet of the device plug-in, for one node.

    It is the one of NVIDIA's Helm chart for `deviceListStrategy: cdi-cri`, as the stack has it too.
    https://github.com/NVIDIA/k8s-device-plugin (deployments/helm/nvidia-device-plugin)
    """
    paths = {"plugins": "/var/lib/kubelet/device-plugins", "cdi": "/var/run/cdi", "driver-root": "/"}
    mounts = {**paths, "driver-root": "/driver-root"}
    container = {
        "name": "device-plugin",
        "image": "localcloud/k8s-device-plugin:0.20.0",
        "command": ["nvidia-device-plugin"],
        "env": [
            {"name": "DEVICE_LIST_STRATEGY", "value": strategy},
            {"name": "FAIL_ON_INIT_ERROR", "value": "true"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        ],
        "securityContext": {"privileged": privileged},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in paths.items()]
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": volumes,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "plugin", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "plugin"}},
            "template": {
                "metadata": {"labels": {"app": "plugin"}},
                "spec": {**pod, "terminationGracePeriodSeconds": 1},
            },
        },
    }


def worker(node: str, name: str, gpus: int, *, tolerates: bool = True, cpu: str = "100m") -> dict[str, Any]:
    """Return a pod for a node, without privileges, that shows its devices, with a limit of GPUs."""
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": "localcloud/shell:1",
        "command": ["sh", "-c", "ls /dev; sleep 600"],
        "resources": {"requests": {"cpu": cpu}, "limits": limits},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsUser": 1000},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"key": GPU, "operator": "Exists"}] if tolerates else [],
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
