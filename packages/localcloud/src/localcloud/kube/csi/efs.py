"""Volumes of EFS: asks the AWS endpoint, before one is mounted, whether it can be reached from the node's zone."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from localcloud.kube.csi.volume import NotMountable, Volume, entered_by, location, parse
from localcloud.kube.rpc import Message

API = "/2015-02-01"
AVAILABLE = "available"
TIMEOUT_SECONDS = 10.0

Ask = Callable[[str, dict[str, str]], dict[str, Any]]


@dataclass(frozen=True)
class RootDirectory:
    """An access point's root: its path, and the owner and mode with which it is made if it does not exist."""

    path: str = "/"
    uid: int | None = None
    gid: int | None = None
    mode: int | None = None


def api(endpoint: str, region: str, key: str, secret: str) -> Ask:
    """Return a function that sends a GET request, given by path and query, to EFS of an AWS endpoint."""
    signer = SigV4Auth(Credentials(key, secret), "elasticfilesystem", region)

    def ask(path: str, query: dict[str, str]) -> dict[str, Any]:
        url = f"{endpoint}{API}{path}?{urlencode(query)}"
        request = AWSRequest("GET", url)
        signer.add_auth(request)
        plain = urllib.request.Request(url, headers=dict(request.headers.items()))
        try:
            with urllib.request.urlopen(plain, timeout=TIMEOUT_SECONDS) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            raise NotMountable(_message(error)) from error
        except (OSError, ValueError) as error:
            raise NotMountable(f"Failed to reach EFS at {endpoint}: {error}") from error
        return answer

    return ask


def finder(ask: Ask, root: Path, zone: str) -> Callable[[Message], Path]:
    """Return what finds the directories of volumes below `root`, the directory of all file systems."""

    def find(request: Message) -> Path:
        volume = entered_by(parse(request.volume_id), list(request.volume_capability.mount.mount_flags))
        point = check(ask, volume, zone)
        top = location(root, Volume(volume.file_system), point.path)
        if not top.exists():
            if point.path != "/" and point.mode is None:
                raise NotMountable(f"mount.nfs4: access denied: {point.path} does not exist in the file system")
            top.mkdir(parents=True, mode=0o755)
            if point.mode is not None:
                os.chown(top, point.uid or 0, point.gid or 0)
                top.chmod(point.mode)
        source = location(root, volume, point.path)
        if not source.is_dir():
            raise NotMountable(f"mount.nfs4: {volume.path} does not exist in the file system")
        return source

    return find


def check(ask: Ask, volume: Volume, zone: str) -> RootDirectory:
    """Check that a node in `zone` can mount the volume, as mount.efs does.

    Returns:
        The root to mount: the access point's, or the file system's.

    Raises:
        NotMountable: No such file system or access point, or no mount target to reach it by.
    """
    systems = ask("/file-systems", {"FileSystemId": volume.file_system})["FileSystems"]
    if not systems or systems[0]["LifeCycleState"] != AVAILABLE:
        raise NotMountable(f"File system {volume.file_system} is not available")
    targets = ask("/mount-targets", {"FileSystemId": volume.file_system})["MountTargets"]
    usable = {each.get("AvailabilityZoneName") for each in targets if each["LifeCycleState"] == AVAILABLE}
    if zone not in usable:
        raise NotMountable(
            f'Failed to resolve "{volume.file_system}" - The file system mount target ip address cannot be found: '
            f"no available mount target in {zone}; there are some in: {', '.join(sorted(map(str, usable))) or 'none'}"
        )
    if volume.access_point is None:
        return RootDirectory()
    points = ask("/access-points", {"AccessPointId": volume.access_point})["AccessPoints"]
    if not points or points[0]["FileSystemId"] != volume.file_system:
        raise NotMountable(f"Access point {volume.access_point} does not belong to {volume.file_system}")
    return root_directory(points[0])


def root_directory(access_point: dict[str, Any]) -> RootDirectory:
    """An access point's root, from EFS's description."""
    root = access_point.get("RootDirectory") or {}
    creation = root.get("CreationInfo") or {}
    if not creation:
        return RootDirectory(root.get("Path", "/"))
    return RootDirectory(
        path=root.get("Path", "/"),
        uid=int(creation["OwnerUid"]),
        gid=int(creation["OwnerGid"]),
        mode=int(str(creation["Permissions"]), 8),
    )


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text).get("Message") or json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return f"EFS answered {error.code}: {text[:300]}"
