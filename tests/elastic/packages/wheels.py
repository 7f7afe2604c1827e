"""Small wheels, as an index has them, and their lines in a lock."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    number: str = "1.0",
    *,
    metadata: tuple[str, ...] = (),
    files: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
) -> str:
    """Write a wheel; return its line in a lock."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{number}.dist-info"
    content = {
        **(files or {f"{name}.py": f"VERSION = {number!r}\n"}),
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {number}", *metadata, ""]),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [f"{path},sha256={_record(text)},{len(text.encode())}" for path, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    path = folder / f"{name}-{number}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in content.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return locked(path, name, number)


def locked(path: Path, name: str, number: str = "1.0") -> str:
    """Return the line of a file in a lock."""
    return f"{name}=={number} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _record(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
