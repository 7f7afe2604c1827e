"""The controller's program: its sources as one zip that Python runs, small enough for a ConfigMap.

    program = Program.read()
    program.digest                        # changes if, and only if, a file changes
    python3 controller.zip                # runs `tidewater.controller.start`, then the controller

So the controller runs in any image with Python, and no image has to be built for a change of its code.
"""

from __future__ import annotations

import bz2
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidewater.contract.archive import to_zip
from tidewater.contract.controller_program import REQUIREMENTS
from tidewater.elasticjob.install.zip_main import MODULES

PACKAGES = ("tidewater/contract", "tidewater/controller", "tidewater/elasticjob", "tidewater/kube")
INIT = "tidewater/__init__.py"
LEFT_OUT = (
    "tidewater/contract/archive.py",
    "tidewater/contract/code.py",
    "tidewater/contract/devices.py",
    "tidewater/contract/keys.py",
    "tidewater/contract/leaving.py",
    "tidewater/contract/metrics.py",
    "tidewater/contract/pod_defaults.py",
    "tidewater/contract/stack.py",
    "tidewater/elasticjob/crd.py",
    "tidewater/elasticjob/install/",
    "tidewater/elasticjob/rules.py",
    "tidewater/elasticjob/schema.py",
    "tidewater/kube/advice.py",
    "tidewater/kube/cluster.py",
    "tidewater/kube/http.py",
    "tidewater/kube/kubeconfig.py",
    "tidewater/kube/login.py",
    "tidewater/kube/server.py",
)
"""What of these packages the controller doesn't import. It would restart the controller when it changes."""

ROOT = Path(__file__).resolve().parents[3]
"""The checkout, or the `site-packages` of an installation."""

ENTRY = "__main__.py"
_ENTRY_FILE = Path(__file__).with_name("zip_main.py")


@dataclass(frozen=True)
class Program:
    """The files of the zip: path to content."""

    files: Mapping[str, bytes]

    @classmethod
    def read(cls, root: Path = ROOT) -> Program:
        """Read the packages that lie in `root`.

        Raises:
            FileNotFoundError: `root` lacks one of them, or the requirements.
        """
        files = {ENTRY: _ENTRY_FILE.read_bytes(), **{name: (root / name).read_bytes() for name in (INIT, REQUIREMENTS)}}
        for package in PACKAGES:
            found = sorted((root / package).rglob("*.py"))
            if not found:
                raise FileNotFoundError(f"{root / package} has no Python files, so the controller can't be packed")
            files |= {path.relative_to(root).as_posix(): path.read_bytes() for path in found}
        return cls({name: content for name, content in files.items() if not name.startswith(LEFT_OUT)})

    @property
    def digest(self) -> str:
        """Return a digest of the files, in hexadecimal.

        It is not one of the zip: its bytes depend on the version of the library that compresses them.
        """
        digest = hashlib.sha256()
        for name in sorted(self.files):
            digest.update(f"{name}\0{len(self.files[name])}\0".encode() + self.files[name])
        return digest.hexdigest()

    def zipped(self) -> bytes:
        """Return the zip, compressed: `kubectl apply` keeps a copy of an object in an annotation of 256 KiB at most."""
        modules = {name: content for name, content in self.files.items() if name != ENTRY}
        packed = bz2.compress(to_zip(modules))
        return to_zip({ENTRY: self.files[ENTRY], MODULES: packed})
