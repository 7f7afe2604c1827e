"""The code of the definition is made by `make install` and with a wheel; code that is missing or old is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from elasticdl.rpc import generate

ROOT = Path(__file__).parents[4]
IMPORT = "import elasticdl.rpc.elasticdl_pb2_grpc as found; print(found.__file__)"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the package as git has it, without the code."""
    source, target = generate.HERE.parent, tmp_path / "elasticdl"
    target.mkdir()
    shutil.copy(source / "__init__.py", target)
    shutil.copytree(generate.HERE, target / "rpc", ignore=shutil.ignore_patterns("__pycache__", "elasticdl_pb2*"))
    return target / "rpc"


def ran(package: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=package.parents[1],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_code_the_import_names_the_command_that_makes_it(package: Path) -> None:
    missing = ran(package, "-c", IMPORT)
    assert f"ImportError: {package} lacks elasticdl_pb2.py, elasticdl_pb2.pyi, elasticdl_pb2_grpc.py" in missing.stderr
    assert missing.stderr.strip().endswith("run `make install`")
    made = ran(package, package / "generate.py")
    assert (made.returncode, made.stderr) == (0, "")
    assert sorted(path.name for path in package.glob("elasticdl_pb2*")) == sorted(generate.NAMES)
    assert not list(package.glob(".generate-*"))
    assert ran(package, "-c", IMPORT).stdout.strip() == str(package / "elasticdl_pb2_grpc.py")


def test_code_of_an_older_definition_is_refused_until_it_is_made_again(package: Path) -> None:
    ran(package, package / "generate.py")
    with (package / generate.DEFINITION.name).open("a") as file:
        file.write("message Another {}\n")
    old = ran(package, "-c", IMPORT)
    assert f"ImportError: {package}/elasticdl_pb2.py is older than elasticdl.proto: run `make install`" in old.stderr
    ran(package, package / "generate.py")
    assert ran(package, "-c", "from elasticdl.rpc.elasticdl_pb2 import Another").returncode == 0


def test_an_installed_package_needs_no_definition(package: Path) -> None:
    ran(package, package / "generate.py")
    (package / generate.DEFINITION.name).unlink()
    assert ran(package, "-c", IMPORT).returncode == 0


def test_a_definition_that_the_compiler_refuses_leaves_the_code_as_it_is(package: Path) -> None:
    ran(package, package / "generate.py")
    before = {name: (package / name).read_text() for name in generate.NAMES}
    with (package / generate.DEFINITION.name).open("a") as file:
        file.write("message {\n")
    refused = ran(package, package / "generate.py")
    assert "protoc refuses" in refused.stderr
    assert {name: (package / name).read_text() for name in generate.NAMES} == before


def test_the_version_of_the_compiler_is_the_same_everywhere() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert f"grpcio-tools=={generate.VERSION}" in required
    assert version("grpcio-tools") == generate.VERSION
