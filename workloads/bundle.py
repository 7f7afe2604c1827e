"""The training code, and the packages that images lack, as a zip file that Python can run; its upload to the bucket.

    bundle = pack(ROOT)
    bundle.key            # code/<sha256>.zip

The same sources give the same bytes on every machine, since nothing is compressed: see `tidewater.contract.archive`.
So the key changes if, and only if, the code changes.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws

import settings
from tidewater.contract.archive import to_zip
from tidewater.contract.code import adapters, runtime
from tidewater.project.pack import lock_files, to_tar
from workloads import packages

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_SCRIPT = "trainer"
"""The folder of the training script for those who bring none."""

LEFT_OUT = (
    "tidewater/elastic/packages/",
    *(f"tidewater/contract/{name}.py" for name in ("archive", "code", "pod_defaults", "stack", "tls")),
)
"""What of the runtime no worker imports. It would restart all workers when it changes."""

START = ROOT / "workloads" / "in_bundle" / "start.py"
SCRIPT = "training_script.py"
"""Name of the user's own script in the bundle."""
PROJECT = "training_project"
"""Name in the bundle of the user's own folder, and of what runs of it. The folder is a tar, which can have links."""


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

    def write(self, folder: Path) -> Path:
        """Return a file in `folder` with the content, from which Pulumi uploads it.

        The file is named after its content, so any run may use it, and it is there as a whole or not at all: another
        stack's run may be reading it at this moment.
        """
        path = folder / f"tidewater-code-{self.digest}.zip"
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{path.name}-", delete=False) as draft:
            draft.write(self.content)
        return Path(draft.name).replace(path)


def bundle_for(training: settings.Training) -> Bundle:
    """Return the bundle of a stack's training. boto3 is in it only if something is in S3, since it has 20 MB."""
    fetched = "" if training.dataset.mounted else training.dataset.uri or ""
    places = (fetched, *training.trainer_args)
    s3 = training.checkpoints.s3 or any("s3://" in place for place in places)
    return pack(script=training.code or training.script, modules=(packages.METRICS, *((packages.S3,) if s3 else ())))


def installer(wanted: settings.Packages) -> Bundle:
    """Return the bundle of the job that installs packages: the runtime, pip, the lock, and wheels that travel with it.

    pip is not among the packages that images may lack: it is always this one, and only here.
    """
    own = {"__main__.py": START.read_bytes(), **lock_files(wanted)}
    return Bundle(to_zip({**packages.contents(packages.PIP), **runtime(ROOT), **own}))


def pack(
    root: Path = ROOT, script: Path | settings.Code | None = None, modules: Sequence[str] = (packages.METRICS,)
) -> Bundle:
    """Return the bundle of the sources under `root`.

    Args:
        root: The checkout.
        script: The user's own training script or folder, if there is one.
        modules: What an image with PyTorch may lack, of `packages.GROUPS`.
    """
    files = {f"packages/{name}/{path}": data for name in modules for path, data in packages.contents(name).items()}
    files["__main__.py"] = START.read_bytes()
    if isinstance(script, settings.Code):
        files |= {f"{PROJECT}.tar": to_tar(script, PROJECT), f"{PROJECT}.txt": script.script.encode()}
    elif script:
        files[SCRIPT] = script.read_bytes()
    else:
        own = sorted((root / DEFAULT_SCRIPT).glob("*.py"))
        files |= {path.relative_to(root).as_posix(): path.read_bytes() for path in own}
    files |= runtime(root)
    files |= adapters(root) if script else {}
    kept = {name: content for name, content in files.items() if not name.startswith(LEFT_OUT)}
    return Bundle(to_zip(kept))


@dataclass(frozen=True)
class CodeArgs:
    """The packed code, and the bucket that it goes to."""

    bundle: Bundle
    bucket: pulumi.Input[str]


class Code(pulumi.ComponentResource):
    """The bundle in the bucket."""

    uri: pulumi.Output[str]
    """The bundle's `s3://` address, known once it is uploaded."""

    def __init__(self, name: str, args: CodeArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Code", name, None, opts)
        path = args.bundle.write(Path(tempfile.gettempdir()))
        stored = aws.s3.BucketObjectv2(
            name,
            bucket=args.bucket,
            key=args.bundle.key,
            source=pulumi.FileAsset(str(path)),
            content_type="application/zip",
            # In older stacks the object has no parent.
            opts=pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)]),
        )
        self.uri = pulumi.Output.concat("s3://", stored.bucket, "/", stored.key)
        self.register_outputs({"uri": self.uri})
