"""Runs helm: its arguments, and the files that it reads.

    rendered = render(arguments, target, run_helm)      # raises PluginError with helm's own message

The official plug-in links Helm 3 as a library and renders as `helm template --dry-run=server --no-hooks` does. The
stand-in starts the program of the same major version; what is secret reaches it in files that only the user can read.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localcloud.standins.kubernetes.helm.arguments import ChartArguments
from localcloud.standins.serve import PluginError
from tidewater.kube.kubeconfig import Connection

TIMEOUT_SECONDS: Final = 300.0
_DEPRECATED: Final = "This chart is deprecated"


@dataclass(frozen=True)
class Target:
    """The cluster that the chart is rendered for."""

    connection: Connection
    namespace: str
    """Where a release goes that names no namespace."""
    version: str
    api_versions: tuple[str, ...]
    """`GROUP/VERSION` and `GROUP/VERSION/KIND` of everything that the API server knows."""


@dataclass(frozen=True)
class Outcome:
    """How one command ended."""

    status: int
    output: str
    errors: str


@dataclass(frozen=True)
class Rendered:
    """What helm made of a chart."""

    manifest: str
    deprecated: bool


Helm = Callable[[Sequence[str]], Outcome]
"""Runs helm with the given arguments."""


def run_helm(arguments: Sequence[str]) -> Outcome:
    """Run the helm on PATH."""
    program = shutil.which("helm")
    if program is None:
        raise PluginError("helm.sh/v4:Chart needs helm 3 on PATH: run `make install` and activate the shell again")
    try:
        done = subprocess.run(
            [program, *arguments],
            # These variables would name another cluster or user than the provider does.
            env={key: value for key, value in os.environ.items() if not key.startswith("HELM_KUBE")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PluginError(f"helm {arguments[0]} took more than {TIMEOUT_SECONDS:.0f} s") from error
    return Outcome(done.returncode, done.stdout, done.stderr)


def render(chart: ChartArguments, target: Target, helm: Helm) -> Rendered:
    """Render a chart.

    Raises:
        PluginError: helm failed; the message is its own.
    """
    with tempfile.TemporaryDirectory(prefix="pulumi-kubernetes-") as name:
        folder = Path(name)
        done = helm(["template", chart.name, chart.chart, *_flags(chart, target, folder)])
        return Rendered(_checked(done).output, _DEPRECATED in done.errors)


def kubeconfig(connection: Connection) -> dict[str, Any]:
    """Return a kubeconfig with this connection alone; its files are named by absolute paths."""
    context = {"cluster": "chart", "user": "chart", "namespace": connection.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "chart", "cluster": dict(connection.cluster)}],
        "users": [{"name": "chart", "user": dict(connection.user)}],
        "contexts": [{"name": "chart", "context": context}],
        "current-context": "chart",
    }


def _flags(chart: ChartArguments, target: Target, folder: Path) -> list[str]:
    flags = [
        *("--namespace", chart.namespace or target.namespace),
        *("--kubeconfig", _written(folder / "kubeconfig", json.dumps(kubeconfig(target.connection)))),
        *("--kube-version", target.version),
        *("--api-versions", ",".join(target.api_versions)),
        *("--dry-run=server", "--no-hooks"),
    ]
    if chart.values is not None:
        flags += ["--values", _written(folder / "values.json", json.dumps(chart.values))]
    if chart.version:
        flags += ["--version", chart.version]
    return flags + ([] if chart.skip_crds else ["--include-crds"])


def _checked(done: Outcome) -> Outcome:
    if done.status == 0:
        return done
    message = "\n".join(line for line in done.errors.splitlines() if not line.startswith("WARNING:")).strip()
    raise PluginError(message.removeprefix("Error: ") or f"helm ended with status {done.status}")


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)
