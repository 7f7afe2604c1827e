"""Builds the tools that PATH lacks from the Go modules next to this file; their go.sum pins every byte."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.toolchain import debian, downloads, found, paths, python_packages
from scripts.toolchain.commands import Console, run
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.steps import Step, draft_of, scratch_of
from scripts.toolchain.table import CHARTS, TOOLS, Tool

# For what Go downloads and compiles, and keeps.
_DISK_GIB = {"kubernetes": 3.0, "kubernetes_previous": 3.0}
_DISK_GIB_OF_OTHERS = 1.0
_UNCOLLECTED = {"GOGC": "off", "GOMEMLIMIT": "2GiB"}
"""The compilers collect no garbage below that, which is a fifth of their work. At most four run at the same time, most
with a few hundred MiB. https://go.dev/doc/gc-guide#Memory_limit"""


def steps(tools: Mapping[str, Tool]) -> list[Step]:
    """Return one step for each module of a table of tools, in its order."""
    modules: dict[str, list[Tool]] = {}
    for tool in tools.values():
        modules.setdefault(tool.module, []).append(tool)
    return [_step(module, built) for module, built in modules.items()]


def charts_step() -> Step:
    """Karpenter's charts, out of the module that its controller is built from."""
    made = paths.charts_folder
    # The build of the controller downloads the module.
    return Step("Karpenter charts", done=lambda: made().is_dir(), run=_copy_charts, disk_gib=0.1, after=("karpenter",))


def module_of(step: Step) -> Path | None:
    """Return the folder with the go.mod from which a step builds; None if it builds no tools."""
    module = paths.HERE / step.name.replace(" ", "_")
    return module if (module / "go.mod").is_file() else None


def go_of(module: Path) -> tuple[int, ...]:
    """Return the oldest version of Go that builds `module`."""
    lines = (module / "go.mod").read_text().splitlines()
    return _numbers(next(line.split()[1] for line in lines if line.startswith("go ")))


def check_go(module: Path) -> None:
    """Refuses to begin without a Go that can build `module`.

    Raises:
        StepFailed: there is none, or it is older than the module's go line.
    """
    wanted = ".".join(map(str, go_of(module)))
    if shutil.which("go") is None:
        raise StepFailed(
            f"Go isn't on PATH: install Go {wanted} or later (Debian 12's own is too old), or keep your PATH "
            'under sudo (`sudo env "PATH=$PATH" make …`)'
        )
    # A Go that is too old may download a newer one.
    env = downloads.environment(os.environ)
    asked = subprocess.run(["go", "env", "GOVERSION"], cwd=module, env=env, capture_output=True, text=True, check=False)
    version = asked.stdout.strip()
    if asked.returncode != 0 or _numbers(version) < go_of(module):
        why = asked.stderr.strip().splitlines()[-1:] or [f"it is {version or 'without a version'}"]
        raise StepFailed(f"this needs Go {wanted} or later, and the one on PATH isn't ({why[0]}): install a newer one")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as go1.26.5, 1.25 or go1.27rc1."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(number) for number in found.groups() if number) if found else ()


def _step(module: str, tools: Sequence[Tool]) -> Step:
    def absent() -> list[Tool]:
        return [tool for tool in tools if found.locate(tool) is None]

    def build(console: Console, log: Path) -> None:
        _build(absent(), console, log)

    name, disk = module.replace("_", " "), _DISK_GIB.get(module, _DISK_GIB_OF_OTHERS)
    # uv is the smallest download: where there is no network, it says so before anything is compiled.
    after = (debian.STEP, python_packages.UV)
    return Step(name, done=lambda: not absent(), run=build, disk_gib=disk, after=after)


def _build(tools: Sequence[Tool], console: Console, log: Path) -> None:
    """Build tools of one module by one command, which compiles once what they share and links two at a time."""
    first = tools[0]
    module = paths.HERE / first.module
    check_go(module)
    with scratch_of(paths.tool_path(first)) as folder:
        # Without debug information, which the linker would leave out: it is a tenth of the compilers' work.
        flags = ["-mod=readonly", "-trimpath", "-gcflags=all=-dwarf=false", "-tags", first.tags]
        packages = [tool.package for tool in tools]
        run(
            ["go", "build", *flags, "-ldflags", first.ldflags, "-o", f"{folder}/", *packages],
            log=log,
            console=console,
            env={"CGO_ENABLED": "0", **_UNCOLLECTED},
            cwd=module,
        )
        for tool in tools:
            built = folder / executable_of(tool.package)
            if tool.version_arguments:
                _check_version(tool, built, log)
            built.replace(paths.tool_path(tool))


def executable_of(package: str) -> str:
    """Return how `go build` names the program of a package: by the last part of its path that is no major version."""
    return next(part for part in reversed(package.split("/")) if not re.fullmatch(r"v\d+", part))


def _copy_charts(console: Console, log: Path) -> None:
    tool = TOOLS["karpenter"]
    module = paths.HERE / tool.module
    check_go(module)
    # The controller may have been built long ago: `go clean -modcache` deletes what was downloaded then.
    run(["go", "mod", "download", tool.package.partition("/cmd/")[0]], log=log, console=console, cwd=module)
    sources = found.sources(tool)
    if sources is None:
        raise StepFailed(f"Go doesn't say where it keeps the source of {tool.name} {tool.version}: see {log}")
    with draft_of(paths.charts_folder()) as draft:
        for name in CHARTS:
            source = sources / "charts" / name
            if not (source / "Chart.yaml").is_file():
                raise StepFailed(f"{source} holds no chart: see {log}")
            copy_tree(source, draft / name)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files of a folder; Go's own are read-only, and a copy must be removable."""
    for path in (each for each in source.rglob("*") if each.is_file()):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _check_version(tool: Tool, built: Path, log: Path) -> None:
    reported = found.ask(built, tool.version_arguments)
    if not found.fits(tool, reported):
        raise StepFailed(f"the build calls itself {reported.strip()!r}, not {tool.version}: see {log}")
