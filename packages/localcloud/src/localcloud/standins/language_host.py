"""The language host for Python programs, which the engine starts as `pulumi-language-python`.

    python -m localcloud.standins.language_host ENGINE_ADDRESS

It runs the program in a child process (`run_program.py`) for every `Run`, tells the engine which plug-ins the
installed SDKs need, and kills the child when the engine cancels or exits. Options of `runtime:` in Pulumi.yaml:
`virtualenv`, as with the official host; without it the interpreter is the host's own.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from localcloud.standins.run_program import EXIT_SHOWN
from localcloud.standins.serve import NO_CODE, announce, end_with_the_engine, server_options

_RUNNER: Final = Path(__file__).with_name("run_program.py")
_CHECKOUT: Final = str(Path(__file__).resolve().parents[2])


class Children:
    """The programs that are running, so that they can be killed together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, argv: list[str], cwd: str, env: dict[str, str]) -> int:
        """Run one command until it exits; its output goes to the host's, which the engine shows."""
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL)
        with self._lock:
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)

    def stop(self) -> None:
        """Kill the running programs: they have nothing to save, as the engine makes all changes. Safe to call twice."""
        with self._lock:
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Answer the engine's requests about Python programs."""

    def __init__(self, engine_address: str, children: Children) -> None:
        self._engine_address = engine_address
        self._children = children

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return an empty answer: the host needs nothing from the engine."""
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the version of the installed SDK."""
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the plug-ins that the SDKs installed for the program need."""
        packages = [
            plugin_pb2.PackageDependency(kind="resource", name=found.name, version=found.version, server=found.server)
            for found in _plugins(_interpreter(request.info))
        ]
        return language_pb2.GetRequiredPackagesResponse(packages=packages)

    def GetRequiredPlugins(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the same for engines older than `GetRequiredPackages`."""
        plugins = [
            plugin_pb2.PluginDependency(kind="resource", name=found.name, version=found.version, server=found.server)
            for found in _plugins(_interpreter(request.info))
        ]
        return language_pb2.GetRequiredPluginsResponse(plugins=plugins)

    def Run(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Run the program once. `bail` means that it failed and the user has seen why."""
        python = _interpreter(request.info)
        if not os.path.exists(python):
            return language_pb2.RunResponse(
                error=f"runtime option virtualenv: there is no {python}; create the virtual environment first"
            )
        argv = [python, "-u", "-P", str(_RUNNER), json.dumps(run_arguments(request, self._engine_address))]
        code = self._children.run(argv, request.pwd or request.info.program_directory, run_environment(request))
        if code == 0:
            return language_pb2.RunResponse()
        if code == EXIT_SHOWN:
            return language_pb2.RunResponse(bail=True)
        if code < 0:
            name = signal.Signals(-code).name
            return language_pb2.RunResponse(error=f"Program was ended by the signal {name}")
        return language_pb2.RunResponse(error=f"Program exited with non-zero exit code: {code}")

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Install nothing: the program runs in the environment of this host, which `make up` maintains."""
        python = _interpreter(request.info)
        yield language_pb2.InstallDependenciesResponse(
            stdout=f"Python dependencies are those of {python}; nothing to install.\n".encode()
        )

    def RuntimeOptionsPrompts(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return no prompts: every option has a default."""
        return language_pb2.RuntimeOptionsResponse()

    def Template(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return an empty answer: `pulumi new` isn't covered."""
        return language_pb2.TemplateResponse()

    def About(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the interpreter, for `pulumi about`."""
        version = ".".join(str(part) for part in sys.version_info[:3])
        return language_pb2.AboutResponse(executable=_interpreter(request.info), version=version)

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return the installed packages; without `transitiveDependencies` those that no other package requires."""
        installed = {dist.name: dist for dist in importlib.metadata.distributions()}
        required = {_canonical(name) for dist in installed.values() for name in _required(dist)}
        wanted = [
            language_pb2.DependencyInfo(name=name, version=dist.version)
            for name, dist in sorted(installed.items())
            if request.transitiveDependencies or _canonical(name) not in required
        ]
        return language_pb2.GetProgramDependenciesResponse(dependencies=wanted)

    def GenerateProgram(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuse: with an official provider `pulumi import` asks for code after it has imported the resource."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, NO_CODE)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Kill the program, not the host: the user pressed Ctrl-C."""
        self._children.stop()
        return empty_pb2.Empty()


def run_arguments(request: Any, engine_address: str) -> dict[str, Any]:
    """Return what `run_program.py` needs of a `RunRequest`, except the config."""
    return {
        "program": os.path.join(request.info.program_directory, request.info.entry_point or request.program or "."),
        "pwd": request.pwd or request.info.program_directory,
        "args": list(request.args),
        "settings": {
            "monitor": request.monitor_address,
            "engine": engine_address,
            "project": request.project,
            "stack": request.stack,
            "parallel": request.parallel,
            "dry_run": request.dryRun,
            "organization": request.organization or "organization",
            "root_directory": request.info.root_directory,
        },
    }


def run_environment(request: Any) -> dict[str, str]:
    """Return the program's environment: the host's, without the path to this package, with the stack's config."""
    environment = dict(os.environ)
    entries = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if entry and entry != _CHECKOUT]
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)
    environment["PULUMI_CONFIG"] = json.dumps(dict(request.config))
    environment["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
    return environment


def _interpreter(info: Any) -> str:
    """Return the program's Python: that of `options.virtualenv`, relative to the project, or the host's own."""
    virtualenv = json_format.MessageToDict(info.options).get("virtualenv") if info.HasField("options") else None
    return os.path.join(info.root_directory, virtualenv, "bin", "python") if virtualenv else sys.executable


@dataclass(frozen=True)
class Plugin:
    """A resource plug-in that an installed SDK needs; `server` is its download URL, empty for the default one."""

    name: str
    version: str
    server: str


def _plugins(python: str) -> list[Plugin]:
    """Return the content of `pulumi-plugin.json` of every package in the interpreter's environment."""
    found: dict[str, Plugin] = {}
    for folder in _site_packages(python):
        for file in sorted(folder.glob("*/pulumi-plugin.json")):
            plugin = json.loads(file.read_text())
            if not plugin.get("resource"):
                continue
            name = plugin.get("name") or file.parent.name.removeprefix("pulumi_")
            version = plugin.get("version") or importlib.metadata.version(file.parent.name)
            found[name] = Plugin(name, version, plugin.get("server", ""))
    return list(found.values())


def _site_packages(python: str) -> list[Path]:
    if python == sys.executable:
        return [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return sorted((Path(python).parent.parent / "lib").glob("python3.*/site-packages"))


def _required(distribution: importlib.metadata.Distribution) -> list[str]:
    """Return the names of the packages that a distribution requires, without extras."""
    requirements = [line for line in distribution.requires or [] if "extra ==" not in line]
    return [
        "".join(char if char.isalnum() or char in "-_." else " " for char in line).split()[0] for line in requirements
    ]


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def main(argv: list[str]) -> None:
    """Serve until the engine exits."""
    addresses = [argument for argument in argv if not argument.startswith("-")]
    if not addresses:
        sys.exit("the language host is started by the Pulumi engine: the engine's address is missing")
    children = Children()
    end_with_the_engine(children.stop)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=server_options())
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageHost(addresses[-1], children), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    announce(port)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1:])
