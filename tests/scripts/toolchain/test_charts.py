"""Karpenter's charts come from the module that its controller is built from, and helm can render them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import toolchain
from scripts.toolchain import go_tools, paths
from scripts.toolchain.commands import Console
from scripts.toolchain.errors import StepFailed

DEFINITION = "CustomResourceDefinition"


def rendered(chart: str, *arguments: str) -> list[Mapping[str, Any]]:
    """Return the objects in a chart, the definitions in its folder `crds` included."""
    source = [toolchain.binary("helm"), "template", "release", toolchain.charts() / chart, "--include-crds"]
    command = [*map(str, source), "--set=settings.clusterName=any", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def test_the_definitions_are_in_a_chart_of_their_own() -> None:
    names = {each["metadata"]["name"] for each in rendered("karpenter-crd") if each["kind"] == DEFINITION}
    assert {"nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"} <= names
    assert DEFINITION not in {each["kind"] for each in rendered("karpenter")}


def test_the_controllers_image_can_be_one_of_the_nodes() -> None:
    image = {"repository": "localcloud/karpenter", "tag": "1.14.0", "digest": ""}
    objects = rendered("karpenter", f"--set-json=controller.image={json.dumps(image)}")
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("localcloud/karpenter:1.14.0", "IfNotPresent")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what a Go that downloads nothing calls the folder of Karpenter's module, with one of its charts."""
    folder = tmp_path / "module"
    (folder / "charts" / "karpenter" / "templates").mkdir(parents=True)
    (folder / "charts" / "karpenter" / "Chart.yaml").write_text("name: karpenter\n")
    (folder / "charts" / "karpenter" / "templates" / "role.yaml").write_text("kind: Role\n")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(f"#!/bin/sh\n[ $1 != list ] || echo {folder}\n[ $1 != env ] || echo go1.99.0\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "cache"))
    return folder


def test_the_charts_are_copied_with_their_templates(module: Path, tmp_path: Path) -> None:
    (module / "charts" / "karpenter-crd").mkdir()
    (module / "charts" / "karpenter-crd" / "Chart.yaml").write_text("name: karpenter-crd\n")
    step = go_tools.charts_step()
    assert not step.done()
    step.run(Console(lambda line: None), tmp_path / "log")
    assert step.done()
    assert (toolchain.charts() / "karpenter" / "templates" / "role.yaml").read_text() == "kind: Role\n"
    assert (toolchain.charts() / "karpenter-crd" / "Chart.yaml").is_file()


def test_a_module_without_a_chart_is_an_error_and_leaves_nothing(module: Path, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=rf"{module}/charts/karpenter-crd holds no chart"):
        go_tools.charts_step().run(Console(lambda line: None), tmp_path / "log")
    assert not paths.charts_folder().exists()


def test_a_go_that_knows_no_source_is_an_error(module: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").write_text("#!/bin/sh\n[ $1 != env ] || echo go1.99.0\n[ $1 != list ]\n")
    with pytest.raises(StepFailed, match=r"source of karpenter v1\.14\.0: see .*/log"):
        go_tools.charts_step().run(Console(lambda line: None), tmp_path / "log")


def test_what_is_copied_from_gos_folder_can_be_removed(tmp_path: Path) -> None:
    source = tmp_path / "module" / "templates"
    source.mkdir(parents=True)
    (source / "a.yaml").write_text("kind: A\n")
    (source / "a.yaml").chmod(0o444)
    source.chmod(0o555)
    go_tools.copy_tree(tmp_path / "module", tmp_path / "copy")
    source.chmod(0o755)
    copied = tmp_path / "copy" / "templates" / "a.yaml"
    assert copied.read_text() == "kind: A\n"
    assert os.stat(copied).st_mode & os.stat(copied.parent).st_mode & 0o200


def test_charts_of_another_version_are_in_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = paths.charts_folder()
    monkeypatch.setattr(paths, "KARPENTER", "v0.0.1")
    assert paths.charts_folder() != before
