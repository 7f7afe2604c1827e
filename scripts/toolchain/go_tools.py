"""Builds the tools that PATH lacks from the Go modules beside this file, whose go.sum pins every byte."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from scripts.toolchain import found, paths
from scripts.toolchain.commands import Console, run
from scripts.toolchain.errors import StepFailed
from scripts.toolchain.steps import Step, draft_of
from scripts.toolchain.table import BENCH_TOOLS, CHARTS, MONITORING_TOOLS, PREVIOUS_TOOLS, TOOLS, Tool


def steps() -> list[Step]:
    """One step for each tool, in the order of the table."""
    return [_step(tool) for tool in TOOLS.values()]


def bench_steps() -> list[Step]:
    """One step for each tool that only benchmarks run."""
    return [_step(tool) for tool in BENCH_TOOLS.values()]


def previous_steps() -> list[Step]:
    """One step for each program of the version of Kubernetes before, which has a log and a timing of its own."""
    return [replace(_step(tool), name=f"{tool.name} {tool.version}") for tool in PREVIOUS_TOOLS.values()]


def monitoring_steps() -> list[Step]:
    """One step for each of Prometheus' two programs."""
    return [_step(tool) for tool in MONITORING_TOOLS.values()]


def charts_step() -> Step:
    """Karpenter's charts, out of the module that its controller is built from."""
    return Step("Karpenter charts", done=lambda: paths.charts_folder().is_dir(), run=_copy_charts, disk_gib=0.1)


def check_go(module: Path) -> None:
    """Refuses to begin without a Go that can build `module`.

    Raises:
        StepFailed: there is none, or it is older than the module's go line.
    """
    wanted = next(line.split()[1] for line in (module / "go.mod").read_text().splitlines() if line.startswith("go "))
    if shutil.which("go") is None:
        raise StepFailed(f"Go isn't on PATH: install Go {wanted} or later (Debian 12's own is too old)")
    asked = subprocess.run(["go", "env", "GOVERSION"], cwd=module, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        why = asked.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise StepFailed(
            f"this needs Go {wanted} or later, and the one on PATH refuses ({why[0]}): install a newer one"
        )


def _step(tool: Tool) -> Step:
    def build(console: Console, log: Path) -> None:
        _build(tool, console, log)

    # The first of a module downloads it; Go keeps what it compiled, about a gigabyte a tool.
    return Step(tool.name, done=lambda: found.locate(tool) is not None, run=build, disk_gib=2)


def _build(tool: Tool, console: Console, log: Path) -> None:
    module = paths.HERE / tool.module
    check_go(module)
    with draft_of(paths.tool_path(tool)) as draft:
        flags = ["-mod=readonly", "-trimpath", "-tags", tool.tags, "-ldflags", tool.ldflags]
        run(
            ["go", "build", *flags, "-o", draft, tool.package],
            log=log,
            console=console,
            env={"CGO_ENABLED": "0"},
            cwd=module,
        )
        if tool.version_arguments:
            _check_version(tool, draft, log)


def _copy_charts(console: Console, log: Path) -> None:
    tool = TOOLS["karpenter"]
    module = paths.HERE / tool.module
    check_go(module)
    # The controller may have been built long ago: Go deletes what it downloaded when it is told to.
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


def _check_version(tool: Tool, draft: Path, log: Path) -> None:
    reported = found.ask(draft, tool.version_arguments)
    if not found.fits(tool, reported):
        raise StepFailed(f"the build calls itself {reported.strip()!r}, not {tool.version}: see {log}")
