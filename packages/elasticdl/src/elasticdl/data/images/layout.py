"""Classes and order of images, from their paths alone.

    layout = arranged("/data/pets", ["cat/1.png", "dog/2.png"], Choice())
    layout.classes                       # ("cat", "dog")
    layout.images                        # (Image("dog/2.png", 1), Image("cat/1.png", 0))

The layout is that of torchvision's ImageFolder, `<class>/**/<image>`: a class is a folder, and its label is its place
among all classes, sorted by name. Images in no folder have no label, as for prediction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elasticdl.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif")
_PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}
_SHOWN = 5


@dataclass(frozen=True)
class Image:
    """An image."""

    path: str
    """In the folder or archive."""
    label: int | None


@dataclass(frozen=True)
class Choice:
    """What a reader's parameters may say of the layout."""

    root: str | None = None
    """The folder that holds the classes; None: the deepest one that holds all images, above their classes."""
    classes: tuple[str, ...] | None = None
    """All classes in the order of their labels; None: the folders that there are, sorted."""


@dataclass(frozen=True)
class Layout:
    """All images of a folder or archive, in the order of their records."""

    images: tuple[Image, ...]
    classes: tuple[str, ...] | None
    """None if no image is in a folder."""


def arranged(address: str, paths: Iterable[str], choice: Choice) -> Layout:
    """Return images by record: the same order everywhere, in which classes are mixed.

    The order is that of the SHA-256 of the paths. If it were that of the names, a task would hold images of one class.

    Raises:
        DataError: No image is there, or the folders are no classes.
    """
    images = [path for path in paths if path.lower().endswith(SUFFIXES) and not _hidden(path)]
    root = _root(images) if choice.root is None else choice.root.strip("/")
    below = f"{root}/" if root else ""
    inside = {path.removeprefix(below): path for path in images if path.startswith(below)}
    if not inside:
        found = f"{len(images)} images, none of them in {root}/" if images else f"no images ({', '.join(SUFFIXES)})"
        raise DataError(f"{address} holds {found}", "check the address and `root`")
    labels = _labels(address, list(inside), choice.classes)
    order = sorted(inside, key=lambda path: hashlib.sha256(path.encode()).digest())
    return Layout(
        tuple(Image(inside[path], None if labels is None else labels.index(_class(path))) for path in order),
        None if labels is None else tuple(labels),
    )


def _root(images: Sequence[str]) -> str:
    """Return the folder that holds all images, above the folders of their classes."""
    folders = [path.split("/")[:-1] for path in images]
    if not folders:
        return ""
    common = 0
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        common += 1
    # Images of one class only: the folder that they share is their class.
    alone = common and all(len(folder) == common for folder in folders)
    return "/".join(folders[0][: common - 1 if alone else common])


def _labels(address: str, inside: Sequence[str], given: Sequence[str] | None) -> Sequence[str] | None:
    loose = [path for path in inside if "/" not in path]
    found = sorted({_class(path) for path in inside if "/" in path})
    if loose and found:
        raise DataError(
            f"{address} holds images in folders ({', '.join(found[:_SHOWN])}) and images in none ({loose[0]})",
            "move each image to the folder of its class",
        )
    if loose:
        return None
    if _PARTS.issuperset(name.lower() for name in found):
        raise DataError(
            f"{address} holds the folders {', '.join(found)}, which are parts of a dataset and no classes",
            f"name one of them: --data_reader_params \"root='{inside[0].split('/')[0]}'\", or {address}/{found[0]}",
        )
    strange = sorted(set(found) - set(given or found))
    if strange:
        raise DataError(
            f"{address} has folders that are not in classes: {', '.join(strange[:_SHOWN])}",
            "training and validation need the same classes",
        )
    return found if given is None else given


def _class(path: str) -> str:
    return path.partition("/")[0]


def _hidden(path: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in path.split("/"))
