"""Tools are found by version: the build in the cache, or a binary on PATH of exactly the pinned version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import toolchain
from scripts.toolchain import found, paths
from scripts.toolchain.table import BENCH_TOOLS, TOOLS

KUBECTL = TOOLS["kubectl"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "cache"


def executable(path: Path, prints: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {prints!r}\necho asked >>{path}.asked\n")
    path.chmod(0o755)
    return path


def test_a_cached_build_is_used_without_running_it(tmp_path: Path) -> None:
    built = executable(paths.tool_path(KUBECTL), "anything")
    assert toolchain.binary("kubectl") == built
    assert not Path(f"{built}.asked").exists()


def test_a_suitable_binary_on_path_is_used_and_its_version_is_read_once(tmp_path: Path) -> None:
    other = executable(tmp_path / "bin" / "kubectl", "Client Version: v1.35.4")
    assert toolchain.binary("kubectl") == other
    assert toolchain.binary("kubectl") == other
    assert Path(f"{other}.asked").read_text() == "asked\n"


def test_the_version_of_a_changed_binary_on_path_is_read_again(tmp_path: Path) -> None:
    other = executable(tmp_path / "bin" / "kubectl", "Client Version: v1.35.4")
    assert found.locate(KUBECTL) == other
    executable(other, "Client Version: v1.36.0")
    os.utime(other, (1, 1))
    assert found.locate(KUBECTL) is None


def test_a_wrong_version_on_path_is_not_used_and_the_error_names_the_command_to_run(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "kubectl", "Client Version: v1.32.4-dispatcher")
    with pytest.raises(toolchain.ToolMissing, match=r"kubectl v1\.35\.4 is not set up .* `make up`"):
        toolchain.binary("kubectl")


def test_a_dynamically_linked_binary_is_not_used_for_an_image_without_libraries(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "etcd", "etcd Version: 3.5.21")
    assert found.locate(TOOLS["etcd"]) is None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        pytest.param("v1.35.4", True, id="bare"),
        pytest.param("Kubernetes v1.35.4\n", True, id="in a sentence"),
        pytest.param("v1.35.4-eks-abc", False, id="a vendor's build"),
        pytest.param("v1.35.40", False, id="longer number"),
        pytest.param("Client Version: v1.32.4\nKustomize Version: v5.5.0", False, id="the first one counts"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_only_the_exact_pinned_version_is_accepted(reported: str, expected: bool) -> None:
    assert found.fits(KUBECTL, reported) is expected


def test_a_missing_installation_is_an_error_that_names_the_remedy() -> None:
    wanted = (toolchain.stack_python, toolchain.trainer_site_packages, toolchain.node_image, toolchain.charts)
    for missing in wanted:
        with pytest.raises(toolchain.ToolMissing, match="run `make up`"):
            missing()


def test_a_tool_that_cannot_print_its_version_is_used_from_the_cache_only(tmp_path: Path) -> None:
    other = executable(tmp_path / "bin" / "training-operator", "v1.9.2")
    message = r"training-operator v1\.9\.2 is not set up .* `make bench-controller`"
    with pytest.raises(toolchain.ToolMissing, match=message):
        toolchain.bench_binary("training-operator")
    assert not Path(f"{other}.asked").exists()
    built = executable(paths.tool_path(BENCH_TOOLS["training-operator"]), "anything")
    assert toolchain.bench_binary("training-operator") == built
