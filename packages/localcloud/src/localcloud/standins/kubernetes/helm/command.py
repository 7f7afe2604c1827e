"""Runs helm: its arguments, and the files that it reads.

    rendered = render(arguments, target, run_helm)      # raises PluginError with helm's own message

The official plug-in links Helm 3 as a library and renders as `helm template --dry-run=server --no-hooks` does. The
stand-in starts the program of the same major version; what is secret reaches it in files that only the user can read.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pulumi
from pulumi.errors import InputPropertyError

from localcloud.standins.kubernetes.cluster.kubeconfig import Connection
from localcloud.standins.kubernetes.helm.arguments import ChartArguments, text_of
from localcloud.standins.serve import PluginError

TIMEOUT_SECONDS: Final = 300.0
_REPOSITORY_NAME: Final = "chart"
_DEPRECATED: Final = "This chart is deprecated"
_DEPENDENCIES: Final = "checking for chart dependencies"


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


def helm_with(environment: Mapping[str, str]) -> Helm:
    """Return what runs the helm on PATH with these variables in addition."""

    def run(arguments: Sequence[str]) -> Outcome:
        program = shutil.which("helm")
        if program is None:
            raise PluginError("helm.sh/v4:Chart needs helm 3 on PATH: run `make install` and activate the shell again")
        # These variables would name another cluster or user than the provider does.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("HELM_KUBE")}
        try:
            done = subprocess.run(
                [program, *arguments],
                env={**inherited, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PluginError(f"helm {arguments[0]} took more than {TIMEOUT_SECONDS:.0f} s") from error
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


def render(chart: ChartArguments, target: Target, helm: Helm) -> Rendered:
    """Render a chart.

    Raises:
        PluginError: helm failed; the message is its own.
        InputPropertyError: A file that an input names can't be read, or the credentials have no use.
    """
    with tempfile.TemporaryDirectory(prefix="pulumi-kubernetes-") as name:
        folder = Path(name)
        located, flags = _source(chart, folder, helm)
        arguments = ["template", chart.name, located, *flags, *_flags(chart, target, folder)]
        done = helm(arguments)
        fetch = _fetch(chart)
        if done.status != 0 and _DEPENDENCIES in done.errors and fetch:
            _checked(helm(["dependency", fetch, chart.chart]))
            done = helm(arguments)
        return Rendered(_checked(done).output, _DEPRECATED in done.errors)


def kubeconfig(connection: Connection) -> dict[str, Any]:
    """Return a kubeconfig with this connection alone, certificates included."""

    def encoded(text: str | None) -> str | None:
        return None if text is None else base64.b64encode(text.encode()).decode()

    cluster = {
        "server": connection.server,
        "certificate-authority-data": encoded(connection.ca_pem),
        "insecure-skip-tls-verify": None if connection.verify else True,
        "tls-server-name": connection.server_name,
    }
    files = ("client-certificate", "client-key")
    user = {
        **{key: value for key, value in (connection.user or {}).items() if key not in files},
        "client-certificate-data": encoded(connection.certificate_pem),
        "client-key-data": encoded(connection.key_pem),
    }
    context = {"cluster": "chart", "user": "chart", "namespace": connection.namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "chart", "cluster": _set(cluster)}],
        "users": [{"name": "chart", "user": _set(user)}],
        "contexts": [{"name": "chart", "context": context}],
        "current-context": "chart",
    }


def _fetch(chart: ChartArguments) -> str | None:
    """Return how the charts are fetched that a folder's chart needs and lacks: a command of `helm dependency`.

    The official plug-in fetches what a lock file names even if nothing asks for it. The flag --dependency-update isn't
    used: with it, helm writes its progress before the manifest.
    """
    if chart.dependency_update:
        return "update"
    return "build" if (Path(chart.chart) / "Chart.lock").is_file() else None


def _flags(chart: ChartArguments, target: Target, folder: Path) -> list[str]:
    """Return what every chart gets, wherever it comes from."""
    flags = [
        *("--namespace", chart.namespace or target.namespace),
        *("--kubeconfig", _written(folder / "kubeconfig", json.dumps(kubeconfig(target.connection)))),
        *("--kube-version", target.version),
        *("--api-versions", ",".join(target.api_versions)),
        *("--dry-run=server", "--no-hooks"),
    ]
    for index, asset in enumerate(chart.value_files):
        flags += ["--values", _file(asset, folder / f"values-{index}.yaml", f"valueYamlFiles[{index}]")]
    if chart.values is not None:
        flags += ["--values", _written(folder / "values.json", json.dumps(chart.values))]
    if chart.post_renderer:
        flags += ["--post-renderer", chart.post_renderer[0]]
        flags += [f"--post-renderer-args={argument}" for argument in chart.post_renderer[1:]]
    return flags + ([] if chart.skip_crds else ["--include-crds"])


def _source(chart: ChartArguments, folder: Path, helm: Helm) -> tuple[str, list[str]]:
    """Return how helm finds the chart: its name and flags. Credentials go into helm's own files."""
    repository, flags, located = chart.repository, [], chart.chart
    files = {"ca": repository.ca_file, "cert": repository.cert_file, "key": repository.key_file}
    paths = {
        key: _file(asset, folder / key, f"repositoryOpts.{key}File")
        for key, asset in files.items()
        if asset is not None
    }
    if repository.password and chart.chart.startswith("oci://"):
        host = chart.chart.removeprefix("oci://").partition("/")[0]
        token = base64.b64encode(f"{repository.username}:{repository.password}".encode()).decode()
        logins = {"auths": {host: {"auth": token}}}
        flags += ["--registry-config", _written(folder / "registry.json", json.dumps(logins))]
    elif repository.password and repository.url:
        located = f"{_REPOSITORY_NAME}/{chart.chart}"
        flags += _repository_files(chart, paths, folder)
        _checked(helm(["repo", "update", _REPOSITORY_NAME, *flags]))
    elif repository.password and "://" in chart.chart:
        reason = f"not covered for the address {chart.chart}: give repositoryOpts.repo, and the chart's name as `chart`"
        raise InputPropertyError("repositoryOpts.password", reason)
    elif repository.url:
        flags += ["--repo", repository.url]
    flags += [part for key, path in paths.items() for part in (f"--{key}-file", path)]
    flags += ["--version", chart.version] if chart.version else []
    chosen = {"devel": chart.devel, "verify": chart.verify, "plain-http": chart.plain_http}
    flags += [f"--{name}" for name, wanted in chosen.items() if wanted]
    if chart.keyring is not None:
        flags += ["--keyring", _file(chart.keyring, folder / "keyring", "keyring")]
    return located, flags


def _repository_files(chart: ChartArguments, paths: Mapping[str, str], folder: Path) -> list[str]:
    """Write the list of repositories with the one that needs credentials; `--password` would show it to everybody."""
    repository = chart.repository
    entry = {
        "name": _REPOSITORY_NAME,
        "url": repository.url,
        "username": repository.username,
        "password": repository.password,
        **{f"{key}File": path for key, path in paths.items()},
    }
    listed = _written(folder / "repositories.yaml", json.dumps({"apiVersion": "v1", "repositories": [entry]}))
    return ["--repository-config", listed, "--repository-cache", str(folder / "cache")]


def _checked(done: Outcome) -> Outcome:
    if done.status == 0:
        return done
    message = "\n".join(line for line in done.errors.splitlines() if not line.startswith("WARNING:")).strip()
    raise PluginError(message.removeprefix("Error: ") or f"helm ended with status {done.status}")


def _file(asset: pulumi.Asset, path: Path, name: str) -> str:
    """Return a path or an address with the asset's content, which helm reads itself where it can."""
    if isinstance(asset, pulumi.FileAsset):
        return str(asset.path)
    if isinstance(asset, pulumi.RemoteAsset) and name.startswith("valueYamlFiles"):
        return str(asset.uri)
    return _written(path, text_of(asset, name))


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def _set(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
