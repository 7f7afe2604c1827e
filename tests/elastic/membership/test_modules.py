"""The script's own modules are found wherever they are, and installed packages by their versions."""

from __future__ import annotations

import importlib
import importlib.util
import py_compile
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import numpy
import PIL
import pytest
import torch

from tidewater.elastic.membership.modules import digests, own_sources, versions
from tidewater.elastic.script.content import script_digest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that writes modules into a folder and imports them; they are forgotten at the end."""
    known = dict(sys.modules)

    def place(folder: str, *imported: str, **files: str) -> None:
        for name, text in files.items():
            path = tmp_path / folder / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        for name in imported:
            sys.modules.pop(name, None)
            importlib.import_module(name)

    yield place
    for name in sys.modules.keys() - known.keys():
        del sys.modules[name]


def digest(name: str) -> str:
    return digests(own_sources())[name]


def test_a_module_is_known_by_its_content_wherever_it_is(place: Callable[..., None]) -> None:
    found = []
    for folder, text in (("one", "a = 1"), ("two/deep", "a = 1"), ("three", "a = 2")):
        place(folder, "my_model", my_model=text)
        found.append(digest("my_model"))
    assert found[0] == found[1] != found[2]


def test_modules_of_packages_and_those_that_are_imported_late_are_found(place: Callable[..., None]) -> None:
    files = {
        "my_nets__in____init__": "",
        "my_nets__in__unet": "def late():\n    import my_layers",
        "my_layers": "b = 3",
    }
    place("project", "my_nets.unet", **files)
    assert {"my_nets", "my_nets.unet"} <= own_sources().keys()
    assert "my_layers" not in own_sources()
    sys.modules["my_nets.unet"].late()
    assert own_sources()["my_layers"] == "b = 3"


def test_modules_in_a_zip_file_are_found(tmp_path: Path, place: Callable[..., None]) -> None:
    with zipfile.ZipFile(tmp_path / "bundle.zip", "w") as bundle:
        bundle.writestr("my_zipped.py", "c = 4")
    place("bundle.zip", "my_zipped")
    assert own_sources()["my_zipped"] == "c = 4"


def test_what_is_installed_compiled_or_made_up_is_left_out(tmp_path: Path, place: Callable[..., None]) -> None:
    (tmp_path / "libs" / "my_lib-1.dist-info").mkdir(parents=True)  # pip install --target libs
    place("libs", "my_lib", my_lib="d = 5")
    place(".venv/lib/site-packages", "my_other_lib", my_other_lib="e = 6")
    source = tmp_path / "compiled.py"
    source.write_text("f = 7")
    (tmp_path / "bare").mkdir()
    py_compile.compile(str(source), cfile=str(tmp_path / "bare" / "my_compiled.pyc"))
    place("bare", "my_compiled")
    generated = ModuleType("my_kernel")  # as torch's compiler registers the code that it generates
    generated.__file__ = str(source)
    sys.modules["my_kernel"] = generated
    assert not {"my_lib", "my_other_lib", "my_compiled", "my_kernel", "torch", "json"} & own_sources().keys()
    assert not any(name.partition(".")[0] == "tidewater" for name in own_sources())


@pytest.mark.parametrize("sort", ["console_scripts", "none"])
def test_an_installed_command_is_known_by_what_it_calls_and_another_program_by_its_source(
    sort: str, tmp_path: Path, place: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, scripts, seen = [], [], []
    for venv, text in (("one", "import re, sys"), ("two", "import sys")):
        libs, bin_ = tmp_path / venv / "site-packages", tmp_path / venv / "bin"
        (libs / "my_tool-3.dist-info").mkdir(parents=True)
        (libs / "my_tool-3.dist-info" / "METADATA").write_text("Name: my_tool\nVersion: 3\n")
        (libs / "my_tool-3.dist-info" / "entry_points.txt").write_text(f"[{sort}]\nmy-train = my_tool.cli:main\n")
        bin_.mkdir()
        (bin_ / "my-train").write_text(f"#!{bin_}/python\n{text}\nfrom my_tool.cli import main\n")
        main = ModuleType("__main__")
        main.__file__ = str(bin_ / "my-train")
        main.__loader__ = SourceFileLoader("__main__", main.__file__)
        with monkeypatch.context() as process:
            process.syspath_prepend(str(libs))
            process.setitem(sys.modules, "__main__", main)
            process.setattr(sysconfig, "get_path", lambda name, here=bin_: str(here if name == "scripts" else "/usr"))
            found.append(digest("__main__"))
            scripts.append(script_digest())
            seen.append(versions(own_sources()).get("my_tool"))
    alike = sort == "console_scripts"
    assert (found[0] == found[1]) is (scripts[0] == scripts[1]) is alike
    assert "" not in scripts
    assert seen == ["3", "3"]


def test_an_object_that_only_says_that_it_is_a_module_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """As cffi's, which `cryptography` puts among the modules."""

        __slots__ = ()
        __class__ = ModuleType  # type: ignore[assignment]
        __file__ = "/opt/my_library.so"

    monkeypatch.setitem(sys.modules, "my_library", Library())
    assert "my_library" not in own_sources()


def test_a_module_that_is_imported_lazily_stays_so(place: Callable[..., None]) -> None:
    place("project", my_lazy="raise AssertionError('it was imported')")
    spec = importlib.util.find_spec("my_lazy")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules["my_lazy"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "my_lazy" in own_sources()


def test_versions_are_those_of_torch_and_of_the_packages_that_the_script_imports() -> None:
    source = "import os, numpy as np\nimport PIL.Image\nfrom my_own import x\nfrom . import y\nimport not_installed\n"
    found = versions({"__main__": source, "my_own": "def late():\n    from pytest import fixture\n"})
    assert found.keys() == {"Python", "numpy", "torch", "PIL", "pytest"}
    assert found["torch"] == torch.__version__
    assert (found["numpy"], found["PIL"]) == (numpy.__version__, PIL.__version__)
    assert found["Python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
