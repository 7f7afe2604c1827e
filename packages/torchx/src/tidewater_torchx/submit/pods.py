"""A role as the pod template of a replica type. Pure.

    pod_template(role, Pod(labels, annotations, rank0="app-worker-0"), options, facts)

The fields are those of TorchX's own Kubernetes scheduler: requests are the limits without a reserve, `/dev/shm` is as
large as the memory, a device makes the container privileged, the Istio sidecar stays away. In the namespace of a stack
the pods also get what it takes to run on the stack's worker nodes, without privileges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchx.specs import BindMount, DeviceMount, Resource, Role, VolumeMount
from torchx.specs.named_resources_aws import EFA_DEVICE

from tidewater.contract import devices, labels, stack
from tidewater.contract.code import Shipped
from tidewater.contract.pod_defaults import confined
from tidewater.contract.stack import Facts
from tidewater.elasticjob import names
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.roles import IMAGE, RANK0_HOST, REPLICA_ID

Manifest = dict[str, Any]

LABEL_REPLICA_ID = "torchx.pytorch.org/replica-id"
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ANNOTATION_ISTIO_SIDECAR = "sidecar.istio.io/inject"

FIELD_PATH = "[FIELD_PATH]"
"""Before a variable's value: what follows is the path of a field of the pod, as of Kubernetes' downward API."""

SHARED_MEMORY = "dshm"

_NOBODY = {"HOME": "/tmp", "USER": "tidewater"}
"""Variables of pods that run as a user that the image doesn't know: libraries ask for both."""

_PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Pod:
    """What a template has in addition to its role.

    Attributes:
        labels: of the pods.
        rank0: the name of the pod of replica 0 of the first role.
        code: how the workspace comes into the container; None without one.
        working_directory: of the container; empty: the image's.
    """

    labels: Mapping[str, str]
    rank0: str
    code: Shipped | None = None
    working_directory: str = ""


def pod_template(role: Role, pod: Pod, options: Options, facts: Facts | None) -> Manifest:
    """Return the template of a role that has its macros filled in.

    Raises:
        Refused: a mount or a port of the role can't be of a pod.
    """
    volumes, mounts = _shared_memory()
    for index, mount in enumerate(role.mounts):
        volume, place = _mounted(f"mount-{index}", mount, role.name)
        volumes.append(volume)
        mounts.append(place)
    if pod.code is not None:
        volumes += pod.code.volumes
        mounts += pod.code.mounts
    spec: Manifest = {
        **_placed(role.resource, facts),
        **_identity(options, facts),
        **({"initContainers": pod.code.init_containers} if pod.code else {}),
        "containers": [_container(role, pod, options, mounts, facts)],
        "volumes": volumes,
    }
    metadata = {"labels": dict(pod.labels), "annotations": {ANNOTATION_ISTIO_SIDECAR: "false"}}
    return {"metadata": metadata, "spec": spec}


def resources(resource: Resource, options: Options) -> Manifest:
    """Return limits, and requests that leave what a node needs for itself."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    if resource.cpu > 0:
        millicpu = int(resource.cpu * 1000)
        limits["cpu"] = f"{millicpu}m"
        requests["cpu"] = f"{max(millicpu - options.reserved_millicpu, 0)}m"
    if resource.memMB > 0:
        limits["memory"] = f"{int(resource.memMB)}M"
        requests["memory"] = f"{max(int(resource.memMB) - options.reserved_memmb, 0)}M"
    if resource.gpu > 0:
        limits[devices.GPU] = requests[devices.GPU] = str(resource.gpu)
    limits |= {name: str(count) for name, count in resource.devices.items()}
    if options.efa_device_count is not None:
        limits.pop(EFA_DEVICE, None)
        if options.efa_device_count:
            limits[EFA_DEVICE] = str(options.efa_device_count)
    return {"limits": limits, "requests": requests}


def claims(role: Role) -> list[str]:
    """Return the PersistentVolumeClaims that the role mounts."""
    return [mount.src for mount in role.mounts if isinstance(mount, VolumeMount)]


def _container(role: Role, pod: Pod, options: Options, mounts: list[Manifest], facts: Facts | None) -> Manifest:
    privileged = any(isinstance(mount, DeviceMount) for mount in role.mounts)
    return {
        "name": names.WORKER_CONTAINER,
        "image": role.image,
        "command": [role.entrypoint, *role.args],
        "env": _env(role, pod, {**_NOBODY, **facts.variables} if facts else {}),
        **({"workingDir": pod.working_directory} if pod.working_directory else {}),
        "ports": [_port(name, port, role.name) for name, port in role.port_map.items()],
        "resources": resources(role.resource, options),
        "securityContext": _security(privileged=privileged, confine=facts is not None),
        "volumeMounts": mounts,
    }


def _env(role: Role, pod: Pod, defaults: Mapping[str, str]) -> list[Manifest]:
    """Return the variables: the replica's number first, since others may refer to it."""
    own: dict[str, str] = {**defaults, **role.env, RANK0_HOST: pod.rank0, IMAGE: role.image}
    own.pop(REPLICA_ID, None)
    replica = _field(REPLICA_ID, f"metadata.labels['{LABEL_REPLICA_ID}']")
    return [replica, *(_variable(name, value) for name, value in own.items())]


def _variable(name: str, value: str) -> Manifest:
    if value.startswith(FIELD_PATH):
        return _field(name, value.removeprefix(FIELD_PATH))
    return {"name": name, "value": value}


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _port(name: str, port: int, role: str) -> Manifest:
    if not _PORT_NAME.fullmatch(name):
        raise Refused(f"role {role}: port {name!r} must have a name of small letters, digits and dashes, 15 at most")
    if type(port) is not int or not 0 < port < 1 << 16:
        raise Refused(f"role {role}: port {name} is {port!r}, and must be a number between 1 and 65535")
    return {"name": name, "containerPort": port}


def _shared_memory() -> tuple[list[Manifest], list[Manifest]]:
    """Return a volume in memory: data loaders share their batches there, and the container runtime's has 64 MiB."""
    volume = {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}
    return [volume], [{"name": SHARED_MEMORY, "mountPath": "/dev/shm"}]


def _mounted(name: str, mount: object, role: str) -> tuple[Manifest, Manifest]:
    """Return a volume and where it is mounted."""
    if isinstance(mount, BindMount):
        source = {"hostPath": {"path": mount.src_path}}
        read_only = mount.read_only
    elif isinstance(mount, VolumeMount):
        source = {"persistentVolumeClaim": {"claimName": mount.src}}
        read_only = mount.read_only
    elif isinstance(mount, DeviceMount):
        source = {"hostPath": {"path": mount.src_path}}
        read_only = "w" not in mount.permissions and "m" not in mount.permissions
    else:
        raise Refused(f"role {role}: {mount!r} is no mount; use BindMount, VolumeMount or DeviceMount")
    if not mount.dst_path.startswith("/"):
        raise Refused(f"role {role}: mount {mount.dst_path!r} must be an absolute path in the container (dst=/…)")
    place: Manifest = {"name": name, "mountPath": mount.dst_path, **({"readOnly": True} if read_only else {})}
    return {"name": name, **source}, place


def _security(*, privileged: bool, confine: bool) -> Manifest:
    """Return the container's rights. A user's image may write to its own file system, unlike the stack's containers."""
    if privileged:
        return {"privileged": True}
    if not confine:
        return {}
    return {key: value for key, value in confined().items() if key != "readOnlyRootFilesystem"}


def _placed(resource: Resource, facts: Facts | None) -> Manifest:
    """Return on which nodes the pods may run."""
    selector = {} if facts is None else dict(stack.WORKER_NODES)
    pool = resource.capabilities.get(labels.POOL)
    if pool:
        selector = {labels.POOL: str(pool)}
    if kind := resource.capabilities.get(LABEL_INSTANCE_TYPE):
        selector[LABEL_INSTANCE_TYPE] = str(kind)
    return {
        **({"nodeSelector": selector} if selector else {}),
        **({"tolerations": stack.tolerations()} if facts is not None or pool else {}),
    }


def _identity(options: Options, facts: Facts | None) -> Manifest:
    """Return as whom the pods run."""
    account = options.service_account or (facts.service_account if facts is not None else None)
    return {
        **({"serviceAccountName": account} if account else {}),
        **({"priorityClassName": options.priority_class} if options.priority_class else {}),
        **({"securityContext": stack.non_root(int(facts.posix_id))} if facts is not None else {}),
    }
