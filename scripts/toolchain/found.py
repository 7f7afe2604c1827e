"""Finds a tool of the pinned version: in the cache, else on PATH.

A binary on PATH has to be asked for its version, which takes up to a quarter of a second, so the
answer is kept next to the builds until the file changes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

from scripts.toolchain.paths import HERE, cache, tool_path
from scripts.toolchain.table import Tool

_VERSION = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+)(?![\w.+-])")
_PROGRAM_INTERPRETER = 3  # ELF's PT_INTERP: names the dynamic loader


def locate(tool: Tool) -> Path | None:
    """Where `tool` is in the pinned version, or None."""
    built = tool_path(tool)
    if built.is_file():
        return built
    other = shutil.which(tool.name) if tool.version_arguments else None
    if other is None or not fits(tool, reported_version(tool, Path(other))):
        return None
    if tool.static and not is_static(Path(other)):
        return None
    return Path(other)


def fits(tool: Tool, reported: str) -> bool:
    """Whether what a binary printed names exactly the pinned version."""
    match = _VERSION.search(reported)
    return match is not None and match.group(1) == tool.version.removeprefix("v")


def reported_version(tool: Tool, path: Path) -> str:
    """What the binary at `path` prints when asked for its version, from memory if it's the same."""
    notes = cache() / "tools" / "on-path.json"
    status = path.stat()
    key = f"{path.resolve()}:{status.st_mtime_ns}:{status.st_size}"
    try:
        known: dict[str, str] = json.loads(notes.read_text())
    except (OSError, ValueError):
        known = {}
    if key not in known:
        known[key] = ask(path, tool.version_arguments)
        _write(notes, json.dumps(known))
    return known[key]


def sources(tool: Tool) -> Path | None:
    """The sources of the tool's module, as Go downloaded them to build it; None if they aren't there."""
    module = tool.package.partition("/cmd/")[0]
    done = subprocess.run(
        ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module],
        cwd=HERE / tool.module,
        capture_output=True,
        text=True,
        check=False,
    )
    folder = done.stdout.strip()
    return Path(folder) if done.returncode == 0 and folder else None


def is_static(path: Path) -> bool:
    """Whether the ELF file at `path` asks for no dynamic loader."""
    with path.open("rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return False
        offset = int.from_bytes(header[32:40], "little")
        size = int.from_bytes(header[54:56], "little")
        count = int.from_bytes(header[56:58], "little")
        file.seek(offset)
        table = file.read(size * count)
    kinds = (table[at : at + 4] for at in range(0, size * count, size))
    return all(int.from_bytes(kind, "little") != _PROGRAM_INTERPRETER for kind in kinds)


def ask(path: Path, arguments: tuple[str, ...]) -> str:
    """What the binary at `path` prints when run with `arguments`; "" if it can't be run."""
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:500]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")  # steps run in threads
    draft.write_text(text)
    draft.replace(path)
