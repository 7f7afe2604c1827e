"""Packs the training code into a zip that Python runs as it is, and puts it into the bucket.

    bundle = pack(ROOT)
    bundle.key            # code/<sha256>.zip

The same sources give the same bytes on every machine: sorted names, one date, no compression (whose output depends
on the library's version). So an unchanged trainer changes nothing, and a changed one gets a key of its own.
"""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws

from infra.outputs import ClusterOutputs

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("contract", "trainer", "examples")
START = ROOT / "workloads" / "in_bundle" / "start.py"
SCRIPT = "training_script.py"
"""What the user's own script is called in the bundle, whatever its name was."""
REQUIREMENTS = ROOT / "requirements" / "trainer.txt"
NEEDS = {
    "train": ("numpy", "pillow", "prometheus-client"),
    "dataset": ("pillow", "scikit-learn"),
    "s3": ("boto3",),
}
"""Packages that images with PyTorch may lack: what each sub-command imports, and either of them for `s3://` addresses.
Pinned as in the requirements."""

_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """The packed code."""

    content: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def key(self) -> str:
        """Key of the object in the bucket."""
        return f"code/{self.digest}.zip"


def pack(root: Path = ROOT, script: Path | None = None) -> Bundle:
    """The bundle of the sources under `root`, with the user's own training script if there is one."""
    locked = REQUIREMENTS.read_text()
    files = {f"requirements/{command}.txt": pinned(locked, names).encode() for command, names in NEEDS.items()}
    files["__main__.py"] = START.read_bytes()
    if script:
        files[SCRIPT] = script.read_bytes()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    return Bundle(to_zip(files))


def pinned(locked: str, names: tuple[str, ...]) -> str:
    """The lines `name==version` for `names` out of a hash-locked requirements file."""
    found = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", locked, flags=re.MULTILINE))
    return "".join(f"{name}=={found[name]}\n" for name in names)


def to_zip(files: Mapping[str, bytes]) -> bytes:
    """A zip of `files` whose bytes depend on nothing else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3  # Unix, whatever packs it
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def upload(bundle: Bundle, cluster: ClusterOutputs) -> pulumi.Output[str]:
    """Puts the bundle into the bucket; returns its `s3://` address, known once it is there."""
    # Pulumi reads what it uploads from a file; the name is the content's, so any run may write or reuse it.
    path = Path(tempfile.gettempdir()) / f"tidewater-code-{bundle.digest}.zip"
    path.write_bytes(bundle.content)
    stored = aws.s3.BucketObjectv2(
        "code",
        bucket=cluster.bucket,
        key=bundle.key,
        source=pulumi.FileAsset(str(path)),
        content_type="application/zip",
        opts=pulumi.ResourceOptions(provider=cluster.account.provider, depends_on=list(cluster.bucket_ready)),
    )
    return pulumi.Output.concat("s3://", stored.bucket, "/", stored.key)
