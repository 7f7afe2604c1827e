"""The files at an address, and one of them opened.

    files("s3://bucket/mnist/train")     # [Entry("s3://bucket/mnist/train/data-00000", "data-00000", 3_145_728), …]
    blob = open_blob("/data/mnist/train/data-00000")

An address is a path, a `file://` address or an `s3://` address.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from elasticdl.data.storage import local, s3
from elasticdl.data.storage.blob import Blob, Entry
from elasticdl.errors import DataError, MissingData

_KNOWN = "known are paths, file:///path and s3://bucket/prefix; another one needs a custom_data_reader"


def files(address: str) -> list[Entry]:
    """Return the files at an address, sorted by path: all in a folder, however deep, or the file itself.

    Files and folders whose name begins with a dot are left out. Raise MissingData if there is nothing.
    """
    if address.startswith(s3.SCHEME):
        found = list(s3.listed(address))
    else:
        path = local_path(address)
        with local.told(address):
            if not path.exists():
                raise MissingData(
                    f"{address}: there is no such file or folder", "check the path, and the job's --volume"
                )
            found = list(local.listed(path))
    seen = [entry for entry in found if not any(part.startswith(".") for part in entry.path.split("/"))]
    if not seen:
        raise MissingData(f"{address}: there are no files", "check the address, and that the data was written there")
    return sorted(seen, key=lambda entry: entry.path)


def open_blob(address: str) -> Blob:
    """Return a file, opened for reading; raise MissingData if there is none."""
    if address.startswith(s3.SCHEME):
        return s3.opened(address)
    path = local_path(address)
    if path.is_dir():
        raise DataError(f"{address} is a folder, not a file", "name a file in it")
    return local.LocalBlob(path)


def local_path(address: str) -> Path:
    """Return the path that an address names; raise DataError if it is of an unknown kind."""
    if "://" not in address:
        return Path(address)
    parts = urlsplit(address)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise DataError(f"{address}: unknown kind of address", _KNOWN)
    return Path(unquote(parts.path))
