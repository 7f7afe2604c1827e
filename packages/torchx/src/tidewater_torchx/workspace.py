"""A workspace goes with its job: packed when the job is described, uploaded when it is submitted, unpacked in its pods.

    archive = pack("file:///home/me/project")                            # what .torchxignore leaves
    code = mounted(archive.key, "aws-cli", "my/image", bucket="mine")    # of a pod: init containers, volumes, mounts
    upload(archive, "mine")                                              # only if the bucket doesn't have it

The archive has two folders: `workspace` is the container's working directory, `packages` belongs on PYTHONPATH. The
second has this project's rendezvous on etcd v3 with its entry point, so an image needs nothing of this project.

With `image_repo` and a Docker daemon the workspace is built into an image instead, by TorchX's own code.
"""

from __future__ import annotations

import io
import os
import posixpath
import stat
import tarfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
import docker.errors
import fsspec
from botocore.exceptions import BotoCoreError, ClientError
from docker.utils.build import PatternMatcher
from torchx.specs import AppDef, CfgVal, Role
from torchx.workspace.api import TORCHX_IGNORE
from torchx.workspace.docker_workspace import DockerWorkspaceMixin

from tidewater.contract import code
from tidewater.contract.code import Archive, ObjectStore
from tidewater.contract.stack import CONFIG_MAP
from tidewater_torchx.errors import Refused

METADATA = "tidewater.code"
"""Key in a role's metadata: under which key the bucket has its archive."""

DIRECTORY = "/tidewater/job"
"""Where an archive is unpacked in a container."""

WORKING_DIRECTORY = f"{DIRECTORY}/workspace"
PACKAGES = f"{DIRECTORY}/packages"

LIMIT_BYTES = 256 << 20
"""The archive is made in memory, and every pod downloads it."""

_ENTRY_POINTS = "[torchrun.handlers]\netcd-v3 = tidewater.elastic.torchrun:creator\n"
_METADATA = "Metadata-Version: 2.1\nName: tidewater\nVersion: 0\n"
_SHOWN = 5


class WorkspaceRefused(Refused):
    """A workspace that can't go with its job."""


@dataclass(frozen=True)
class _File:
    """A file of the workspace: its path in the workspace, and its path in the file system."""

    name: str
    source: str
    size: int
    mode: int
    link: str = ""
    """Where it leads, if it goes as a symbolic link."""


class WorkspaceMixin(DockerWorkspaceMixin):
    """What a scheduler does with the workspace of the application's first role, as TorchX's runner asks for it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._packed: dict[str, Archive] = {}

    def build_workspace_and_update_role(self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]) -> None:
        """Pack the workspace and note its key in the role's metadata; with `image_repo`, build an image of it.

        Nothing leaves this machine yet.

        Raises:
            WorkspaceRefused: the workspace can't be packed, or Docker can't be reached.
        """
        if not cfg.get("image_repo"):
            role.metadata[METADATA] = self.keep(pack(workspace))
            return
        try:
            super().build_workspace_and_update_role(role, workspace, cfg)
        except docker.errors.DockerException as error:
            raise WorkspaceRefused(
                f"image_repo={cfg['image_repo']}: no image of the workspace {workspace} can be built: {error}. Start "
                'Docker, leave image_repo out (the workspace then goes through the bucket), or pass --workspace=""'
            ) from error

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> dict[str, tuple[str, str]]:
        """Name images that were built here by the repository to which they will be pushed; return what is to be pushed.

        Raises:
            WorkspaceRefused: no repository is named.
        """
        try:
            images: dict[str, tuple[str, str]] = super().dryrun_push_images(app, cfg)
        except KeyError:
            role = next(role for role in app.roles if role.image.startswith("sha256:"))
            raise WorkspaceRefused(
                f"role {role.name}: image {role.image} is only on this machine; name the repository to push it to "
                "(-cfg image_repo=…), or an image that the cluster can pull"
            ) from None
        return images

    def keep(self, archive: Archive) -> str:
        """Keep an archive until its job is submitted; return its key."""
        self._packed[archive.key] = archive
        return archive.key

    def kept(self, keys: Iterable[str]) -> list[Archive]:
        """Return the archives that must be uploaded before a job with these keys is made.

        A key that this process hasn't packed is that of a job which is submitted again: `check_stored` asks the bucket.
        """
        return [self._packed[key] for key in dict.fromkeys(keys) if key in self._packed]


def pack(workspace: str | None, limit_bytes: int = LIMIT_BYTES) -> Archive:
    """Return the archive of a workspace; of None: only the rendezvous for torchrun.

    The bytes depend on nothing but names, contents and which files are executable.

    Args:
        workspace: Address of a folder, in a form that fsspec knows: `file:///home/me/project`.
        limit_bytes: Size that the files may have together.

    Raises:
        WorkspaceRefused: there is no such folder, a file can't be read, or it is too large.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=code.TAR_FORMAT) as archive:
        for name, content in sorted(_handler().items()):
            code.add_file(archive, f"packages/{name}", content)
        if workspace:
            _add_workspace(archive, workspace, limit_bytes)
    return Archive(buffer.getvalue())


def mounted(
    key: str, fetch_image: str, image: str, *, bucket: str, variables: Mapping[str, str] | None = None
) -> code.Shipped:
    """Return how an archive comes into a container of `image`: what its pod needs, and what the container needs.

    Args:
        key: `Archive.key`.
        fetch_image: image with the AWS CLI, which downloads the archive with the credentials of the pod.
        image: the container's own image; its `tar` unpacks the archive.
        bucket: where the archive is.
        variables: as of `code.shipped`.
    """
    uri = f"s3://{bucket}/{key}"
    return code.shipped(uri, fetch_image=fetch_image, unpack_image=image, directory=DIRECTORY, variables=variables)


def upload(archive: Archive, bucket: str, store: ObjectStore | None = None) -> bool:
    """Store an archive in the bucket unless it is there; return whether it was stored.

    The credentials and the address are those of the AWS command line.

    Raises:
        WorkspaceRefused: the bucket can't be reached, doesn't exist or refuses the archive.
    """
    try:
        return code.store(archive, bucket, store or boto3.client("s3"))
    except (BotoCoreError, ClientError) as error:
        raise WorkspaceRefused(
            f"the workspace can't be stored in s3://{bucket}/{archive.key}: {error}. It needs AWS credentials that may "
            'put objects there (`aws sts get-caller-identity` shows whose you have); --workspace="" submits without it'
        ) from error


def check_stored(key: str, bucket: str, store: ObjectStore | None = None) -> None:
    """Check that the bucket has an archive which isn't here.

    Raises:
        WorkspaceRefused: the bucket doesn't have it, it may not be read, or the bucket can't be reached.
    """
    remedy = "submit the application with its workspace: --workspace, in Python workspace=…"
    try:
        if code.is_stored(key, bucket, store or boto3.client("s3")):
            return
    except (BotoCoreError, ClientError) as error:
        raise WorkspaceRefused(f"the workspace s3://{bucket}/{key} can't be asked for: {error}; {remedy}") from error
    raise WorkspaceRefused(f"the workspace s3://{bucket}/{key} isn't there, or you may not read it; {remedy}")


def no_bucket(namespace: str) -> WorkspaceRefused:
    """Return the error for a namespace in which no stack says which bucket is its."""
    return WorkspaceRefused(
        f"the workspace can't go with the job: namespace {namespace} has no ConfigMap `{CONFIG_MAP}`, which names a "
        "stack's bucket. Submit to the namespace of a stack (-cfg namespace=training), name a bucket (-cfg bucket=…), "
        'build images of the workspace with Docker (-cfg image_repo=…), or submit without it (--workspace="")'
    )


def _add_workspace(archive: tarfile.TarFile, workspace: str, limit_bytes: int) -> None:
    file_system, path = _opened(workspace)
    try:
        files = sorted(_files(file_system, path), key=lambda file: file.name)
        _check_size(workspace, files, limit_bytes)
        code.add_folder(archive, "workspace")
        for file in files:
            content = b"" if file.link else file_system.cat_file(file.source)
            code.add_file(
                archive, f"workspace/{file.name}", content, executable=bool(file.mode & stat.S_IXUSR), link=file.link
            )
    except OSError as error:
        raise WorkspaceRefused(
            f"workspace {workspace} can't be packed: {error}. List what isn't needed in its {TORCHX_IGNORE}"
        ) from error


def _opened(workspace: str) -> tuple[Any, str]:
    """Return the file system of a workspace and its path there."""
    remedy = 'name a folder with --workspace, or none with --workspace=""'
    try:
        file_system, path = fsspec.core.url_to_fs(workspace)
        if file_system.isdir(path):
            return file_system, path
    except (OSError, ValueError, ImportError) as error:
        raise WorkspaceRefused(f"workspace {workspace} can't be opened: {error}; {remedy}") from error
    raise WorkspaceRefused(f"workspace {workspace} is no folder; {remedy}")


def _files(file_system: Any, path: str) -> Iterator[_File]:
    """Yield the files that `.torchxignore` leaves."""
    found = _walked(file_system, path, _ignored(file_system, path))
    for name, info in found.items():
        source, link = str(info["name"]), _link(name, info, found)
        # The mode of a link says nothing of the file to which it leads.
        mode = os.stat(source).st_mode if info.get("islink") and not link else int(info.get("mode") or 0)
        # What is neither a file nor a link is a socket, a pipe or a device, which would never end.
        if info["type"] == "file" or info.get("islink"):
            yield _File(name, source, 0 if link else int(info.get("size") or 0), mode, link)


def _ignored(file_system: Any, path: str) -> PatternMatcher:
    """Return the patterns of `.torchxignore`: Docker's own rules for a .dockerignore, as its client has them.

    TorchX's `walk_workspace` takes neither `data/` nor an exception in a folder that is left out.
    """
    file = posixpath.join(path, TORCHX_IGNORE)
    lines = file_system.cat_file(file).decode("utf-8-sig").splitlines() if file_system.exists(file) else []
    return PatternMatcher([line.strip() for line in lines if line.strip() and not line.startswith("#")])


def _walked(file_system: Any, path: str, ignored: PatternMatcher) -> dict[str, Mapping[str, Any]]:
    """Return the files that go, by their paths in the workspace. Folders are entered only if something in them may."""
    found: dict[str, Mapping[str, Any]] = {}
    exceptions = [pattern.cleaned_pattern for pattern in ignored.patterns if pattern.exclusion]
    left = [""]
    while left:
        folder = left.pop()
        for _, folders, files in file_system.walk(posixpath.join(path, folder), detail=True, maxdepth=1):
            for name, info in {**folders, **files}.items():
                inner = posixpath.join(folder, name)
                stays = ignored.matches(inner)
                if name in files:
                    found |= {} if stays else {inner: info}
                elif not stays or any("*" in each or each.startswith(f"{inner}/") for each in exceptions):
                    left.append(inner)
    return found


def _link(name: str, info: Mapping[str, Any], packed: Container[str]) -> str:
    """Return where a symbolic link leads that goes as a link; "" for everything else.

    A link to a file goes as a copy of it if the file doesn't go under the name that the link has for it.
    """
    if not info.get("islink"):
        return ""
    destination = os.fsdecode(info["destination"])
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), destination))
    return "" if os.path.isfile(str(info["name"])) and target not in packed else destination


def _check_size(workspace: str, files: Iterable[_File], limit_bytes: int) -> None:
    sizes: Counter[str] = Counter()
    for file in files:
        sizes[file.name.partition("/")[0]] += file.size
    if sizes.total() > limit_bytes:
        largest = ", ".join(f"{name} ({_mebibytes(size)})" for name, size in sizes.most_common(_SHOWN))
        raise WorkspaceRefused(
            f"workspace {workspace} has {_mebibytes(sizes.total())}, and at most {_mebibytes(limit_bytes)} go with a "
            f"job: list what it doesn't need in its {TORCHX_IGNORE}, one pattern a line, as in a .dockerignore. "
            f"The largest: {largest}"
        )


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _handler() -> dict[str, bytes]:
    """Return the rendezvous on etcd v3 as an installation has it, path to content."""
    info = {"METADATA": _METADATA.encode(), "entry_points.txt": _ENTRY_POINTS.encode()}
    return {**code.runtime(), **{f"tidewater-0.dist-info/{name}": content for name, content in info.items()}}
