"""EFS operations that moto lacks (backup policies, updates, deleting policies), and errors where moto would crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

JSON_HEADERS: dict[str, str | int] = {"Content-Type": "application/json"}


def install() -> None:
    """Add the operations to moto's classes. Call this once per process."""
    from moto.efs.models import EFSBackend
    from moto.efs.responses import EFSResponse

    for name in ("describe_file_system_policy", "put_file_system_policy", "describe_backup_policy"):
        _check_file_system(EFSBackend, name)
    _check_file_system(EFSBackend, "create_access_point")
    _check_access_point(EFSBackend)
    _name_interfaces(EFSBackend)
    for method in (put_backup_policy, delete_file_system_policy, update_file_system):
        setattr(EFSResponse, method.__name__, method)


def put_backup_policy(self: Any) -> tuple[str, dict[str, str | int]]:
    """PutBackupPolicy: record whether AWS Backup backs the file system up every day."""
    system = _file_system(self)
    status = self._get_param("BackupPolicy")["Status"]
    system._backup = status == "ENABLED"
    return json.dumps({"BackupPolicy": {"Status": status}}), JSON_HEADERS


def delete_file_system_policy(self: Any) -> tuple[str, dict[str, str | int]]:
    """DeleteFileSystemPolicy: return to the default policy, which allows every client."""
    _file_system(self).file_system_policy = None
    return "{}", JSON_HEADERS


def update_file_system(self: Any) -> tuple[str, dict[str, str | int]]:
    """UpdateFileSystem: change the throughput mode."""
    system = _file_system(self)
    system.throughput_mode = self._get_param("ThroughputMode") or system.throughput_mode
    provisioned = self._get_param("ProvisionedThroughputInMibps")
    if provisioned is not None or system.throughput_mode != "provisioned":
        system.provisioned_throughput_in_mibps = provisioned
    return json.dumps(system.info_json()), {**JSON_HEADERS, "status": 202}


def _file_system(response: Any) -> Any:
    identity = response._get_param("FileSystemId")
    _, systems = response.efs_backend.describe_file_systems(file_system_id=identity)
    return systems[0]


def _check_file_system(backend: Any, name: str) -> None:
    original: Callable[..., Any] = getattr(backend, name)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        identity = kwargs.get("file_system_id") or args[0]
        self.describe_file_systems(file_system_id=identity)
        return original(self, *args, **kwargs)

    setattr(backend, name, wrapped)


def _check_access_point(backend: Any) -> None:
    original = backend.delete_access_point

    def wrapped(self: Any, access_point_id: str) -> None:
        self.describe_access_points(access_point_id, None)
        original(self, access_point_id)

    backend.delete_access_point = wrapped


def _name_interfaces(backend: Any) -> None:
    """Give mount targets' interfaces the description, manager and status that they have on AWS."""
    original = backend.create_mount_target

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = original(self, *args, **kwargs)
        interface = self.ec2_backend.enis[target.network_interface_id]
        interface.description = f"EFS mount target for {target.file_system_id} ({target.mount_target_id})"
        interface.requester_managed = True
        interface.status = "in-use"
        return target

    backend.create_mount_target = wrapped
