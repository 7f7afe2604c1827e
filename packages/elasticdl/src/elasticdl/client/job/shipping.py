"""The archive with the code of the processes and the zoo, with which a job needs no image of its own.

    archive = pack("model_zoo")                  # the same bytes for the same files, on every machine
    upload(archive, "bucket")                    # only if it isn't there
    address(archive, "bucket")                   # s3://bucket/code/0123….tar

It has two folders: `packages` for PYTHONPATH, and `zoo`, the working directory of the processes.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

import elasticdl
from elasticdl.client.flags.mistakes import Mistake, WrongCommand
from elasticdl.zoo import project
from tidewater.cli.errors import CliError
from tidewater.contract import code
from tidewater.contract.code import Archive

LIMIT_BYTES = 256 << 20
"""The archive is made in memory, and every pod downloads it."""

_SHOWN = 5


def pack(zoo: str, limit_bytes: int = LIMIT_BYTES) -> Archive:
    """Return the archive of a zoo and of the packages of the processes.

    Args:
        zoo: The zoo's folder; hidden files and caches in it are left out. Empty: no zoo.
        limit_bytes: Size that its files may have together.

    Raises:
        ZooError: it is empty, or has a link that leads out of it.
        WrongCommand: it is too large.
    """
    buffer = io.BytesIO()
    files = project.files(Path(zoo)) if zoo else {}
    _check_size(zoo, files, limit_bytes)
    with tarfile.open(fileobj=buffer, mode="w", format=code.TAR_FORMAT) as archive:
        for name, content in {**code.runtime(), **_own_files()}.items():
            code.add_file(archive, f"packages/{name}", content)
        code.add_folder(archive, "zoo")
        for name, content in files.items():
            code.add_file(archive, f"zoo/{name}", content)
    return Archive(buffer.getvalue())


def address(archive: Archive, bucket: str) -> str:
    """Return where the bucket has an archive."""
    return f"s3://{bucket}/{archive.key}"


def upload(archive: Archive, bucket: str) -> None:
    """Store an archive in the bucket unless it is there.

    The credentials and the endpoint are those of the AWS command line.

    Raises:
        CliError: the bucket can't be reached, doesn't exist or refuses the archive.
    """
    try:
        code.store(archive, bucket, boto3.client("s3"))
    except (BotoCoreError, ClientError) as error:
        raise CliError(
            f"code and zoo can't be stored at {address(archive, bucket)}: {error}",
            "It needs AWS credentials that may put objects there; `aws sts get-caller-identity` shows whose you have. "
            "With an image of `elasticdl zoo build`, named by --image_name, nothing is stored.",
        ) from error


def _check_size(zoo: str, files: Mapping[str, bytes], limit_bytes: int) -> None:
    sizes: Counter[str] = Counter()
    for name, content in files.items():
        sizes[name.partition("/")[0]] += len(content)
    if sizes.total() > limit_bytes:
        largest = ", ".join(f"{name} ({_mebibytes(size)})" for name, size in sizes.most_common(_SHOWN))
        remedy = f"put data on a volume or into S3, or use `elasticdl zoo build`. The largest: {largest}"
        size, limit = _mebibytes(sizes.total()), _mebibytes(limit_bytes)
        raise WrongCommand([Mistake(f"--model_zoo={zoo} has {size}, and at most {limit} go with a job", remedy)])


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _own_files() -> dict[str, bytes]:
    """Return the files of this package, by the paths at which a process imports them."""
    root = Path(elasticdl.__file__).parent
    return {f"elasticdl/{path.relative_to(root).as_posix()}": path.read_bytes() for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of an installed package in the order of their names."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(each for each in inner if each != "__pycache__")
        yield from (Path(folder, name) for name in sorted(names))
