"""Imports that can't succeed are found before anything starts, and no import that might succeed is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import settings
from tests import graph
from tests.elastic.packages.wheels import wheel
from tidewater.project.imports import Import, lacking, outside
from tidewater.project.lock import Packages

OFFICIAL = "pytorch/pytorch:2.14.1-cuda13.0-cudnn9-runtime"


def wanted(place: Path, files: Mapping[str, str], script: str = "train.py") -> list[tuple[str, int, str]]:
    """Return what the script of a folder imports from elsewhere."""
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = outside(place, script, lambda name: (place / name).exists())
    return [(each.file, each.line, each.module) for each in found]


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        pytest.param("import json, timm.layers as t\nfrom einops import rearrange", ["timm", "einops"], id="plain"),
        pytest.param("import os\nos.environ['A'] = '1'\nimport timm", ["timm"], id="after-an-assignment"),
        pytest.param("try:\n    import timm\nexcept ImportError:\n    timm = None\nimport peft", ["peft"], id="try"),
        pytest.param("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import timm", [], id="type-checking"),
        pytest.param("def main():\n    import timm", [], id="function"),
        pytest.param("import sys\nsys.path.insert(0, 'lib')\nimport timm", [], id="path"),
        pytest.param("import timm\nimport site\nsite.addsitedir('lib')", [], id="site"),
        pytest.param("install('timm')\nimport timm", [], id="after-a-call"),
        pytest.param("import os\nif not os.getenv('X'):\n    raise SystemExit\nimport timm", [], id="after-an-end"),
        pytest.param("import timm\nsubprocess.run(['pip', 'install', 'timm'])", [], id="pip"),
        pytest.param("from . import timm", [], id="relative"),
        pytest.param("import timm\ndef", [], id="syntax"),
        pytest.param(f"import timm\nx = {'1 + ' * 3000}1", [], id="deep"),
        pytest.param("import __main__", [], id="main"),
    ],
)
def test_only_imports_that_always_run_count(tmp_path: Path, text: str, modules: list[str]) -> None:
    assert [module for _, _, module in wanted(tmp_path, {"train.py": text})] == modules


def test_modules_of_the_folder_are_followed(tmp_path: Path) -> None:
    files = {
        "train.py": "from net.model import Net\nimport tools\nfrom net import extra",
        "net/__init__.py": "",
        "net/model.py": "from .layers import x\nimport timm",
        "net/layers.py": "import einops\nfrom .. import nothing",
        "net/extra.py": "import peft",
        "net/unused.py": "import trl",
        "tools.py": "import train\nimport torch",
    }
    assert wanted(tmp_path, files) == [
        ("net/layers.py", 1, "einops"),
        ("net/model.py", 2, "timm"),
        ("tools.py", 2, "torch"),
        ("net/extra.py", 1, "peft"),
    ]


def test_a_package_may_provide_the_name_of_its_module_itself(tmp_path: Path) -> None:
    files = {"train.py": "from net import extra", "net/__init__.py": "extra = 1", "net/extra.py": "import peft"}
    assert wanted(tmp_path, files) == []


def test_a_module_imports_from_the_folder_and_a_script_from_its_own(tmp_path: Path) -> None:
    files = {"pack/__init__.py": "", "pack/train.py": "import pack.net, net", "pack/net.py": "import timm"}
    assert wanted(tmp_path, files, "-m pack.train") == [("pack/net.py", 1, "timm"), ("pack/train.py", 1, "net")]
    assert [each[2] for each in wanted(tmp_path, {}, "pack/train.py")] == ["pack", "timm"]


@pytest.mark.parametrize(
    ("module", "lock", "is_lacking"),
    [
        pytest.param("timm", None, True, id="a-known-library"),
        pytest.param("timm", "alpha==1.0", True, id="not-in-the-lock"),
        pytest.param("timm", "timm==1.0", False, id="in-the-lock"),
        pytest.param("timm", "--index-url https://here\nalpha==1.0", False, id="another-index"),
        pytest.param("sklearn", "scikit-learn==1.0", False, id="another-name"),
        pytest.param("sklearn", "Scikit_Learn==1.0", False, id="not-normalised"),
        pytest.param("yaml", None, False, id="the-image-may-have-it"),
        pytest.param("mine", None, True, id="a-module-that-does-not-go"),
        pytest.param("mine", "alpha==1.0", False, id="a-package-may-bring-it"),
        pytest.param("tidewater", None, False, id="the-runtime"),
        pytest.param("wandb_runs", None, False, id="a-folder-without-modules"),
    ],
)
def test_what_no_official_image_has_is_lacking(tmp_path: Path, module: str, lock: str | None, is_lacking: bool) -> None:
    (tmp_path / "mine.py").touch()
    (tmp_path / "tidewater.py").touch()  # as in a checkout of Tidewater, where trainingScript may be
    (tmp_path / "wandb_runs").mkdir()
    packages = None if lock is None else Packages(lock, ())
    assert lacking(Import("train.py", 1, module), tmp_path, packages) is is_lacking


def test_what_a_wheel_of_another_name_brings_is_there(tmp_path: Path) -> None:
    line = wheel(tmp_path, "alpha", files={"timm/__init__.py": ""})
    packages = Packages(line, (tmp_path / "alpha-1.0-py3-none-any.whl",))
    assert not lacking(Import("train.py", 1, "timm"), tmp_path, packages)
    assert lacking(Import("train.py", 1, "peft"), tmp_path, packages)
    packages.wheels[0].write_bytes(b"no archive")
    assert lacking(Import("train.py", 1, "peft"), tmp_path, packages)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import json\nimport timm\n")
    return tmp_path


def mistakes(**config: str) -> list[str]:
    try:
        graph.parsed(**config)
    except settings.ConfigurationError as refused:
        return list(refused.mistakes)
    return []


def test_the_stack_refuses_it_with_an_official_image_only(project: Path) -> None:
    config = {"trainingCode": str(project), "trainingScript": "train.py"}
    (mistake,) = mistakes(**config, image=OFFICIAL)
    assert mistake == (
        "trainingScript = train.py: train.py, line 2, imports timm, and the workers would have no such module: add the "
        "package that brings it to the lock of trainingPackages, or correct the name; if it is a module of yours, set "
        "trainingCode to the folder that has it, and check that the ignore file there doesn't name it"
    )
    assert mistakes(**config, image="my/image:1") == []
    lock = project.parent / "lock.txt"
    lock.write_text(f"--find-links wheels\n{wheel(project.parent / 'wheels', 'timm')}\n")
    assert mistakes(**config, image=OFFICIAL, trainingPackages=str(lock)) == []


def test_modules_next_to_a_single_script_do_not_go(project: Path) -> None:
    (project / "train.py").write_text("import helpers\n")
    script = str(project / "train.py")
    assert mistakes(trainingScript=script, image=OFFICIAL) == []
    (project / "helpers.py").touch()
    (mistake,) = mistakes(trainingScript=script, image=OFFICIAL)
    assert "train.py, line 1, imports helpers, and the workers would have no such module" in mistake
    assert mistakes(trainingCode=str(project), trainingScript="train.py", image=OFFICIAL) == []
    (project / ".gitignore").write_text("helpers.py\n")
    assert len(mistakes(trainingCode=str(project), trainingScript="train.py", image=OFFICIAL)) == 1
