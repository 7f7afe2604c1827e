"""Volume handles of the EFS CSI driver, where a volume lies below its file system's directory, and errors of volumes.

    parse("fs-0123456789abcdef0::fsap-0fedcba9876543210")

The form is that of the official driver's handles: file system, path and access point, separated by colons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


class InvalidVolume(ValueError):
    """The volume handle, a mount option or an attribute is not one of the driver's; the message says which part."""


class NotMountable(Exception):
    """The volume can't be mounted now; the message says what is missing."""


@dataclass(frozen=True)
class Volume:
    """A volume: a file system, a path in it, and an access point, if any."""

    file_system: str
    path: str = "/"
    access_point: str | None = None


def parse(handle: str) -> Volume:
    """Read `fs-ID`, `fs-ID:/path`, `fs-ID::fsap-ID` or `fs-ID:/path:fsap-ID`.

    Raises:
        InvalidVolume: It is none of these.
    """
    parts = handle.split(":")
    if len(parts) > 3:
        raise InvalidVolume(f"volume ID '{handle}' is invalid: Expected at most three fields separated by ':'")
    file_system, path, access_point = [*parts, "", ""][:3]
    if not re.fullmatch(r"fs-[0-9a-f]{8,40}", file_system):
        raise InvalidVolume(f"volume ID '{handle}' is invalid: Expected a file system ID of the form 'fs-...'")
    if access_point and not re.fullmatch(r"fsap-[0-9a-f]{8,40}", access_point):
        raise InvalidVolume(f"volume ID '{handle}' has an invalid access point ID '{access_point}'")
    if ".." in PurePosixPath(path).parts:
        raise InvalidVolume(f"volume ID '{handle}' has a path with '..': give an absolute path")
    return Volume(file_system, "/" + path.strip("/"), access_point or None)


def entered_by(volume: Volume, mount_flags: list[str]) -> Volume:
    """Apply mount options to a volume: `accesspoint=fsap-ID`; `tls` and `iam` change nothing here.

    Raises:
        InvalidVolume: The options name another access point than the handle.
    """
    found = volume.access_point
    for flag in mount_flags:
        name, _, value = flag.partition("=")
        if name == "accesspoint":
            if found not in (None, value):
                raise InvalidVolume(
                    f"Found conflicting access point IDs in mountOptions ({value}) and volumeHandle ({found})"
                )
            found = value
    return Volume(volume.file_system, volume.path, found)


def location(root: Path, volume: Volume, access_point_root: str) -> Path:
    """Return the directory to mount: the volume's path inside the access point's root."""
    inside = f"{access_point_root.strip('/')}/{volume.path.strip('/')}".strip("/")
    return root / volume.file_system / inside if inside else root / volume.file_system
