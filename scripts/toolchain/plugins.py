"""Puts the engine and the stand-in plug-ins where the engine uses them without a warning.

    install(folder / "bin", folder / "pulumi-home", python, ("aws", "eks", "kubernetes"))

The engine (v3.250.0, `workspace/plugins.go`) looks for the language host next to its own executable, with symbolic
links resolved, and for providers in folders of `$PULUMI_HOME/plugins` that are named after kind, name and version. A
plug-in on PATH wins over both, with a warning. So the engine's executable is a hard link in the folder of the commands,
and the stand-ins get a plug-in cache of their own, in which the user's official plug-ins appear as folders of links.
The user's own cache is only read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from scripts.toolchain import binary, paths
from scripts.toolchain.errors import ToolMissing

STANDINS = ("aws", "eks", "kubernetes")
_BIN = paths.LOCALCLOUD / "localcloud" / "standins" / "bin"
LANGUAGE_HOST = _BIN / "pulumi-language-python"
_USERS_CACHE = "users-plugins"
"""In a Pulumi home of ours: a link to the plug-in cache that the user had before."""


def install(commands: Path, home: Path, python: Path, standins: tuple[str, ...]) -> None:
    """Make `commands` hold the engine and the language host, and `home` the provider stand-ins named in `standins`.

    Args:
        commands: The folder that goes on PATH.
        home: The engine's PULUMI_HOME.
        python: The interpreter with the SDKs; their versions are those that the engine asks for.
        standins: Some of `STANDINS`. With none, `home` uses the user's plug-in cache itself.
    """
    commands.mkdir(parents=True, exist_ok=True)
    _place_engine(binary("pulumi").resolve(), commands / "pulumi")
    link(commands / LANGUAGE_HOST.name, LANGUAGE_HOST)
    shared = _users_cache()
    home.mkdir(parents=True, exist_ok=True)
    link(home / _USERS_CACHE, shared)
    if standins:
        cache = home / "-".join(["plugins", *sorted(standins)])
        wanted = {**_official(shared, standins), **{f"resource-{n}-v{_version(python, n)}": _ours(n) for n in standins}}
        _fill(cache, wanted)
    else:
        cache = shared
        cache.mkdir(parents=True, exist_ok=True)
    link(home / "plugins", cache)


def link(path: Path, target: Path) -> None:
    """Make `path` a symbolic link to `target` in one step, whatever link or file it was before."""
    if not path.is_symlink() or os.readlink(path) != str(target):
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.symlink_to(target)
        draft.replace(path)


def link_all(folder: Path, wanted: Mapping[str, Path]) -> None:
    """Make the links in `folder` those of `wanted`, name to target; what isn't a link stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_symlink() and path.name not in wanted:
            path.unlink(missing_ok=True)
    for name, target in wanted.items():
        link(folder / name, target)


def _place_engine(engine: Path, target: Path) -> None:
    """A hard link, or a copy where the file system allows none: a symbolic link would be resolved to its target."""
    if target.exists() and not target.is_symlink() and _same(engine, target):
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        os.link(engine, draft)
    except OSError:
        shutil.copy2(engine, draft)
    draft.replace(target)


def _same(one: Path, other: Path) -> bool:
    a, b = one.stat(), other.stat()
    return os.path.samestat(a, b) or (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


def _users_cache() -> Path:
    """The plug-in cache of the user's Pulumi home; within an activated shell, of the home before the activation."""
    home = Path(os.environ.get("PULUMI_HOME") or "~/.pulumi").expanduser()
    kept = home / _USERS_CACHE
    return kept.resolve() if kept.is_symlink() else (home / "plugins").resolve()


def _version(python: Path, name: str) -> str:
    """The version of the provider that the installed SDK asks for."""
    found = list(python.parent.parent.glob(f"lib/python3.*/site-packages/pulumi_{name}/pulumi-plugin.json"))
    if not found:
        raise ToolMissing(f"the Python package pulumi-{name}")
    return str(json.loads(found[0].read_text())["version"])


def _ours(name: str) -> dict[str, Path]:
    executable = f"pulumi-resource-{name}"
    return {executable: _BIN / executable}


def _official(shared: Path, standins: tuple[str, ...]) -> dict[str, dict[str, Path]]:
    """The plug-ins of the user's cache that no stand-in replaces: folder name to its files."""
    replaced = tuple(f"resource-{name}-v" for name in standins)
    return {
        folder.name: {file.name: file for file in folder.iterdir()}
        for folder in (shared.iterdir() if shared.is_dir() else ())
        if folder.is_dir() and not folder.name.startswith(replaced) and not _being_installed(folder)
    }


def _fill(cache: Path, wanted: Mapping[str, Mapping[str, Path]]) -> None:
    """Make one folder of links for each plug-in; what the engine itself downloaded into `cache` stays."""
    cache.mkdir(exist_ok=True)
    for folder in cache.iterdir():
        if folder.is_dir() and folder.name not in wanted and _holds_links_only(folder):
            shutil.rmtree(folder, ignore_errors=True)
    for name, files in wanted.items():
        if not (cache / name).is_dir() or _holds_links_only(cache / name):
            link_all(cache / name, files)


def _holds_links_only(folder: Path) -> bool:
    return not _being_installed(folder) and all(file.is_symlink() for file in folder.iterdir())


def _being_installed(folder: Path) -> bool:
    """The engine keeps an empty file next to the folder of a plug-in until its installation is complete."""
    return folder.with_name(f"{folder.name}.partial").exists()
