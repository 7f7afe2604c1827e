"""A project as archives: the same files have the same bytes on every machine.

to_tar(code, "training_project")
to_zip(lock_files(packages))
"""

from __future__ import annotations

import io
import stat
import tarfile

from tidewater.contract.code import TAR_FORMAT, add_file
from tidewater.project.folder import Code
from tidewater.project.lock import Packages


def to_tar(code: Code, folder: str) -> bytes:
    """Return a folder as a tar, in which it is named `folder`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=TAR_FORMAT, encoding="utf-8") as tar:
        add_code(tar, code, folder)
    return buffer.getvalue()


def add_code(tar: tarfile.TarFile, code: Code, folder: str) -> None:
    """Add the files of a folder to an archive. It depends only on names, contents, links and permission to execute."""
    for name in sorted({*code.files, *code.links}):
        if link := code.links.get(name):
            add_file(tar, f"{folder}/{name}", b"", link=link)
        else:
            path = code.folder / name
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            add_file(tar, f"{folder}/{name}", path.read_bytes(), executable=executable)


def lock_files(packages: Packages) -> dict[str, bytes]:
    """Return the files that `tidewater.elastic.packages` reads from a zip."""
    wheels = {f"lock/wheels/{path.name}": path.read_bytes() for path in packages.wheels}
    return {"lock/requirements.txt": packages.lock.encode(), **wheels}
