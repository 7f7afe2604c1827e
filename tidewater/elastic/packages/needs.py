"""What installed packages need that neither the lock nor the image has, and what the image needs of them.

    unmet(Path("/data/packages/0123/cpython-312-x86_64-linux-gnu"), image=sys.path)

pip installs a lock as it is (`--no-deps`): it can't see the image's torch behind `--target`. Two packages of the lock
are not compared, since the tool that made the lock has done so, or a person has overruled it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

MODULES = ("numpy", "tidewater", "torch", "triton")
"""Modules of the image and of the runtime that no package may bring: it would come first in workers."""
BUILT_FOR = ("torch", "torchvision")
"""Packages of the image that must find what they need."""


def unmet(folder: Path, image: Sequence[str]) -> list[str]:
    """Return a sentence for each need that is not met.

    Args:
        folder: the installed packages.
        image: where the image's modules are, as in `sys.path`.
    """
    locked: dict[str, importlib.metadata.Distribution] = {
        canonicalize_name(each.name): each for each in importlib.metadata.distributions(path=[str(folder)])
    }
    found = [sentence for each in locked.values() for sentence in _lacking(each, locked, image)]
    found += [
        f"{_shown(own)} of the image needs {need}, and the lock has {_shown(locked[name])}: choose another version"
        for own in (_of_image(name, image) for name in BUILT_FOR)
        if own is not None and canonicalize_name(own.name) not in locked
        for name, need in _needs(own)
        if name in locked and not _is_met(need, locked[name])
    ]
    return sorted(found + _displaced(locked))


def _lacking(
    package: importlib.metadata.Distribution,
    locked: Mapping[str, importlib.metadata.Distribution],
    image: Sequence[str],
) -> Iterator[str]:
    for name, need in _needs(package):
        if name in locked:
            continue
        own = _of_image(name, image)
        if own is None:
            yield f"{_shown(package)} needs {need}, which neither the lock nor the image has: add it to the lock"
        elif not _is_met(need, own):
            has = f"{_shown(package)} needs {need}, and the image has {_shown(own)}"
            yield f"{has}: choose another version of {package.name}, or another image"


def _displaced(locked: Mapping[str, importlib.metadata.Distribution]) -> list[str]:
    return [
        f"{_shown(package)} brings the module {module}, which the image has: remove it from the lock"
        for module in MODULES
        for package in locked.values()
        if any(path.parts[0] in (module, f"{module}.py") for path in package.files or ())
    ]


def _needs(package: importlib.metadata.Distribution) -> Iterator[tuple[str, Requirement]]:
    """Yield what a package needs here, without its extras."""
    for text in package.requires or ():
        try:
            need = Requirement(text)
        except InvalidRequirement:  # of an old package; pip's resolver reads no such line either
            continue
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            need.marker = None
            yield canonicalize_name(need.name), need


def _is_met(need: Requirement, package: importlib.metadata.Distribution) -> bool:
    return need.specifier.contains(package.version, prereleases=True)


def _of_image(name: str, image: Sequence[str]) -> importlib.metadata.Distribution | None:
    return next(iter(importlib.metadata.distributions(name=name, path=list(image))), None)


def _shown(package: importlib.metadata.Distribution) -> str:
    return f"{package.name} {package.version}"
