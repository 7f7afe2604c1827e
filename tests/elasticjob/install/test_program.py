"""The controller's program: complete, small, and named after what is in it."""

from __future__ import annotations

import base64
import bz2
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tidewater.contract.controller_program import REQUIREMENTS
from tidewater.elasticjob import install
from tidewater.elasticjob.install import pods, program
from tidewater.elasticjob.install.zip_main import MODULES

ROOT = Path(__file__).resolve().parents[3]

ANNOTATIONS_LIMIT = 256 * 1024
"""Bytes that the annotations of an object may have in all; `kubectl apply` stores the object itself in one."""


def test_it_has_the_sources_the_locked_packages_and_an_entry_point() -> None:
    files = install.Program.read(ROOT).files
    assert "tidewater/elasticjob/names.py" in files
    assert "tidewater/controller/start.py" in files
    assert b"lightkube==" in files[REQUIREMENTS]
    assert program.ENTRY in files
    assert not [name for name in files if "__pycache__" in name]


def test_a_change_of_what_the_controller_does_not_import_leaves_it_as_it_is(tmp_path: Path) -> None:
    places = [f"{package}/__init__.py" for package in program.PACKAGES]
    for name in (program.INIT, REQUIREMENTS, *places):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    before = install.Program.read(tmp_path)
    for name in program.LEFT_OUT:
        path = tmp_path / (name if name.endswith(".py") else f"{name}new.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    assert install.Program.read(tmp_path) == before


def test_every_module_of_the_controller_can_be_imported_from_the_program_alone(tmp_path: Path) -> None:
    files = install.Program.read(ROOT)
    with zipfile.ZipFile(io.BytesIO(files.zipped())) as zipped:
        (tmp_path / "modules.zip").write_bytes(bz2.decompress(zipped.read(MODULES)))
    modules = [
        name.removesuffix(".py").replace("/", ".") for name in files.files if name.startswith("tidewater/controller/")
    ]
    modules = [
        name.removesuffix(".__init__") for name in modules if "__main__" not in name and "requirements" not in name
    ]
    code = f"import sys; sys.path.insert(0, 'modules.zip'); [__import__(name) for name in {modules!r}]"
    code += "; import tidewater.contract as contract; assert contract.__file__.startswith(sys.path[0])"
    ran = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_kubectl_can_apply_it() -> None:
    made = pods.program_map(install.Installation(program=install.Program.read(ROOT)))
    assert len(json.dumps(made)) < ANNOTATIONS_LIMIT * 5 // 8  # as it grows, say so before a user does


def test_its_digest_depends_on_names_and_contents_only() -> None:
    one = install.Program({program.ENTRY: b"1", "b": b"2"})
    other = install.Program({"b": b"2", program.ENTRY: b"1"})
    assert one.digest == other.digest
    assert one.digest != install.Program({program.ENTRY: b"12", "b": b""}).digest
    assert one.zipped() == other.zipped()


def test_a_place_without_the_controller_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "tidewater" / "controller").mkdir(parents=True)
    for name in (program.INIT, REQUIREMENTS):
        (tmp_path / name).write_text("")
    (tmp_path / "tidewater" / "contract").mkdir()
    with pytest.raises(FileNotFoundError, match="tidewater/contract"):
        install.Program.read(tmp_path)


def run(tmp_path: Path, main: bytes, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a pod does, with another main module."""
    real = install.Program.read(ROOT).files
    ours = {name: content for name, content in real.items() if not name.startswith("tidewater/controller/")}
    ours |= {
        name: real[name] for name in ("tidewater/controller/__init__.py", "tidewater/controller/start.py", REQUIREMENTS)
    }
    ours["tidewater/controller/__main__.py"] = main
    wanted = install.Installation(program=install.Program(ours))
    path = tmp_path / pods.PROGRAM_FILE
    path.write_bytes(base64.b64decode(pods.program_map(wanted)["binaryData"][pods.PROGRAM_FILE]))
    return subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, check=False)


def test_python_runs_the_controller_from_the_config_map(tmp_path: Path) -> None:
    ran = run(tmp_path, b"import sys; print('controller', sys.argv[1:], __name__)", "--x")
    assert ran.stdout == "controller ['--x'] __main__\n", ran.stderr


def test_a_traceback_shows_the_lines_of_the_program(tmp_path: Path) -> None:
    main = b"import logging\n\ntry:\n    1 / 0  # wrong\nexcept ZeroDivisionError:\n    logging.exception('error')\n"
    assert 'tidewater/controller/__main__.py", line 4, in <module>\n    1 / 0  # wrong' in run(tmp_path, main).stderr
