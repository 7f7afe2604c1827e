"""What FSx says of file systems and moto doesn't: state, VPC and mount name; its error; and the folders of Lustre."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

LUSTRE = "LUSTRE"


def install() -> None:
    """Add it to moto's classes. Call this once per process."""
    from moto.fsx.models import FileSystem, FSxBackend

    _describe(FileSystem)
    _refuse_unknown(FSxBackend)


def mount_name(system: Any) -> str:
    """Return the name with which clients mount a file system of Lustre.

    https://docs.aws.amazon.com/fsx/latest/APIReference/API_LustreFileSystemConfiguration.html
    """
    scratch = (system.lustre_configuration or {}).get("DeploymentType", "SCRATCH_1") == "SCRATCH_1"
    return "fsx" if scratch else str(system.file_system_id).removeprefix("fs-")[:8]


def make_folders(root: Path, account: str, region: str) -> None:
    """Make a folder `root/ID/MOUNT_NAME` for each file system of Lustre, and remove those of deleted ones."""
    from moto.fsx.models import fsx_backends

    systems = dict(fsx_backends[account][region].file_systems)
    root.mkdir(exist_ok=True)
    for identity, system in systems.items():
        if system.file_system_type == LUSTRE:
            (root / identity / mount_name(system)).mkdir(parents=True, exist_ok=True)
    for folder in root.iterdir():
        if folder.name not in systems:
            shutil.rmtree(folder, ignore_errors=True)


def _describe(system: Any) -> None:
    original = system.to_dict

    def wrapped(self: Any) -> dict[str, Any]:
        from moto.ec2.models import ec2_backends

        ec2 = ec2_backends[self.backend.account_id][self.backend.region_name]
        found = {"Lifecycle": "AVAILABLE", "VpcId": ec2.get_subnet(self.subnet_ids[0]).vpc_id, **original(self)}
        if self.file_system_type == LUSTRE:
            found["LustreConfiguration"] = {**(self.lustre_configuration or {}), "MountName": mount_name(self)}
        return found

    system.to_dict = wrapped


def _refuse_unknown(backend: Any) -> None:
    original = backend.describe_file_systems

    def wrapped(self: Any, *, file_system_ids: list[str], **page: Any) -> Any:
        from moto.fsx.exceptions import FileSystemNotFound

        for identity in file_system_ids or ():
            if identity not in self.file_systems:
                raise FileSystemNotFound(identity)
        return original(self, file_system_ids=file_system_ids, **page)

    backend.describe_file_systems = wrapped
