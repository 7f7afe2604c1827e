"""The pod templates of master, parameter servers and workers. Pure.

    template("worker", Process(["python3", "-m", "elasticdl.worker", …]), asked, place)

In the namespace of a stack the pods run without privileges, with the stack's service account; workers on the worker
nodes, master and servers wherever they fit, rather on the nodes that stay, and in a pool only if the command line
chooses it. Elsewhere nothing is known of the nodes and of the rules of the namespace, so that the pods have what the
command line says and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticdl.client.flags import podspec, values
from elasticdl.client.flags.request import Asked, Deployment, Resources, Ship
from elasticdl.client.flags.values import Volume
from tidewater.contract import code, devices, labels, stack
from tidewater.contract.env import FIXED_HASHES
from tidewater.contract.pod_defaults import confined
from tidewater.elasticjob import names

Manifest = dict[str, Any]

DIRECTORY = "/elasticdl"
"""Where the archive is unpacked."""

PACKAGES, ZOO = f"{DIRECTORY}/packages", f"{DIRECTORY}/zoo"

LABEL_APP, LABEL_JOB, LABEL_TYPE, LABEL_INDEX = (
    "app",
    "elasticdl-job-name",
    "elasticdl-replica-type",
    "elasticdl-replica-index",
)
"""Labels of the pods, for selectors that were written for ElasticDL. The index is added by the controller."""

POD_NAME, POD_IP, POD_INDEX, JOB_UID = "POD_NAME", "MY_POD_IP", "ELASTICDL_REPLICA_INDEX", "ELASTICDL_JOB_UID"
"""Variables of each container; the second is ElasticDL's."""

_FIELDS = {
    POD_NAME: "metadata.name",
    POD_IP: "status.podIP",
    POD_INDEX: f"metadata.labels['{names.LABEL_REPLICA_INDEX}']",
    JOB_UID: f"metadata.labels['{names.LABEL_JOB_UID}']",
}
_WITH_PACKAGES = f'export PYTHONPATH="{PACKAGES}${{PYTHONPATH:+:$PYTHONPATH}}"; exec "$@"'
"""An image may have a PYTHONPATH of its own, which a variable of the container would replace."""

_EXPANDED = re.compile(r"\$(?=[$(])")
_SHARED_MEMORY = "shared-memory"


@dataclass(frozen=True)
class Place:
    """Where a job runs.

    Attributes:
        namespace: of the job.
        facts: what a stack says of itself in that namespace; None if there is none.
        code: `s3://` address of the archive with the code of the processes; empty if it is in the image.
        zoo: whether the zoo is in the archive too.
    """

    namespace: str
    facts: stack.Facts | None = None
    code: str = ""
    zoo: bool = True


@dataclass(frozen=True)
class Process:
    """The command and the variables of a container. Words of the command may refer to variables."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


def literal(text: str) -> str:
    """Return a text of a command that Kubernetes leaves as it is: `$(X)` there stands for a variable."""
    return _EXPANDED.sub("$$", text)


def image(kind: str, deployment: Deployment, facts: stack.Facts | None) -> str:
    """Return the image of a kind of pods; empty if none is known."""
    own = {"worker": deployment.worker_image, "ps": deployment.ps_image}.get(kind, "")
    return own or deployment.image_name or (facts.image if facts else "")


def shipped(deployment: Deployment, facts: stack.Facts | None) -> Ship:
    """Return what goes with the job."""
    if deployment.ship:
        return deployment.ship
    if not deployment.image_name:
        return Ship.ALL
    return Ship.CODE if facts else Ship.NOTHING


def mounted(deployment: Deployment, facts: stack.Facts | None) -> Sequence[Volume]:
    """Return the volumes of the pods: those that were asked for, else those of the stack's file systems."""
    if deployment.volumes is not None:
        return deployment.volumes
    claims = facts.claims if facts else {}
    return [Volume(mount_path=path, claim_name=claim) for path, claim in claims.items()]


def template(kind: str, process: Process, asked: Asked, place: Place) -> Manifest:
    """Return the template of the pods of a kind: master, ps or worker."""
    deployment, facts = asked.deployment, place.facts
    own: Resources = getattr(deployment, kind)
    volumes, mounts = _volumes(mounted(deployment, facts))
    init: list[Manifest] = []
    if place.code and facts:
        unpacked = code.shipped(
            place.code,
            fetch_image=facts.fetch_image,
            unpack_image=image(kind, deployment, facts),
            directory=DIRECTORY,
            variables=facts.variables,
        )
        init, volumes, mounts = unpacked.init_containers, volumes + unpacked.volumes, mounts + unpacked.mounts
    if kind == "worker":  # processes that load data share their batches there
        volumes.append({"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": _SHARED_MEMORY, "mountPath": "/dev/shm"})
    pod: Manifest = {
        **_identity(facts),
        **_nodes(kind, own, facts, in_pool=podspec.chooses(labels.POOL, kind, deployment.cluster_spec)),
        **({"priorityClassName": priority} if (priority := _priority(kind, deployment)) else {}),
        **({"initContainers": init} if init else {}),
        "containers": [_container(kind, process, asked, place, mounts)],
        **({"volumes": volumes} if volumes else {}),
    }
    metadata = {
        "labels": {LABEL_APP: "elasticdl", LABEL_JOB: asked.args.job_name, LABEL_TYPE: kind},
        # Otherwise `kubectl logs` says on standard error which of the containers it has chosen.
        "annotations": {"sidecar.istio.io/inject": "false", "kubectl.kubernetes.io/default-container": kind},
    }
    return podspec.added({"metadata": metadata, "spec": pod}, kind, deployment.cluster_spec)


def _container(kind: str, process: Process, asked: Asked, place: Place, mounts: list[Manifest]) -> Manifest:
    deployment = asked.deployment
    own: Resources = getattr(deployment, kind)
    command = list(process.command)
    if place.code:
        command = ["sh", "-c", _WITH_PACKAGES, "elasticdl", *command]
    return {
        "name": kind,
        "image": image(kind, deployment, place.facts),
        **({"imagePullPolicy": deployment.image_pull_policy.value} if deployment.image_pull_policy else {}),
        "command": command,
        **({"workingDir": ZOO} if place.code and place.zoo else {}),
        "env": _environment({**(place.facts.variables if place.facts else {}), **process.env}, own, deployment),
        "resources": {"requests": dict(own.request), "limits": dict(own.limits)},
        **({"securityContext": _confined()} if place.facts else {}),
        **({"volumeMounts": mounts} if mounts else {}),
    }


def _environment(env: Mapping[str, str], own: Resources, deployment: Deployment) -> list[Manifest]:
    """Return the variables: the pod's own first, since others may refer to them; those of --envs win."""
    found = {
        "PYTHONUNBUFFERED": "1",
        **FIXED_HASHES,
        "HOME": "/tmp",
        "USER": "elasticdl",  # the image knows no such user, and libraries ask for the name
        # Images set it to `all`, which on older nodes gives every GPU of the node. GPUs come by the limit.
        **({} if devices.GPU in own.limits else {"NVIDIA_VISIBLE_DEVICES": "void"}),
        **({"OMP_NUM_THREADS": str(max(1, int(values.amount(own.limits["cpu"]))))} if "cpu" in own.limits else {}),
        **env,
        **{name: literal(value) for name, value in deployment.envs.items()},
    }
    fields = {name: path for name, path in _FIELDS.items() if name not in found}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        *({"name": name, "value": value} for name, value in found.items()),
    ]


def _volumes(wanted: Sequence[Volume]) -> tuple[list[Manifest], list[Manifest]]:
    """Return volumes, one for each claim and host path, and where they are mounted."""
    names: dict[tuple[str, str, str], str] = {}
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    for each in wanted:
        key = (each.claim_name, each.host_path, each.type)
        if key not in names:
            names[key] = f"volume-{len(names)}"
            volumes.append({"name": names[key], **_source(each)})
        mount: Manifest = {"name": names[key], "mountPath": each.mount_path}
        mount |= {"subPath": each.sub_path} if each.sub_path else {}
        mounts.append(mount | ({"readOnly": True} if each.read_only else {}))
    return volumes, mounts


def _source(volume: Volume) -> Manifest:
    if volume.claim_name:
        return {"persistentVolumeClaim": {"claimName": volume.claim_name}}
    return {"hostPath": {"path": volume.host_path, **({"type": volume.type} if volume.type else {})}}


def _identity(facts: stack.Facts | None) -> Manifest:
    """Return as whom the pods run."""
    if facts is None:
        return {}
    return {
        "serviceAccountName": facts.service_account,
        "automountServiceAccountToken": False,
        "securityContext": stack.non_root(int(facts.posix_id)),
    }


def _nodes(kind: str, own: Resources, facts: stack.Facts | None, *, in_pool: bool) -> Manifest:
    """Return on which nodes the pods run."""
    if facts is None:
        return {}
    gpus = {"key": devices.GPU, "operator": "Exists", "effect": "NoSchedule"}
    tolerations = [*stack.tolerations(), *([gpus] if devices.GPU in own.limits else [])]
    if kind == "worker":
        return {"nodeSelector": dict(stack.WORKER_NODES), "tolerations": tolerations}
    stays = {"key": labels.NODE_ROLE, "operator": "In", "values": [labels.NODE_ROLE_SYSTEM]}
    preferred = {"weight": 100, "preference": {"matchExpressions": [stays]}}
    found: Manifest = {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
    if not in_pool:  # Karpenter would bring a node of any pool
        elsewhere = {"matchExpressions": [{"key": labels.POOL, "operator": "DoesNotExist"}]}
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [elsewhere]}
    return {"affinity": {"nodeAffinity": found}, "tolerations": tolerations}


def _priority(kind: str, deployment: Deployment) -> str:
    """Return the priority class in the template; with a share of the workers the job has the classes instead."""
    if kind != "worker":
        return str(getattr(deployment, f"{kind}_pod_priority"))
    wanted = deployment.worker_pod_priority
    return wanted.core if wanted.share is None else ""


def _confined() -> Manifest:
    """Return the container's rights. A script of the user's own may write to the file system of its image."""
    return {key: value for key, value in confined().items() if key != "readOnlyRootFilesystem"}
