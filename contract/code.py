"""How code gets from the stack's bucket into a pod, as pure functions: its archive is downloaded and unpacked first.

    code = shipped("s3://bucket/code/0123….tar", fetch_image="aws-cli", unpack_image="my/image", directory="/job")
    pod = {"initContainers": code.init_containers, "volumes": code.volumes, "containers": [...]}    # with code.mounts

The name of an object is the hash of its content, so the same code is uploaded once and never changes under a pod that
is made again. The download uses the AWS credentials of the pod's service account. The archive is unpacked with the
`tar` of the image that will run it, as the image with the AWS CLI has none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contract.pod_defaults import Manifest, confined

FOLDER = "code"
"""The bucket's folder that the role of the training pods may read: see `infra/policies`."""

_ARCHIVE = "tidewater-archive"
_CODE = "tidewater-code"
_ARCHIVE_MOUNT = "/tidewater/archive"
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


def key(content: bytes, suffix: str) -> str:
    """Return the key of an archive in the bucket, for a suffix such as `tar`."""
    return f"{FOLDER}/{hashlib.sha256(content).hexdigest()}.{suffix}"


def shipped(uri: str, *, fetch_image: str, unpack_image: str, directory: str) -> Shipped:
    """Return how the tar archive at an `s3://` address comes to be unpacked in a directory of a pod.

    Args:
        uri: Address of the archive, which may be compressed if the image's `tar` can tell.
        fetch_image: Image with the AWS CLI.
        unpack_image: Image with `tar`: that of the container that runs the code.
        directory: Where the code is; it can be written to, and ends with the pod.
    """
    archive = {"name": _ARCHIVE, "mountPath": _ARCHIVE_MOUNT}
    code = {"name": _CODE, "mountPath": directory}
    target = f"{_ARCHIVE_MOUNT}/code.tar"
    # The AWS CLI writes a cache under HOME.
    fetch = {**download(fetch_image, uri, target, [archive]), "env": [{"name": "HOME", "value": _ARCHIVE_MOUNT}]}
    unpack: Manifest = {
        "name": "unpack-code",
        "image": unpack_image,
        "command": ["tar", "-xf", target, "-C", directory],
        "resources": _SMALL,
        "securityContext": confined(),
        "volumeMounts": [archive, code],
    }
    volumes: list[Manifest] = [{"name": name, "emptyDir": {}} for name in (_ARCHIVE, _CODE)]
    return Shipped([fetch, unpack], volumes, [code])


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
