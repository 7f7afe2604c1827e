"""What the machine lacks is said in one sentence, before anything is downloaded or built."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.toolchain import __main__ as command
from scripts.toolchain import debian, go_tools, machine, paths, python_packages, steps
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.image import build
from scripts.toolchain.steps import Step
from scripts.toolchain.table import BENCH_TOOLS, PREVIOUS_TOOLS, SYSTEMS, TOOLS, System

BASE = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
BOOKWORM = {"ID": "debian", "VERSION_CODENAME": "bookworm", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}
HERE = debian.here()
UNBUILT = Step("etcd", done=lambda: False, run=lambda console, log: pytest.fail("it was built"), disk_gib=4)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.codename)
def test_only_the_python_version_of_the_pods_is_accepted(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "here", lambda: system)
    python_packages.check_python(system.python, "python3")
    other, wanted = (3, 14), re.escape(system.python_name)
    with pytest.raises(StepFailed, match=rf"python3 is Python 3\.14 and this needs {wanted} on .*: .*make PYTHON="):
        python_packages.check_python(other, "python3")


def test_a_missing_go_is_an_error_that_names_the_version_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepFailed, match=r"Go isn't on PATH: install Go 1\.\d+"):
        go_tools.check_go(paths.HERE / "kubernetes")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            "echo 'go: go.mod requires go >= 1.25.0 (running go 1.19)' >&2; exit 1", id="it refuses the module"
        ),
        pytest.param("echo go1.19.8", id="it doesn't read the module's line"),
    ],
)
def test_an_older_go_is_an_error_that_names_both_versions(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(StepFailed, match=r"needs Go 1\.25\.0 or later, .*go ?1\.19.*install a newer one"):
        go_tools.check_go(paths.HERE / "kubernetes")


@pytest.mark.parametrize(
    ("newer", "older"), [("go1.26.8", "1.26.5"), ("go1.27rc1", "1.26.5"), ("go1.26.5", "go1.26"), ("go1.10", "go1.9.9")]
)
def test_versions_of_go_are_compared_by_their_numbers(newer: str, older: str) -> None:
    assert go_tools._numbers(newer) > go_tools._numbers(older)


@pytest.mark.parametrize(
    ("release", "processor", "named"),
    [
        pytest.param(
            {"ID": "ubuntu", "VERSION_CODENAME": "jammy", "PRETTY_NAME": "Ubuntu 22.04.5 LTS"},
            "x86_64",
            "Ubuntu 22.04.5 LTS",
            id="older",
        ),
        pytest.param(
            {"ID": "fedora", "VERSION_CODENAME": "", "PRETTY_NAME": "Fedora Linux 43"}, "x86_64", "Fedora", id="other"
        ),
        pytest.param(BOOKWORM, "aarch64", "aarch64", id="ARM"),
        pytest.param({}, "x86_64", "an unknown system", id="no os-release"),
    ],
)
def test_another_system_than_the_images_is_named(release: dict[str, str], processor: str, named: str) -> None:
    with pytest.raises(StepFailed, match=f"this is .*{re.escape(named)}.* needs Debian 12 or ") as caught:
        debian.system_of(release, processor)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.codename)
def test_the_nodes_image_is_of_the_machines_release(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    release = {"ID": system.distribution, "VERSION_CODENAME": system.codename}
    assert debian.system_of(release, "x86_64") == system
    before = build.folder()
    monkeypatch.setattr(debian, "here", lambda: system)
    assert build.base_command(Path("base.tar"))[-3:] == [system.codename, "base.tar", "-"]
    assert (build.folder() == before) is (system == HERE)


def test_there_must_be_room_for_all_steps_that_are_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of them alone there is."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=5 << 30))
    machine.check_disk([UNBUILT], tmp_path / "not" / "there")
    with pytest.raises(StepFailed, match=r"needs 8 GiB in .*cache and 5\.0 GiB are free: .*TIDEWATER_CACHE"):
        machine.check_disk([UNBUILT, UNBUILT], tmp_path / "cache")


def test_a_step_that_builds_with_go_has_a_module() -> None:
    tables = (TOOLS, BENCH_TOOLS, PREVIOUS_TOOLS)
    modules = [go_tools.module_of(step) for tools in tables for step in go_tools.steps(tools)]
    assert {module.name for module in modules if module} == {tool.module for tools in tables for tool in tools.values()}
    assert go_tools.module_of(debian.step()) is None


def test_nothing_is_installed_where_the_check_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make up` and `make test` are both refused."""
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(steps, "install", lambda listed, console: pytest.fail("something is installed"))
    for arguments in ("check", "install", "install-tests"):
        assert command.main([arguments]) == 1
        assert capsys.readouterr().err == (
            "error: only root can install packages and start nodes: run it as root, or with `sudo make …`\n"
        )


def test_an_installation_has_a_umask_of_its_own_and_roots_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person's umask may be 027 or 077, with which pods that aren't root couldn't read what is made.

    After `su` root has a person's PATH, with which dpkg ends with an error.
    """
    made: list[tuple[int, str]] = []
    monkeypatch.setattr(steps, "install", lambda listed, console: made.append((os.umask(0o022), os.environ["PATH"])))
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    before = os.umask(0o077)
    try:
        assert command.main(["install"]) == 0
    finally:
        os.umask(before)
    assert made == [(0o022, "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")]


@pytest.mark.parametrize(("mode", "done"), [(0o755, True), (0o750, False), (0o700, False)], ids=["022", "027", "077"])
def test_what_was_made_under_a_strict_umask_is_made_again(mode: int, done: bool, tmp_path: Path) -> None:
    folder = tmp_path / "packages"
    (folder / "torch" / "bin").mkdir(parents=True)
    (folder / "torch" / "module.py").touch(mode=0o600)
    (folder / "torch" / "bin" / "torchrun").touch(mode=0o700)
    (folder / "torch" / "bin").chmod(0o700)
    folder.chmod(mode)
    assert steps.readable(folder) is done
    steps.make_readable(folder)
    assert steps.readable(folder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder / "torch").rglob("*")}
    assert modes == {"module.py": 0o604, "bin": 0o705, "torchrun": 0o705}


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to drop")
@pytest.mark.parametrize("name", ["sys_admin", "net_admin"])
def test_a_capability_that_root_lacks_is_named_in_one_sentence(name: str) -> None:
    dropped = [f"--bounding-set=-{name}", f"--inh-caps=-{name}"]
    whole: list[str | Path] = ["setpriv", *dropped, BASE, "-m", "scripts.toolchain", "check"]
    done = subprocess.run(whole, cwd=paths.CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert f"CAP_{name.upper()}" in done.stderr
    assert "veth" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network namespace")
def test_without_a_network_nothing_is_built_before_it_is_said(tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TIDEWATER_CACHE": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "GOMODCACHE": str(tmp_path / "modules"),
    }
    done = subprocess.run(
        ["unshare", "--net", BASE, "-m", "scripts.toolchain", "install"],
        cwd=paths.CHECKOUT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "the package registry can't be reached: check the network" in done.stderr
    assert [path.name for path in (tmp_path / "cache" / "logs").iterdir()] == ["uv.log"]


@pytest.mark.parametrize("version", ["3.10", "3.8", "3.6"])
def test_an_older_python_is_refused_in_one_sentence(version: str) -> None:
    """Neither its parser nor its library has to know anything newer, in any command of `scripts`."""
    major, minor = map(int, version.split("."))
    older = (
        f"import ast, runpy, sys\nsys.version_info = ({major}, {minor}, 1, 'final', 0)\n"
        f"ast.parse(open('scripts/__init__.py').read(), feature_version=({major}, {minor}))\n"
        "runpy.run_module('scripts.toolchain', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run([BASE, "-c", older], cwd=paths.CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {BASE} is Python {version} and this needs 3.11 or later: install ")
    assert done.stderr.count("\n") == 1


def test_without_any_python_make_names_the_one_to_install(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = subprocess.run(
        [str(shutil.which("make")), "up"],
        cwd=paths.CHECKOUT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "install Python (apt-get install python3)" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("target", ["up", "test", "check", "e2e"])
def test_the_check_comes_first(target: str) -> None:
    """Of what `make` runs for a target."""
    done = subprocess.run(["make", "--dry-run", target], cwd=paths.CHECKOUT, capture_output=True, text=True, check=True)
    assert re.findall(r"-m scripts\.toolchain (\S+)", done.stdout)[0] == "check"


def needs() -> str:
    """Return what the documents must say that the machine needs."""
    *names, last = [system.name for system in SYSTEMS]
    *pythons, last_python = [system.python_name for system in SYSTEMS]
    newest = ".".join(map(str, max(go_tools.go_of(paths.HERE / tool.module) for tool in TOOLS.values())))
    gib = sum(step.disk_gib for step in command.all_steps(monitoring=True, torchx=True))
    return (
        f"{', '.join(names)} or {last} (x86-64) as root, with its own Python ({', '.join(pythons)} or {last_python}), "
        f"Go {newest} or later, make, git and "
        f"{5 * math.ceil(gib / 5)} GB of disk"
    )


@pytest.mark.parametrize("document", ["README.md", "docs/first-steps.md"])
def test_the_documents_list_what_the_check_checks(document: str) -> None:
    text = " ".join((paths.CHECKOUT / document).read_text().split())
    assert f"You need {needs()}" in text
    assert "`make machine`" in text
