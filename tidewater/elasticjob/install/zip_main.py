"""Entry point of the controller's zip: make its modules importable, then start the controller.

The modules are a zip within that zip, compressed as a whole. That is 40 % smaller than to compress each module alone,
as in the only zips that Python imports from. They are decompressed into memory: the pod has no files that it may write
and that are gone when its container restarts.
"""

from __future__ import annotations

import bz2
import importlib
import os
import sys
import zipfile

MODULES = "modules.zip.bz2"


def main() -> None:
    """Replace the zip in Python's search path by the modules in it, and start the controller."""
    with zipfile.ZipFile(sys.path[0]) as program:
        modules = bz2.decompress(program.read(MODULES))
    memory = os.memfd_create("modules")
    with open(memory, "wb", closefd=False) as file:
        file.write(modules)
    sys.path[0] = f"/proc/self/fd/{memory}"
    importlib.import_module("tidewater.controller.start").main()


if __name__ == "__main__":
    main()
