"""Archives follow the OCI image layout: every digest is that of its content."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scripts.toolchain.image.archive import Image, write_archive, write_layer
from scripts.toolchain.image.build import containerd_config


@pytest.fixture
def blobs(tmp_path: Path) -> dict[str, bytes]:
    binary = tmp_path / "pause"
    binary.write_bytes(b"\x7fELF")
    layer = write_layer(tmp_path / "layer.tar", {"/usr/local/bin/pause": binary}, ("/tmp",))
    images = [
        Image("docker.io/localcloud/a:1", layer, {"Entrypoint": ["/usr/local/bin/pause"]}),
        Image("docker.io/localcloud/b:1", layer, env={"PYTHONPATH": "/opt"}),
    ]
    with tarfile.open(write_archive(tmp_path / "images.tar", images)) as tar:
        return {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]


def blob(blobs: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    data = blobs[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]
    assert len(data) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == descriptor["digest"]
    return data


def test_every_image_has_its_name_and_every_digest_is_correct(blobs: dict[str, bytes]) -> None:
    index = json.loads(blobs["index.json"])
    names = [manifest["annotations"]["io.containerd.image.name"] for manifest in index["manifests"]]
    assert names == ["docker.io/localcloud/a:1", "docker.io/localcloud/b:1"]
    for described in index["manifests"]:
        manifest = json.loads(blob(blobs, described))
        config = json.loads(blob(blobs, manifest["config"]))
        assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
        for layer in manifest["layers"]:
            blob(blobs, layer)


def test_a_shared_layer_is_stored_once(blobs: dict[str, bytes]) -> None:
    # oci-layout, index.json, one layer, and a manifest and a configuration for each image
    assert len(blobs) == 2 + 1 + 2 * 2


def test_environment_and_entrypoint_are_in_the_configuration(blobs: dict[str, bytes]) -> None:
    index = json.loads(blobs["index.json"])
    configs = [json.loads(blob(blobs, json.loads(blob(blobs, m))["config"]))["config"] for m in index["manifests"]]
    assert configs[0]["Entrypoint"] == ["/usr/local/bin/pause"]
    assert "PYTHONPATH=/opt" in configs[1]["Env"]


def test_a_layer_has_folders_before_files_and_the_right_modes(tmp_path: Path) -> None:
    binary = tmp_path / "x"
    binary.write_bytes(b"x")
    with tarfile.open(write_layer(tmp_path / "layer.tar", {"/usr/bin/x": binary}, ("/tmp",))) as tar:
        modes = [(entry.name, oct(entry.mode)) for entry in tar]
    assert modes == [("tmp", "0o1777"), ("usr", "0o755"), ("usr/bin", "0o755"), ("usr/bin/x", "0o755")]


def test_the_containerd_that_imports_images_keeps_to_its_own_folders(tmp_path: Path) -> None:
    own = tomllib.loads(containerd_config(tmp_path / "root", tmp_path / "run"))
    used = [own["root"], own["state"], own["grpc"]["address"], own["plugins"]["io.containerd.internal.v1.opt"]["path"]]
    assert all(path.startswith(str(tmp_path)) for path in used)
    assert "io.containerd.grpc.v1.cri" in own["disabled_plugins"]  # which would read the host's CNI configuration
