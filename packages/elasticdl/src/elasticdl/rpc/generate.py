"""Make the Python code of `elasticdl.proto`: `make install` and the build of a wheel do. Git ignores the result.

    python packages/elasticdl/src/elasticdl/rpc/generate.py      # needs grpcio-tools of the version below

Run as a file, since the package refuses to be imported without this code.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DEFINITION = HERE / "elasticdl.proto"
PACKAGE = "elasticdl/rpc"
NAMES = ("elasticdl_pb2.py", "elasticdl_pb2.pyi", "elasticdl_pb2_grpc.py")
VERSION = "1.81.1"
"""Of grpcio-tools, as requirements/dev.txt and pyproject.toml have it. The code refuses an older grpcio."""


def header() -> str:
    """Return the first line of each file. It changes with the definition and with this file, which has the version."""
    digest = hashlib.sha256(DEFINITION.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    return f"# Made by generate.py: {digest}\n"


def problem() -> str:
    """Return what is wrong with the code here and what to do; empty if it is up to date.

    An installed package has no definition, so there only the presence of the code is checked.
    """
    missing = [name for name in NAMES if not (HERE / name).is_file()]
    if missing:
        return f"{HERE} lacks {', '.join(missing)}, which {DEFINITION.name} is compiled to: run `make install`"
    if DEFINITION.is_file():
        for name in NAMES:
            with (HERE / name).open() as file:
                if file.readline() != header():
                    return f"{HERE / name} is older than {DEFINITION.name}: run `make install`"
    return ""


def generate() -> None:
    """Write the code, each file whole.

    Raises:
        RuntimeError: the compiler is of another version, or refuses the definition; it has printed why.
    """
    from importlib.metadata import version

    from grpc_tools import protoc

    if version("grpcio-tools") != VERSION:
        raise RuntimeError(f"grpcio-tools is {version('grpcio-tools')}: install {VERSION}")
    with tempfile.TemporaryDirectory(dir=HERE, prefix=".generate-") as folder:
        source = Path(folder, "in", PACKAGE)
        source.mkdir(parents=True)
        (source / DEFINITION.name).write_bytes(DEFINITION.read_bytes())
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{folder}/in", *outputs, f"{PACKAGE}/{DEFINITION.name}"]):
            raise RuntimeError(f"protoc refuses {DEFINITION}")
        for name in NAMES:
            made = Path(folder, PACKAGE, name)
            made.write_text(header() + made.read_text())
            made.replace(HERE / name)


if __name__ == "__main__":
    generate()
