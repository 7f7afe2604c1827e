"""What each part requires of the machine, and the errors if a requirement is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from scripts.toolchain import go_tools, paths
from scripts.toolchain.commands import Console
from scripts.toolchain.image import build
from scripts.toolchain.table import DEVICE_PLUGIN, MONITORING_TOOLS, TOOLS


def test_the_tools_of_a_module_are_built_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Go that writes what it is asked to build shows the command, and the names that `go build` gives to programs."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        "#!/bin/sh\n[ $1 = build ] || { echo go1.99.0; exit 0; }\n"
        f'echo "$*" >>{tmp_path}/asked\n'
        'while [ "$1" != -o ]; do shift; done\n'
        'mkdir "$2" && cd "$2"\n'
        'printf "#!/bin/sh\\necho 3.5.21\\n" | tee server >etcdctl\n'
        "chmod 755 server etcdctl\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "cache"))
    (step,) = go_tools.steps({name: TOOLS[name] for name in ("etcd", "etcdctl")})
    step.run(Console(lambda line: None), tmp_path / "log")
    assert step.done()
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.endswith("/ go.etcd.io/etcd/server/v3 go.etcd.io/etcd/etcdctl/v3")
    assert sorted(path.name for path in paths.tool_path(TOOLS["etcd"]).parent.iterdir()) == ["etcd", "etcdctl"]


def test_the_base_layer_has_a_shell_python_and_ps_and_keeps_no_sources() -> None:
    command = build.base_command(Path("/x/base.tar"))
    assert "--variant=minbase" in command
    assert "--include=python3,libstdc++6,ca-certificates,nftables,iproute2,procps" in command
    assert any('>"$1/etc/apt/sources.list"' in part for part in command)


def test_images_with_the_same_layer_differ_only_in_configuration() -> None:
    images = {image.name.removeprefix("docker.io/localcloud/"): image for image in build.images(Path("/w"))}
    tools = {"pause:1", "etcd:3.5.21", "coredns:1.12.4", "karpenter:1.14.0"}
    wanted = tools | {"shell:1", "pytorch:2.14.1", "aws-cli:1", "k8s-device-plugin:0.20.0"}
    assert images.keys() - {"prometheus:3.13.5"} == wanted
    assert images["pytorch:2.14.1"].layer == images["shell:1"].layer == images["aws-cli:1"].layer
    assert images["pytorch:2.14.1"].env == {"PYTHONPATH": "/opt/site-packages"}
    assert images["k8s-device-plugin:0.20.0"].layer == images["shell:1"].layer
    assert "Entrypoint" not in images["etcd:3.5.21"].config


def test_the_device_plugin_here_has_the_version_of_the_one_on_aws() -> None:
    default = yaml.safe_load((paths.CHECKOUT / "Pulumi.yaml").read_text())["config"]["devicePluginImage"]["default"]
    assert default.partition(":")[2] == DEVICE_PLUGIN


def test_a_changed_recipe_is_built_in_a_new_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.folder()
    assert build.folder() == before
    monkeypatch.setattr(build, "BASE_PACKAGES", ("python3",))
    assert build.folder() != before


def test_other_plug_ins_of_coredns_make_another_build_and_another_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, image = paths.tool_path(TOOLS["coredns"]), build.folder()
    (tmp_path / "coredns").mkdir()
    (tmp_path / "coredns" / "main.go").write_text("package main\n")
    (tmp_path / "coredns" / "go.mod").write_text("module tidewater.dev/toolchain/coredns\n")
    (tmp_path / "pause.c").write_bytes((paths.HERE / "pause.c").read_bytes())
    monkeypatch.setattr(paths, "HERE", tmp_path)
    assert paths.tool_path(TOOLS["coredns"]) != built
    assert build.folder() != image
    assert built.parent.name.startswith("coredns-v1.12.4-")


def test_prometheus_is_in_the_image_once_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path))
    before = build.folder()
    assert not [image.name for image in build.images(Path("/w")) if "prometheus" in image.name]
    built = paths.tool_path(MONITORING_TOOLS["prometheus"])
    built.parent.mkdir(parents=True)
    built.touch()
    (made,) = [image for image in build.images(Path("/w")) if "prometheus" in image.name]
    assert made.name == "docker.io/localcloud/prometheus:3.13.5"
    assert build.folder() != before


def test_the_nodes_have_every_image_that_the_local_stack_names() -> None:
    config = yaml.safe_load((paths.CHECKOUT / "Pulumi.local.yaml").read_text())["config"]
    named = {f"docker.io/{value}" for key, value in config.items() if key.lower().endswith("image")}
    assert named <= {image.name for image in build.images(Path("/w"))}
