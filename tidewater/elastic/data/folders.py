"""Lists the images of each class in a folder, in the layout of torchvision's ImageFolder or of tiny-imagenet.

    names = classes(Path("/data/tiny-imagenet/train"))
    images(Path("/data/tiny-imagenet/val"), names)      # (file, label), ...

``<root>/<class>/**/<image>``: a class is a folder, and its images may be in subfolders. If there is a
``val_annotations.txt`` (name, tab, class) next to a folder ``images``, it gives the class of each image.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidewater.elastic.errors import ConfigError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
ANNOTATIONS = "val_annotations.txt"
_SHOWN = 5

Images = tuple[tuple[Path, int], ...]


def classes(root: Path) -> tuple[str, ...]:
    """Return the folders in ``root``, sorted."""
    if not root.is_dir():
        return ()
    with os.scandir(root) as entries:
        return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))


def images(root: Path, names: tuple[str, ...]) -> Images:
    """Return all images, each with the index of its class in ``names``, in the same order on every machine.

    Raise ConfigError if there are other classes.
    """
    return _annotated(root, names) if (root / ANNOTATIONS).is_file() else _listed(root, names)


def annotated(root: Path) -> list[tuple[str, str]]:
    """Return the file names in ``root/images`` and their classes, from ``val_annotations.txt``."""
    pairs = []
    for number, line in enumerate((root / ANNOTATIONS).read_text().splitlines(), start=1):
        name, _, rest = line.partition("\t")
        class_name = rest.partition("\t")[0].strip()
        if any(part in ("", ".", "..") or "/" in part for part in (name, class_name)):
            raise ConfigError(f"{root / ANNOTATIONS}, line {number}, is not <image>, tab, <class>: {line[:80]!r}")
        pairs.append((name, class_name))
    return pairs


def _listed(root: Path, names: tuple[str, ...]) -> Images:
    strange = sorted(set(classes(root)) - set(names))
    if strange:
        raise ConfigError(
            f"{root} has folders that are not classes of the training part: {', '.join(strange[:_SHOWN])}; "
            "both parts need the same ones"
        )
    return tuple(
        (Path(folder, file), label)
        for label, name in enumerate(names)
        for folder, _, files in sorted(os.walk(root / name, followlinks=True))
        for file in sorted(files)
        if file.lower().endswith(SUFFIXES)
    )


def _annotated(root: Path, names: tuple[str, ...]) -> Images:
    labels = {name: label for label, name in enumerate(names)}
    pairs = annotated(root)
    strange = sorted({class_name for _, class_name in pairs} - set(labels))
    if strange:
        raise ConfigError(
            f"{root / ANNOTATIONS} names classes that the training part doesn't have: {', '.join(strange[:_SHOWN])}"
        )
    return tuple((root / "images" / file, labels[class_name]) for file, class_name in sorted(pairs))
