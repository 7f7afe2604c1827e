"""How code gets from a machine into a pod: as an archive in the stack's bucket, which the pod downloads and unpacks.

    with tarfile.open(fileobj=buffer, mode="w", format=TAR_FORMAT) as tar:
        add_file(tar, "packages/net.py", b"...")
    archive = Archive(buffer.getvalue())             # the same bytes for the same files, on every machine
    store(archive, "bucket", boto3.client("s3"))     # only if it isn't there
    code = shipped("s3://bucket/code/0123….tar", fetch_image="aws-cli", unpack_image="my/image", directory="/job")
    pod = {"initContainers": code.init_containers, "volumes": code.volumes, "containers": [...]}    # with code.mounts

The name of an object is the hash of its content, so the same code is uploaded once and never changes under a pod that
is made again. The download uses the AWS credentials of the pod's service account. The archive is unpacked with the
`tar` of the image that will run it, as the image with the AWS CLI has none.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidewater.contract.pod_defaults import Manifest, confined

FOLDER = "code"
"""The bucket's folder that the role of the training pods may read: see `infra/policies`."""

RUNTIME = ("tidewater/contract", "tidewater/elastic")
"""The folders of ours that a worker imports, in addition to `tidewater/__init__.py`."""

ADAPTERS = ("accelerate", "lightning", "transformers")
"""The libraries of people's loops that have a package of ours, named `tidewater_…`."""

RUNTIME_SUFFIXES = (".py", ".gz")
"""Code, and the digits that the dataset job writes."""

TAR_FORMAT = tarfile.GNU_FORMAT
TAR_DATE = 315532800
"""1980-01-01, as in `archive`: the date of every entry, so that the same files have the same bytes."""

_ABSENT = ("404", "403", "NoSuchKey")
"""S3 answers 403 instead of 404 to those who may not list the bucket; whether they may write shows next."""

_ARCHIVE = "tidewater-archive"
_CODE = "tidewater-code"
_ARCHIVE_MOUNT = "/tidewater/archive"
_TARGET = f"{_ARCHIVE_MOUNT}/code.tar"
_SMALL: Manifest = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


@dataclass(frozen=True)
class Shipped:
    """What a pod needs to have the code.

    Attributes:
        init_containers: they run one after the other, before the others of the pod's own.
        volumes: of the pod.
        mounts: of each container that needs the code.
    """

    init_containers: list[Manifest]
    volumes: list[Manifest]
    mounts: list[Manifest]


@dataclass(frozen=True)
class Archive:
    """A tar with the code of a job."""

    content: bytes

    @property
    def key(self) -> str:
        """Return its key in the bucket, which is the hash of its content."""
        return f"{FOLDER}/{hashlib.sha256(self.content).hexdigest()}.tar"


def runtime(root: Path | None = None) -> dict[str, bytes]:
    """Return what a worker imports of ours: path to content.

    Args:
        root: The folder that contains `tidewater`; None: the one from which this module was imported.
    """
    at = root or Path(__file__).resolve().parents[2]
    found = [path for folder in RUNTIME for path in sorted((at / folder).rglob("*")) if path.suffix in RUNTIME_SUFFIXES]
    return {path.relative_to(at).as_posix(): path.read_bytes() for path in [at / "tidewater" / "__init__.py", *found]}


def adapters(root: Path | None = None) -> dict[str, bytes]:
    """Return the packages for the libraries of people's loops, for scripts that import one: path to content.

    Args:
        root: The folder that contains `tidewater`: a checkout, or a folder of installed packages, which may lack some;
            None: the one from which this module was imported.
    """
    at = root or Path(__file__).resolve().parents[2]
    places = [(place, name) for name in ADAPTERS for place in (at / "packages" / name / "src", at)]
    found = [(place, path) for place, name in places for path in (place / f"tidewater_{name}").rglob("*.py")]
    return {path.relative_to(place).as_posix(): path.read_bytes() for place, path in sorted(found)}


class ObjectStore(Protocol):
    """What `store` uses of boto3's client of S3."""

    def head_object(self, *, Bucket: str, Key: str) -> Mapping[str, Any]:  # noqa: N803
        """Return the object's metadata."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> Mapping[str, Any]:  # noqa: N803
        """Store the object."""


def add_file(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool = False, link: str = "") -> None:
    """Add a file to an archive; with `link`, a symbolic link that leads there."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = TAR_DATE, 0o755 if executable else 0o644
    if link:
        entry.type, entry.linkname = tarfile.SYMTYPE, link
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def add_folder(tar: tarfile.TarFile, name: str) -> None:
    """Add an empty folder to an archive."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mtime, entry.mode = tarfile.DIRTYPE, TAR_DATE, 0o755
    tar.addfile(entry)


def store(archive: Archive, bucket: str, client: ObjectStore) -> bool:
    """Store an archive in the bucket unless it is there; return whether it was stored.

    Whatever the client raises is raised, but its answer that there is no such object.
    """
    if is_stored(archive.key, bucket, client):
        return False
    client.put_object(Bucket=bucket, Key=archive.key, Body=archive.content)
    return True


def is_stored(key: str, bucket: str, client: ObjectStore) -> bool:
    """Return whether the bucket has an object that the client may read.

    Whatever the client raises is raised, but its answer that there is no such object, or that it may not be read.
    """
    try:
        client.head_object(Bucket=bucket, Key=key)
    except Exception as error:  # boto3's, which this package doesn't import
        answer: Mapping[str, Any] = getattr(error, "response", {})
        if answer.get("Error", {}).get("Code") in _ABSENT:
            return False
        raise
    return True


def shipped(
    uri: str, *, fetch_image: str, unpack_image: str, directory: str, variables: Mapping[str, str] | None = None
) -> Shipped:
    """Return how the tar archive at an `s3://` address comes to be unpacked in a directory of a pod.

    Args:
        uri: Address of the archive, which may be compressed if the image's `tar` can tell.
        fetch_image: Image with the AWS CLI.
        unpack_image: Image with `tar`: that of the container that runs the code.
        directory: Where the code is; it can be written to, and ends with the pod.
        variables: Those that the download needs to reach S3, such as `Facts.variables`.
    """
    archive = {"name": _ARCHIVE, "mountPath": _ARCHIVE_MOUNT}
    # The AWS CLI writes a cache under HOME.
    own = {"HOME": _ARCHIVE_MOUNT, **(variables or {})}
    env = [{"name": name, "value": value} for name, value in own.items()]
    fetch = {**download(fetch_image, uri, _TARGET, [archive]), "env": env}
    return _unpacked([fetch], {"emptyDir": {}}, unpack_image, directory)


def unpacked(config_map: str, *, image: str, directory: str) -> Shipped:
    """Return how the tar archive `code.tar` of a ConfigMap comes to be unpacked in a directory of a pod.

    Args:
        config_map: its name.
        image: as `unpack_image` of `shipped`.
        directory: as there.
    """
    return _unpacked([], {"configMap": {"name": config_map}}, image, directory)


def _unpacked(first: Sequence[Manifest], archive: Manifest, image: str, directory: str) -> Shipped:
    code: Manifest = {"name": _CODE, "mountPath": directory}
    unpack: Manifest = {
        "name": "unpack-code",
        "image": image,
        "command": ["tar", "-xf", _TARGET, "-C", directory],
        "resources": _SMALL,
        "securityContext": confined(),
        "volumeMounts": [{"name": _ARCHIVE, "mountPath": _ARCHIVE_MOUNT}, dict(code)],
    }
    volumes: list[Manifest] = [{"name": _ARCHIVE, **archive}, {"name": _CODE, "emptyDir": {}}]
    return Shipped([*first, unpack], volumes, [code])


def download(image: str, uri: Any, target: str, mounts: Sequence[Manifest]) -> Manifest:
    """Return the init container that downloads one object with the credentials of the pod's service account.

    Args:
        image: Image with the AWS CLI.
        uri: `s3://` address; text, or what a tool that writes manifests replaces by text.
        target: File to write, in one of the mounts.
        mounts: `volumeMounts` of the container. It needs a HOME that it can write to.
    """
    return {
        "name": "fetch-code",
        "image": image,
        "command": ["aws", "s3", "cp", "--only-show-errors", uri, target],
        "resources": _SMALL,
        "securityContext": confined(),
        "volumeMounts": list(mounts),
    }
