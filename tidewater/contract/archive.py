"""A zip that has the same bytes for the same files on every machine: sorted names, fixed date, fixed permissions.

to_zip({"__main__.py": b"..."})
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3


def to_zip(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of `files`, path to content, which is not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = _UNIX
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()
