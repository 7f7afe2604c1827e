"""Records of images: the file as it is, with its label. `fields.decode` makes pixels of them.

reader = ImageReader("s3://bucket/pets")
fields = decode(next(reader.read(reader.shards()[0])))      # {"image": pixels, "label": array(1), "path": "dog/2.png"}
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from elasticdl.data.examples.fields import ImageFile, encode
from elasticdl.data.images.layout import Choice, Image, Layout, arranged
from elasticdl.data.images.store import Store, open_store
from elasticdl.data.params import texts
from elasticdl.data.reader import Metadata, Reader, Shard
from elasticdl.errors import DamagedData, DataError

_AHEAD = 8
"""Files that are read before they are asked for: of S3, each costs a request."""


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
