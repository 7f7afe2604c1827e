"""What each part requires of the machine, and the errors if a requirement is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from scripts.toolchain import debian, go_tools, image_build, paths, python_packages
from scripts.toolchain.commands import Console
from scripts.toolchain.debian import Package
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.table import DEVICE_PLUGIN, MONITORING_TOOLS, TOOLS


@pytest.mark.parametrize(("version", "fits"), [((3, 11), True), ((3, 10), False), ((3, 12), False)])
def test_only_the_python_version_of_the_pods_is_accepted(version: tuple[int, int], fits: bool) -> None:
    if fits:
        python_packages.check_python(version, "python3")
        return
    with pytest.raises(StepFailed, match=r"python3 is Python 3\.1[02] and this needs 3\.11: .*make PYTHON="):
        python_packages.check_python(version, "python3")


def test_a_missing_go_is_an_error_that_names_the_version_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepFailed, match=r"Go isn't on PATH: install Go 1\.\d+"):
        go_tools.check_go(paths.HERE / "kubernetes")


def test_an_error_of_go_about_the_module_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'go: go.mod requires go >= 1.25.0 (running go 1.19)' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(StepFailed, match=r"the one on PATH .*running go 1\.19.*install a newer one"):
        go_tools.check_go(paths.HERE / "kubernetes")


def test_the_tools_of_a_module_are_built_by_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Go that writes what it is asked to build shows the command, and the names that `go build` gives to programs."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        "#!/bin/sh\n[ $1 = build ] || exit 0\n"
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


def test_without_root_missing_packages_are_listed_with_their_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "PACKAGES", (Package("containerd", str(tmp_path / "absent"), "runs containers"),))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StepFailed, match=r"only root can install containerd \(runs containers\)"):
        debian.step().run(Console(lambda line: None), tmp_path / "log")


def test_on_another_distribution_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian, "PACKAGES", (Package("runc", str(tmp_path / "absent"), "starts them"),))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(StepFailed, match=r"no apt-get\): install runc \(starts them\)"):
        debian.step().run(Console(lambda line: None), tmp_path / "log")


def test_the_debian_layer_has_a_shell_python_and_ps_and_keeps_no_sources() -> None:
    command = image_build.debian_command(Path("/x/debian.tar"))
    assert "--variant=minbase" in command
    assert "--include=python3,ca-certificates,nftables,iproute2,procps" in command
    assert any('>"$1/etc/apt/sources.list"' in part for part in command)


def test_images_with_the_same_layer_differ_only_in_configuration() -> None:
    images = {image.name.removeprefix("docker.io/localcloud/"): image for image in image_build.images(Path("/w"))}
    tools = {"pause:1", "etcd:3.5.21", "coredns:1.12.4", "karpenter:1.14.0"}
    wanted = tools | {"debian:12", "pytorch:2.14.1", "aws-cli:1", "k8s-device-plugin:0.20.0"}
    assert images.keys() - {"prometheus:3.13.5"} == wanted
    assert images["pytorch:2.14.1"].layer == images["debian:12"].layer == images["aws-cli:1"].layer
    assert images["pytorch:2.14.1"].env == {"PYTHONPATH": "/opt/site-packages"}
    assert images["k8s-device-plugin:0.20.0"].layer == images["debian:12"].layer
    assert "Entrypoint" not in images["etcd:3.5.21"].config


def test_the_device_plugin_here_has_the_version_of_the_one_on_aws() -> None:
    default = yaml.safe_load((paths.CHECKOUT / "Pulumi.yaml").read_text())["config"]["devicePluginImage"]["default"]
    assert default.partition(":")[2] == DEVICE_PLUGIN


def test_a_changed_recipe_is_built_in_a_new_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = image_build.folder()
    assert image_build.folder() == before
    monkeypatch.setattr(image_build, "DEBIAN_PACKAGES", ("python3",))
    assert image_build.folder() != before


def test_other_plug_ins_of_coredns_make_another_build_and_another_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, image = paths.tool_path(TOOLS["coredns"]), image_build.folder()
    (tmp_path / "coredns").mkdir()
    (tmp_path / "coredns" / "main.go").write_text("package main\n")
    (tmp_path / "coredns" / "go.mod").write_text("module tidewater.dev/toolchain/coredns\n")
    (tmp_path / "pause.c").write_bytes((paths.HERE / "pause.c").read_bytes())
    monkeypatch.setattr(paths, "HERE", tmp_path)
    assert paths.tool_path(TOOLS["coredns"]) != built
    assert image_build.folder() != image
    assert built.parent.name.startswith("coredns-v1.12.4-")


def test_prometheus_is_in_the_image_once_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path))
    before = image_build.folder()
    assert not [image.name for image in image_build.images(Path("/w")) if "prometheus" in image.name]
    built = paths.tool_path(MONITORING_TOOLS["prometheus"])
    built.parent.mkdir(parents=True)
    built.touch()
    (made,) = [image for image in image_build.images(Path("/w")) if "prometheus" in image.name]
    assert made.name == "docker.io/localcloud/prometheus:3.13.5"
    assert image_build.folder() != before


def test_the_nodes_have_every_image_that_the_local_stack_names() -> None:
    config = yaml.safe_load((paths.CHECKOUT / "Pulumi.local.yaml").read_text())["config"]
    named = {f"docker.io/{value}" for key, value in config.items() if key.lower().endswith("image")}
    assert named <= {image.name for image in image_build.images(Path("/w"))}
