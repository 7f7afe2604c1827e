"""Checks of the cluster itself: the API server, what the user may do there, nodes, GPUs, the EFS driver."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Result, fine, fix, note, skipped, unchecked
from tidewater.cli.parallel import at_once
from tidewater.cli.show import plural
from tidewater.elasticjob import names
from tidewater.kube.cluster import Object
from tidewater.kube.errors import ErrorWithRemedy
from tidewater.kube.kinds import ACCESS_REVIEWS, NODES, Kind

OLDEST_KUBERNETES = (1, 29)
"""Older ones don't check the rules (CEL) of the CRD:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules"""

GPU = "nvidia.com/gpu"
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_GPU_TYPES = re.compile(r"(p\d|g\d|gr\d)")
_AMD_TYPES = "g4ad"

EFS_DRIVER = "efs.csi.aws.com"
CSI_DRIVERS = Kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", namespaced=False)
CSI_NODES = Kind("storage.k8s.io/v1", "CSINode", "csinodes", namespaced=False)
VOLUMES = Kind("v1", "PersistentVolume", "persistentvolumes", namespaced=False)

_REVIEW_SECONDS = 4.0


@dataclass(frozen=True)
class Right:
    """A right that a command needs."""

    verb: str
    group: str
    resource: str
    subresource: str
    commands: str

    def __str__(self) -> str:
        path = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {path}"


READING = (
    Right("list", names.GROUP, names.PLURAL, "", "every command"),
    Right("get", names.GROUP, names.PLURAL, "", "every command"),
    Right("list", "", "pods", "", "job describe, job logs, top"),
)
OTHERS = (
    Right("watch", names.GROUP, names.PLURAL, "", "job wait"),
    Right("create", names.GROUP, names.PLURAL, "", "job submit"),
    Right("patch", names.GROUP, names.PLURAL, "", "job suspend, job resume"),
    Right("patch", names.GROUP, names.PLURAL, "scale", "job scale"),
    Right("delete", names.GROUP, names.PLURAL, "", "job delete"),
    Right("watch", "", "pods", "", "job logs -f"),
    Right("get", "", "pods", "log", "job logs"),
    Right("get", "", "pods", "proxy", "the numbers of top"),
    Right("list", "", "events", "", "job describe, top"),
)


def api_server(place: Place) -> Result:
    """Check that the API server answers, accepts the credentials and is not too old."""
    try:
        found = json.loads(place.cluster.read("/version"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return fix(
            f"{place.cluster.server} does not answer as a Kubernetes API server does",
            "A proxy or a login page may answer for it. Correct `server` in the kubeconfig, or choose another context "
            "with --context.",
        )
    version = str(found.get("gitVersion", ""))
    numbers = re.match(r"v(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_KUBERNETES:
        return fix(
            f"Kubernetes {version} is older than {'.'.join(map(str, OLDEST_KUBERNETES))}, "
            "which is the first to check an ElasticJob's rules",
            "Upgrade the cluster: https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html",
        )
    return fine(f"Kubernetes {version} at {place.cluster.server}")


def rights(place: Place) -> Result:
    """Check what the user may do in the namespace."""
    namespace = place.cluster.namespace
    wanted = READING + OTHERS
    answers = at_once([partial(_allowed, place, each) for each in wanted], seconds=_REVIEW_SECONDS)
    denied = [each for each, answer in zip(wanted, answers, strict=True) if answer is False]
    unknown = [answer for answer in answers if isinstance(answer, ErrorWithRemedy)]
    if denied:
        listed = "; ".join(f"{each} ({each.commands})" for each in denied)
        say = fix if any(each in READING for each in denied) else note
        return say(
            f"not allowed in namespace {namespace}: {listed}",
            f"Ask the cluster's administrator for a RoleBinding in {namespace} to a role with these rights.",
        )
    if unknown:
        return unchecked(f"could not be checked: {unknown[0].message}")
    return fine(f"all that the commands need in namespace {namespace}")


def _allowed(place: Place, right: Right) -> bool:
    review = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {
            "resourceAttributes": {
                "namespace": place.cluster.namespace,
                "verb": right.verb,
                "group": right.group,
                "resource": right.resource,
                "subresource": right.subresource,
            }
        },
    }
    return bool(place.cluster.create(ACCESS_REVIEWS, review)["status"]["allowed"])


def nodes(place: Place) -> Result:
    """Check that there are nodes, and that they are ready."""
    found = place.cluster.list(NODES).items
    if not found:
        return fix("the cluster has no nodes", "Add a node group; with the stack, `pulumi up` does it.")
    lost = [node["metadata"]["name"] for node in found if not is_ready(node)]
    remedy = f"`kubectl describe node {lost[0]}` says why." if lost else ""
    if len(lost) == len(found):
        return fix(f"none of {plural(len(found), 'node')} is ready", remedy)
    if lost:
        return note(f"{len(found) - len(lost)} of {plural(len(found), 'node')} ready, not {', '.join(lost)}", remedy)
    return fine(f"{plural(len(found), 'node')}, all ready")


def is_ready(node: Object) -> bool:
    """Return whether a node is ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def gpus(place: Place) -> Result:
    """Check that nodes with GPUs offer them: without the device plug-in they don't."""
    return gpu_result([node for node in place.cluster.list(NODES).items if is_ready(node)])


def gpu_result(nodes: Iterable[Object]) -> Result:
    """Return what the ready nodes say about their GPUs."""
    offered = {node["metadata"]["name"]: int(_allocatable(node).get(GPU, 0)) for node in nodes if _has_gpus(node)}
    if not offered:
        return skipped("no node has NVIDIA GPUs")
    silent = [name for name, count in offered.items() if count == 0]
    if silent:
        return fix(
            f"nodes with GPUs that offer none: {', '.join(silent)}",
            "Install NVIDIA's device plug-in (the stack does, with gpusPerWorker of 1 or more), or read its pod's log "
            "on these nodes: `kubectl get pods -A -o wide | grep nvidia`.",
        )
    return fine(f"{sum(offered.values())} GPUs on {plural(len(offered), 'node')}")


def _has_gpus(node: Object) -> bool:
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    kind = labels.get(_INSTANCE_TYPE, "")
    known = bool(_GPU_TYPES.match(kind)) and not kind.startswith(_AMD_TYPES)
    return known or labels.get(f"{GPU}.present") == "true" or GPU in _allocatable(node)


def _allocatable(node: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = (node.get("status") or {}).get("allocatable") or {}
    return found


def efs(place: Place) -> Result:
    """Check that volumes on EFS can be mounted."""
    volumes = [
        volume["metadata"]["name"]
        for volume in place.cluster.list(VOLUMES).items
        if volume["spec"].get("csi", {}).get("driver") == EFS_DRIVER
    ]
    if not volumes:
        return skipped("no volume is on EFS")
    drivers = [driver["metadata"]["name"] for driver in place.cluster.list(CSI_DRIVERS).items]
    if EFS_DRIVER not in drivers:
        return fix(
            f"volume {volumes[0]} is on EFS, and the EFS CSI driver is not installed",
            "Install it: `aws eks create-addon --cluster-name CLUSTER --addon-name aws-efs-csi-driver`; with the "
            "stack, `pulumi up` does it.",
        )
    return _efs_nodes(place.cluster.list(CSI_NODES).items)


def _efs_nodes(nodes: Sequence[Object]) -> Result:
    without = [
        node["metadata"]["name"]
        for node in nodes
        if EFS_DRIVER not in [driver["name"] for driver in node["spec"].get("drivers") or []]
    ]
    if without:
        return note(
            f"the EFS CSI driver does not run on {', '.join(without)}: pods with volumes on EFS can't start there",
            "`kubectl get daemonsets -A` shows whether its pods wait or fail.",
        )
    return fine(f"{EFS_DRIVER} on {plural(len(nodes), 'node')}")
