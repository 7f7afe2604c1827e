"""What installed packages need of the image, and the image of them."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.packages.wheels import wheel
from tidewater.elastic.packages.needs import unmet


def unmet_of(folder: Path, **changes: Any) -> list[str]:
    """Return what is wrong with the packages that were written to `folder`, and alpha with `changes`."""
    wheel(folder, "alpha", **changes)
    for path in folder.glob("*.whl"):
        zipfile.ZipFile(path).extractall(folder)
    return unmet(folder, sys.path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"metadata": ("Requires-Dist: torch==1.2.3",)}, "and the image has torch", id="torch"),
        pytest.param({"metadata": ("Requires-Dist: numpy (<1)",)}, "needs numpy<1, and the image has", id="numpy"),
        pytest.param(
            {"metadata": ("Requires-Dist: gamma>=2 ; sys_platform == 'linux'",)},
            "alpha 1.0 needs gamma>=2, which neither the lock nor the image has",
            id="absent",
        ),
        pytest.param({"files": {"torch/__init__.py": ""}}, "alpha 1.0 brings the module torch", id="brings-torch"),
        pytest.param({"files": {"numpy.py": ""}}, "alpha 1.0 brings the module numpy", id="brings-numpy"),
        pytest.param({"files": {"triton/__init__.py": ""}}, "alpha 1.0 brings the module triton", id="brings-triton"),
        pytest.param({"files": {"tidewater/x.py": ""}}, "alpha 1.0 brings the module tidewater", id="tidewater"),
    ],
)
def test_a_need_that_is_not_met_is_one_sentence(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    (sentence,) = unmet_of(tmp_path, **changes)
    assert words in sentence


def test_needs_that_do_not_hold_here_do_not_count(tmp_path: Path) -> None:
    needs = ("torch==1 ; sys_platform == 'win32'", "gamma ; extra == 'more'", "torch>=2", "-c is no requirement")
    assert unmet_of(tmp_path, metadata=tuple(f"Requires-Dist: {need}" for need in needs)) == []


def test_packages_of_the_lock_are_not_compared_with_each_other(tmp_path: Path) -> None:
    wheel(tmp_path, "Beta_X")
    assert unmet_of(tmp_path, metadata=("Requires-Dist: beta.x>=2",)) == []


def test_a_package_older_than_the_images_torch_needs_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path, "fsspec", "0.1")
    (sentence,) = unmet_of(tmp_path)
    assert sentence.startswith(f"torch {version('torch')} of the image needs fsspec>=")
    assert "and the lock has fsspec 0.1" in sentence
