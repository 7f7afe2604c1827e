"""Make the Python code of `elasticdl.proto`: run `python -m elasticdl.rpc.generate` after a change of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = "packages/elasticdl/src/elasticdl/rpc"
NAMES = ("elasticdl_pb2.py", "elasticdl_pb2.pyi", "elasticdl_pb2_grpc.py")


def generated() -> dict[str, str]:
    """Return the files by their names.

    Raises:
        RuntimeError: the compiler refuses the definition; it has printed why.
    """
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in" / PACKAGE
        source.mkdir(parents=True)
        (source / "elasticdl.proto").write_bytes((HERE / "elasticdl.proto").read_bytes())
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{folder}/in", *outputs, f"{PACKAGE}/elasticdl.proto"]):
            raise RuntimeError("protoc refuses elasticdl.proto")
        return {name: (Path(folder) / PACKAGE / name).read_text() for name in NAMES}


if __name__ == "__main__":
    for name, text in generated().items():
        (HERE / name).write_text(text)
