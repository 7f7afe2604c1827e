"""A person's folder and packages for a job on any cluster: no bucket, and no image has to be built.

    shipment = packed(code, packages, job="digits", has_runtime=True)
    job = with_shipment(job, shipment, claim="data")
    cluster.create(JOBS, job); place(cluster, job, shipment)

A ConfigMap holds a tar, which an init container of each worker unpacks. It is named after its content, can't be
changed, and goes with the job. Another init container installs the packages into a folder that is named after the lock:
on a claim that all workers share the first one installs them, on a volume of the pod each does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution

from tidewater.cli.errors import UsageError
from tidewater.contract import env
from tidewater.contract.archive import to_zip
from tidewater.contract.code import TAR_FORMAT, adapters, add_file, runtime, unpacked
from tidewater.contract.pod_defaults import confined
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Cluster, Object
from tidewater.kube.errors import ClusterError, Exists, NotFound
from tidewater.kube.kinds import CONFIG_MAPS
from tidewater.project.folder import Code, largest
from tidewater.project.lock import Packages
from tidewater.project.pack import add_code, lock_files

LARGEST_KIB = 900
"""A ConfigMap holds 1 MiB: https://kubernetes.io/docs/concepts/configuration/configmap/#motivation"""

DIRECTORY = "/tidewater/code"
PROJECT = f"{DIRECTORY}/project"
RUNNER = "tidewater.elastic.launch.project"
"""The module that runs a script of the folder."""
INSTALLED = "/tidewater/packages"
_RUNTIME, _INSTALLER, _LOCK, _LINK = "runtime", "installer", "lock.zip", "packages"
_VOLUME = "tidewater-packages"


@dataclass(frozen=True)
class Shipment:
    """What goes to the workers of a job.

    Attributes:
        config_map: has it all, compressed.
        digest: of the packages; empty if there are none.
        has_code: whether there is a folder.
        has_runtime: whether workers import the runtime that goes with it.
    """

    config_map: Object
    digest: str
    has_code: bool
    has_runtime: bool


def packed(code: Code | None, packages: Packages | None, *, job: str, has_runtime: bool) -> Shipment:
    """Return the shipment of a job.

    Raises:
        UsageError: it is too large for a ConfigMap.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=TAR_FORMAT, encoding="utf-8") as tar:
        if code:
            add_code(tar, code, PROJECT.removeprefix(f"{DIRECTORY}/"))
        if packages or has_runtime:
            for name, content in {**runtime(), **adapters()}.items():
                add_file(tar, f"{_RUNTIME}/{name}", content)
        if packages:
            add_file(tar, _LOCK, to_zip(lock_files(packages)))
            for name, content in _needed_to_install().items():
                add_file(tar, f"{_INSTALLER}/{name}", content)
    content = gzip.compress(buffer.getvalue(), mtime=0)
    _check_size(len(content), code, packages)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()[:10]
    config_map = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {"name": f"{job}-code-{digest}", "labels": dict(names.job_labels(job))},
        "immutable": True,
        "binaryData": {"code.tar": base64.b64encode(content).decode()},
    }
    return Shipment(config_map, packages.digest if packages else "", code is not None, has_runtime)


def _needed_to_install() -> dict[str, bytes]:
    """Return the modules that the installer needs in addition to pip, which most images have."""
    files = distribution("packaging").files or ()
    return {str(path): path.read_binary() for path in files if path.suffix == ".py" and path.parts[0] == "packaging"}


def _check_size(size: int, code: Code | None, packages: Packages | None) -> None:
    if size <= LARGEST_KIB << 10:
        return
    sizes = {name: (code.folder / name).stat().st_size for name in code.files} if code else {}
    sizes |= {path.name: path.stat().st_size for path in packages.wheels} if packages else {}
    raise UsageError(
        f"the job's code has {size >> 10} KiB compressed, and a ConfigMap holds {LARGEST_KIB} KiB. The largest files: "
        f"{largest(sizes)}",
        "Name what isn't code in .tidewaterignore, put data on a volume, and let an index serve large wheels.",
    )


def with_shipment(job: Object, shipment: Shipment, *, claim: str = "") -> Object:
    """Return a job of one container, with what unpacks and installs a shipment in each worker.

    Args:
        job: as `manifest.from_flags` makes it; it is not changed.
        shipment: what goes to its workers.
        claim: PersistentVolumeClaim for the packages; "" for a volume of each pod.
    """
    worker = job["spec"]["replicaSpecs"][names.WORKER]
    (container,) = worker["template"]["spec"]["containers"]
    shipped = unpacked(shipment.config_map["metadata"]["name"], image=container["image"], directory=DIRECTORY)
    pod: Object = {"initContainers": shipped.init_containers, "volumes": shipped.volumes}
    mounts = [dict(each) for each in shipped.mounts]  # PyYAML would print the second use of one as a reference
    if shipment.digest:
        kept = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        pod["volumes"] = [*pod["volumes"], {"name": _VOLUME, **kept}]
        mount = {"name": _VOLUME, "mountPath": INSTALLED, "subPath": _VOLUME}
        installs = _installer(container["image"], shipment.digest, [*shipped.mounts, mount])
        pod["initContainers"] = [*pod["initContainers"], installs]
        mounts.append({**mount, "readOnly": True})
    environment = _environment(shipment, {each["name"]: each["value"] for each in container.get("env", ())})
    trains = {
        **container,
        **({"env": [{"name": name, "value": value} for name, value in environment.items()]} if environment else {}),
        **({"workingDir": PROJECT} if shipment.has_code else {}),
        "volumeMounts": mounts,
    }
    template = {"spec": {**pod, "containers": [trains]}}
    specs = {**job["spec"]["replicaSpecs"], names.WORKER: {**worker, "template": template}}
    return {**job, "spec": {**job["spec"], "replicaSpecs": specs}}


def _environment(shipment: Shipment, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a worker. The runtime comes first, then the packages, then what a person has named."""
    places = [f"{DIRECTORY}/{_RUNTIME}"] if shipment.has_runtime else []
    places += [f"{DIRECTORY}/{_LINK}"] if shipment.digest else []
    if not places:
        return dict(given)
    own = [given["PYTHONPATH"]] if "PYTHONPATH" in given else []
    fixed = env.FIXED_HASHES if shipment.has_runtime else {}
    return {**fixed, **given, "PYTHONPATH": ":".join([*places, *own])}


def _installer(image: str, digest: str, mounts: list[Object]) -> Object:
    """Return the init container that installs the packages, or finds them."""
    options = {"--bundle": f"{DIRECTORY}/{_LOCK}", "--out": f"{INSTALLED}/{digest}", "--link": f"{DIRECTORY}/{_LINK}"}
    words = [word for pair in options.items() for word in pair]
    variables = {
        "PYTHONPATH": f"{DIRECTORY}/{_RUNTIME}:{DIRECTORY}/{_INSTALLER}",
        "HOME": DIRECTORY,
        "TMPDIR": DIRECTORY,
    }
    return {
        "name": "install-packages",
        "image": image,
        "command": ["python3", "-m", "tidewater.elastic", "packages", *words],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": confined(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def placed(shipment: Shipment, namespace: str | None) -> Object:
    """Return the ConfigMap, in the namespace of its job; None for that of the context."""
    metadata = shipment.config_map["metadata"]
    return {**shipment.config_map, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}


def place(cluster: Cluster, job: Object, shipment: Shipment) -> None:
    """Create the ConfigMap of a job that was created. It belongs to the job, without which it is deleted.

    The job is deleted if that fails: its pods would wait for the ConfigMap for ever.

    Raises:
        ClusterError: the API server refuses it, or can't be asked.
    """
    about = job["metadata"]
    owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": about["name"], "uid": about["uid"]}
    owned = {"namespace": about.get("namespace", cluster.namespace), "ownerReferences": [owner]}
    config_map = {**shipment.config_map, "metadata": {**shipment.config_map["metadata"], **owned}}
    try:
        _create_or_adopt(cluster, config_map)
    except ClusterError:
        cluster.delete(JOBS, about["name"], owned["namespace"])
        raise


def _create_or_adopt(cluster: Cluster, config_map: Object) -> None:
    """Create a ConfigMap, or take over that of an earlier job of the same name, which is deleted at any moment."""
    own = config_map["metadata"]
    try:
        cluster.create(CONFIG_MAPS, config_map)
    except Exists:
        change = {"metadata": {"ownerReferences": own["ownerReferences"]}}
        try:
            cluster.patch(CONFIG_MAPS, own["name"], change, namespace=own["namespace"])
        except NotFound:
            cluster.create(CONFIG_MAPS, config_map)
