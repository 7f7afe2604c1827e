"""Where image files are: a folder, a zip or a tar, on a volume or in S3.

    with open_store("/data/pets.zip") as store:
        store.content(store.paths()[0])

An archive is read at the offsets of its members, so it may be large. Only a tar that is compressed as a whole is
unpacked to a temporary file first.
"""

from __future__ import annotations

import abc
import tarfile
import threading
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from elasticdl.data.examples.fields import ImageFile, encode
from elasticdl.data.images.layout import Choice, Image, Layout, arranged
from elasticdl.data.params import texts
from elasticdl.data.reader import Metadata, Reader, Shard
from elasticdl.data.spool import unpacked
from elasticdl.data.storage import STORE
from elasticdl.errors import DamagedData, DataError
from tidewater.elastic.storage.blob import Blob, BlobFile

ZIP = (".zip",)
TAR = (".tar", ".tar.gz", ".tgz")
_REMEDY = "copy or pack the archive again"
_BLOCK = tarfile.BLOCKSIZE
_AHEAD = 8
"""Files that are read before they are asked for: of S3, each costs a request."""


class Store(abc.ABC):
    """Files by their paths. May be used by several threads at the same time."""

    @abc.abstractmethod
    def paths(self) -> list[str]:
        """Return the paths of all files; raise DataError or DamagedData if they can't be listed."""

    @abc.abstractmethod
    def content(self, path: str) -> bytes:
        """Return all of a file; raise DamagedData, with the file's place, if it is cut off or altered."""

    def close(self) -> None:
        """Release what the store holds. It is safe to call this twice."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(address: str) -> Store:
    """Return the files at an address."""
    if address.lower().endswith(ZIP):
        return ZipStore(STORE.opened(address))
    if address.lower().endswith(TAR):
        return TarStore(unpacked(STORE.opened(address)))
    return FolderStore(address)


class FolderStore(Store):
    """A folder of a volume or a prefix of a bucket."""

    def __init__(self, address: str) -> None:
        self._entries = {entry.path: entry for entry in STORE.files(address)}

    def paths(self) -> list[str]:
        """Return the paths, relative to the folder."""
        return list(self._entries)

    def content(self, path: str) -> bytes:
        """Return a file; raise DamagedData if it has another size than when it was listed."""
        entry = self._entries[path]
        with STORE.opened(entry.name) as blob:
            if blob.size != entry.size:
                raise DamagedData(
                    f"{entry.name} has {blob.size} bytes, and had {entry.size} when the job began",
                    "a dataset must not change while a job reads it",
                )
            return blob.read(0, blob.size)


class ZipStore(Store):
    """A zip. Its members have checksums, which are verified."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._lock = threading.Lock()
        try:
            self._zip = zipfile.ZipFile(BlobFile(blob).buffered())
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise DamagedData(
                f"{blob.name} ({blob.size} bytes) is no whole zip: {error}; the list of its members is at its end",
                _REMEDY,
            ) from error

    def paths(self) -> list[str]:
        """Return the members that are files."""
        return [member.filename for member in self._zip.infolist() if not member.is_dir()]

    def content(self, path: str) -> bytes:
        """Return a member."""
        member = self._zip.getinfo(path)
        try:
            with self._lock:
                return self._zip.read(member)
        except (zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise DamagedData(f"{self._blob.name}: {path}, at byte {member.header_offset}: {error}", _REMEDY) from error
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or a compression that Python lacks
            raise DataError(f"{self._blob.name}: {path}: {error}", "pack the archive with plain deflate") from error

    def close(self) -> None:
        """Close the archive."""
        self._zip.close()
        self._blob.close()


class TarStore(Store):
    """A tar. Only the headers of its members have checksums; a damaged image shows when it is decoded."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._members: dict[str, tuple[int, int]] = {}
        end = 0
        try:
            with tarfile.open(fileobj=BlobFile(blob).buffered(), mode="r:") as archive:
                for member in archive:
                    end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                    name, target = member.name.removeprefix("./"), member.linkname.removeprefix("./")
                    if member.islnk() and target in self._members:
                        self._members[name] = self._members[target]
                    elif member.isfile() and not member.issparse():
                        self._members[name] = (member.offset_data, member.size)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise DamagedData(f"{blob.name}: the header at byte {end}: {error}", _REMEDY) from error
        # tarfile takes a damaged header, or the end of the file, for the end of the archive.
        if blob.size < end + _BLOCK or any(blob.read(end, _BLOCK)):
            raise DamagedData(
                f"{blob.name} ({blob.size} bytes), cut off or damaged at byte {end}, after {len(self._members)} files",
                _REMEDY,
            )

    def paths(self) -> list[str]:
        """Return the members that are files."""
        return list(self._members)

    def content(self, path: str) -> bytes:
        """Return a member."""
        offset, size = self._members[path]
        return self._blob.read(offset, size)

    def close(self) -> None:
        """Close the archive."""
        self._blob.close()


class ImageReader(Reader):
    """Reads a folder or an archive of images as one shard.

    Args:
        address: of a folder, a prefix in S3, a .zip or a .tar, the latter also compressed.
        root: the folder in it that holds the classes, such as "train".
        classes: all classes in the order of their labels.
    """

    def __init__(self, address: str, root: str | None = None, classes: Sequence[str] | None = None) -> None:
        self._address = address
        if root is not None and not isinstance(root, str):
            raise DataError(f"root is {root!r}", 'name a folder of the archive: root="train"')
        self._choice = Choice(root, texts("classes", classes))
        self._opened: tuple[Store, Layout] | None = None

    @property
    def metadata(self) -> Metadata:
        """Return the names of the classes."""
        return Metadata(class_names=self._open()[1].classes)

    def shards(self) -> list[Shard]:
        """Return all images as one shard. Files are listed, not read."""
        return [Shard(self._address, 0, len(self._open()[1].images))]

    def read(self, shard: Shard) -> Iterator[bytes]:
        """Yield a record for each image."""
        store, layout = self._open()
        if shard.end > len(layout.images):
            raise DamagedData(
                f"{self._address} holds {len(layout.images)} images, and the task is [{shard.start}, {shard.end})",
                "a dataset must not change while a job reads it: start the job again",
            )
        waiting: deque[tuple[Image, Future[bytes]]] = deque()
        with ThreadPoolExecutor(_AHEAD, "images") as pool:
            for image in layout.images[shard.start : shard.end]:
                waiting.append((image, pool.submit(store.content, image.path)))
                if len(waiting) > _AHEAD:
                    yield _record(*waiting.popleft())
            while waiting:
                yield _record(*waiting.popleft())

    def close(self) -> None:
        """Close the archive."""
        if self._opened:
            self._opened[0].close()
            self._opened = None

    def _open(self) -> tuple[Store, Layout]:
        if self._opened is None:
            store = open_store(self._address)
            self._opened = (store, arranged(self._address, store.paths(), self._choice))
        return self._opened


def _record(image: Image, content: Future[bytes]) -> bytes:
    label = {} if image.label is None else {"label": image.label}
    return encode({"image": ImageFile(content.result()), **label, "path": image.path})
