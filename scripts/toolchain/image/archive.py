"""Writes container images as an OCI archive, with nothing but tarfile: no Docker, no registry.

    write_archive(Path("images.tar"), [Image("docker.io/localcloud/pause:1", layer, {"Entrypoint": ["/pause"]})])

Every image has one layer, so that a container's root is that layer and one for its own writes; images that
share a layer share its bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Image:
    """One image: its full name, the tar file that is its only layer, and its OCI configuration.

    Args:
        name: With registry and tag, as kubelet asks for it: `docker.io/localcloud/pause:1`.
        layer: An uncompressed tar file.
        config: Members of the image's `config` object: Entrypoint, Cmd, WorkingDir.
        env: The environment, in addition to PATH.
    """

    name: str
    layer: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def write_layer(target: Path, files: Mapping[str, Path], folders: Iterable[str] = ()) -> Path:
    """Makes a layer of executables (path in the image → file here), their folders and empty `folders`."""
    parents = {str(parent) for path in files for parent in Path(path).parents}
    wanted = sorted({*parents, *folders} - {"/", "."})
    with tarfile.open(target, "w") as tar:
        for folder in wanted:
            entry = _entry(folder, 0o1777 if folder == "/tmp" else 0o755)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for path, source in sorted(files.items()):
            entry = _entry(path, 0o755)
            entry.size = source.stat().st_size
            with source.open("rb") as file:
                tar.addfile(entry, file)
    return target


def write_archive(target: Path, images: Iterable[Image]) -> Path:
    """Writes `images` as one OCI archive, which `ctr images import` reads."""
    digests: dict[Path, str] = {}
    manifests = []
    with tarfile.open(target, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for image in images:
            if image.layer not in digests:
                digests[image.layer] = _add_layer(tar, image.layer)
            layer = {"mediaType": _LAYER, "digest": digests[image.layer], "size": image.layer.stat().st_size}
            config = _blob(tar, _CONFIG, configuration(image, digests[image.layer]))
            body = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [layer]}
            manifest = _blob(tar, _MANIFEST, body)
            manifests.append({**manifest, "annotations": {"io.containerd.image.name": image.name}})
        _add(tar, "index.json", _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}))
    return target


def configuration(image: Image, layer_digest: str) -> dict[str, Any]:
    """The OCI image configuration of `image`."""
    env = {"PATH": PATH, **image.env}
    return {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"{key}={value}" for key, value in env.items()], **image.config},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    }


def _add_layer(tar: tarfile.TarFile, layer: Path) -> str:
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tar.add(layer, arcname=f"blobs/sha256/{digest}")
    return f"sha256:{digest}"


def _blob(tar: tarfile.TarFile, media_type: str, value: Any) -> dict[str, Any]:
    data = _json(value)
    digest = hashlib.sha256(data).hexdigest()
    _add(tar, f"blobs/sha256/{digest}", data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = _entry(name, 0o644)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _entry(path: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.mode = mode
    return entry


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
