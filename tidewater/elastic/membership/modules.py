"""The modules that the script brought, and the versions of the packages that these import.

    sources = own_sources()                 # by module: everything outside of Python's folders and of site-packages
    found = versions(sources)               # {"Python": "3.11", "torch": "2.14.1", "transformers": "5.0.0"}

A module counts at the moment of the call. So call this when everything was imported that training needs.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from types import ModuleType
from typing import Any

import torch

_INSTALLED = ("site-packages", "dist-packages")
_OURS = "tidewater"
"""Its code is compared as a whole, whichever modules of it are imported."""
_COMMANDS = "console_scripts"
_MOST_MODULES = 2000
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([A-Za-z_][\w.]*)[ \t]+import\b|import[ \t]+([A-Za-z_][\w., \t]*))", re.MULTILINE
)


def own_sources() -> dict[str, str]:
    """Return the source of each imported module that was neither installed nor is part of Python, by its name.

    Modules without a source, such as compiled ones, and those that a program has made up, are left out.
    """
    library = tuple({f"{os.path.abspath(sysconfig.get_path(each))}{os.sep}" for each in ("stdlib", "platstdlib")})
    installed = functools.cache(_is_installation)
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        path = _path(module)
        depth = name.count(".") + os.path.basename(path).startswith("__init__.")
        if not path or name.partition(".")[0] == _OURS or path.startswith(library) or installed(_above(path, depth)):
            continue
        if len(found) < _MOST_MODULES:
            source = _source(name, module)
            if source is not None:
                found[name] = program(path, source) if name == "__main__" else source
    return dict(sorted(found.items()))


def program(path: str, source: str) -> str:
    """Return the source of the started program; of a command that pip has installed, only what it calls.

    The text of such a command has the place of its Python, and depends on the program that installed it.
    """
    folder, name = os.path.split(path)
    if os.path.realpath(folder) != os.path.realpath(sysconfig.get_path("scripts")):
        return source
    calls = [f"from {each.module} import {each.attr}" for each in metadata.entry_points(group=_COMMANDS, name=name)]
    return calls[0] if calls else source


def digests(sources: Mapping[str, str]) -> dict[str, str]:
    """Return a digest of each source."""
    return {name: hashlib.sha256(source.encode()).hexdigest()[:16] for name, source in sources.items()}


def versions(sources: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of Python, numpy, torch and the installed packages that these modules import, by name.

    An ``import`` in a function counts, too, whether it was executed or not: so that all workers compare the same.
    """
    own = {name.partition(".")[0] for name in sources} | {_OURS, "torch"} | sys.stdlib_module_names
    wanted = sorted({"numpy", *(name for source in sources.values() for name in _imported(source))} - own)
    # That of torch's package doesn't say for which devices it was built.
    found = {"Python": ".".join(map(str, sys.version_info[:2])), "torch": str(torch.__version__)}
    return found | {name: version for name in wanted if (version := _version(name))}


def _path(module: Any) -> str:
    """Return the path of the module's file; empty if it has none, or was made up by a program."""
    if not issubclass(type(module), ModuleType):  # a library that cffi has loaded only says that it is a module
        return ""
    # Past the module's own __getattribute__: that of a lazy one would import it.
    fields = object.__getattribute__(module, "__dict__")
    file = fields.get("__file__")
    if not isinstance(file, str) or (fields.get("__spec__") is None and fields.get("__name__") != "__main__"):
        return ""
    return os.path.abspath(file)


def _above(path: str, depth: int) -> str:
    """Return the folder from which a module was imported."""
    for _ in range(depth + 1):
        path = os.path.dirname(path)
    return path


def _is_installation(folder: str) -> bool:
    """Return whether packages are installed in this folder, under whatever name it has (`pip install --target`)."""
    if any(part in _INSTALLED for part in folder.split(os.sep)):
        return True
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:  # a zip file
        return False


def _source(name: str, module: ModuleType) -> str | None:
    """Return the source of a module, which may be in a zip file; None if it has none."""
    fields = object.__getattribute__(module, "__dict__")
    read: Callable[[str], str | None] | None = getattr(fields.get("__loader__"), "get_source", None)
    spec = fields.get("__spec__")
    try:
        return read(spec.name if spec else name) if read else None
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError):
        return None


def _imported(source: str) -> Iterator[str]:
    """Yield the names of the top-level packages that a source imports. Some are none: prose may look like an import."""
    for one, several in _IMPORT.findall(source):
        yield from (each.split()[0].partition(".")[0] for each in (one or several).split(",") if each.strip())


def _version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed, or says nothing about it."""
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):  # perhaps distributed under another name, as PIL is by Pillow
        said = getattr(sys.modules.get(package), "__version__", None)
        return said if isinstance(said, str) else None
