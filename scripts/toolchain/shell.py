"""The environment in which `pulumi`, `kubectl` and `aws` work on the one-machine cloud, and how to undo it.

change = environment(os.environ, prepare(state))     # what to set and what to unset
print(script(change, os.environ))                    # the same for bash and zsh, with `deactivate_tidewater`
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.toolchain import TORCHX, binary, charts, localcloud_tools, paths, plugins, python_packages, stack_python
from scripts.toolchain.errors import StepFailed, ToolMissing

STANDINS_VARIABLE = "LOCALCLOUD_STANDINS"
STATE_VARIABLE = "LOCALCLOUD_STATE"
TOOLS_VARIABLE = "LOCALCLOUD_TOOLS"
PASSPHRASE = "localcloud"
CHARTS = ".charts"
"""The link to Karpenter's charts that Pulumi.local.yaml names. It is in the checkout, which pins the charts that it
leads to, and not in a state directory: a checkout may have several, and Pulumi starts plug-ins in the checkout."""
# Before the first start: keys that AWS refuses, so that no command reaches the account of a person's own profile.
_NO_CLOUD = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "localcloud-was-never-started")
_LOCAL = "127.0.0.1,localhost"
TORCHX_PACKAGE = paths.CHECKOUT / "packages" / "torchx" / "pyproject.toml"
# Commands that use the cluster, by the packages that are run.
_OURS = {"tidewater": "tidewater.cli", "elasticdl": "elasticdl"}
# Variables of a person's own accounts, backends and stacks, which would lead elsewhere. Those that are set here stay.
_MISLEADING = ("AWS_", "PULUMI_")
# For the commands that run a package of this checkout.
_IMPORTS = f"export PYTHONPATH={shlex.quote(paths.IMPORTS)}${{PYTHONPATH:+:$PYTHONPATH}}\n"


@dataclass(frozen=True)
class Place:
    """What `prepare` made for one state directory."""

    state: Path
    commands: Path
    """A folder with the engine, the language host and links to the other tools."""
    home: Path
    """The engine's PULUMI_HOME."""
    tools: Path
    """What localcloud runs, see `localcloud_tools`."""
    python: Path
    cloud: Mapping[str, str]
    """The variables that lead clients to the cloud; none before it was first started."""
    standins: tuple[str, ...] = plugins.STANDINS
    """Which provider plug-ins are ours."""


@dataclass(frozen=True)
class Change:
    """Variables to set, and variables to unset."""

    set: Mapping[str, str]
    unset: frozenset[str]

    def applied_to(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return `environ` with this change made."""
        return {**{key: value for key, value in environ.items() if key not in self.unset}, **self.set}


def default_state() -> Path:
    """Return the state directory of this checkout's cloud, or the one that LOCALCLOUD_STATE names."""
    return Path(os.environ.get(STATE_VARIABLE) or paths.CHECKOUT / ".localcloud").resolve()


def prepare(state: Path, standins: str | None = None) -> Place:
    """Make the folders and links that the environment and Pulumi.local.yaml refer to.

    Args:
        state: The cloud's state directory.
        standins: Which provider plug-ins are ours, separated by commas; None: all of them.

    Raises:
        StepFailed: `standins` names an unknown one, or `state` is a folder of another program.
        ToolMissing: the set-up has not run.
    """
    python, tools, ours = stack_python(), localcloud_tools(), standins_of(standins)
    python_packages.compile_grpc_code()
    folder = _folder_of(state)
    commands, home = folder / "bin", folder / "pulumi-home"
    plugins.install(commands, home, python, ours)
    write_no_automatic_log(home)
    plugins.link_all(commands, links())
    plugins.link(paths.CHECKOUT / CHARTS, charts())
    _write_command(commands / "localcloud", _localcloud_command(state, tools, python))
    _write_command(commands / "aws", _aws_command(python))
    for name, module in _OURS.items():
        _write_command(commands / name, _own_command(module, python))
    for name, text in _torchx_commands(register_schedulers(folder / "registered")).items():
        _write_command(commands / name, text)
    cloud = _cloud(state, python)
    if cloud:  # before, the state directory isn't localcloud's yet
        (state / "pulumi").mkdir(mode=0o700, exist_ok=True)  # it has the stack's secrets, under a known passphrase
    return Place(state, commands, home, tools, python, cloud, ours)


def write_no_automatic_log(home: Path) -> None:
    """Keep the engine from writing all that it does to `home/logs`, encrypted: a third of a preview's time, 15 MB each.

    The engine has no switch for it, and goes on without this log where it can't make that folder, since a file has its
    name (`StartLogging` of pulumi v3.250.0). `pulumi -v=9 --logtostderr` still prints everything.
    """
    log = home / "logs"
    if log.is_dir():
        shutil.rmtree(log, ignore_errors=True)
    log.touch()


def standins_of(value: str | None) -> tuple[str, ...]:
    """Return the provider plug-ins that LOCALCLOUD_STANDINS asks for; "" asks for none.

    Raises:
        StepFailed: it names an unknown one.
    """
    if value is None:
        return plugins.STANDINS
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if unknown := [name for name in names if name not in plugins.STANDINS]:
        choice = ", ".join(plugins.STANDINS)
        raise StepFailed(f"{STANDINS_VARIABLE} names {', '.join(unknown)}: choose from {choice}")
    return names


def links() -> dict[str, Path]:
    """The links in the folder of commands: name to target."""
    tools = {name: binary(name) for name in ("kubectl", "etcd", "etcdctl", "helm")}
    return {**tools, plugins.LANGUAGE_HOST.name: plugins.LANGUAGE_HOST}


def environment(environ: Mapping[str, str], place: Place) -> Change:
    """Return what must change in `environ` so that all tools use the cloud at `place`."""
    cloud = {**_NO_CLOUD, "AWS_EC2_METADATA_DISABLED": "true", **place.cloud}
    local = cloud.pop("NO_PROXY", _LOCAL)
    wanted = {
        "PATH": os.pathsep.join([str(place.commands), str(place.python.parent), environ.get("PATH", os.defpath)]),
        "LOCALCLOUD_PYTHON": str(place.python),
        TOOLS_VARIABLE: str(place.tools),
        # Without sidecar files, which are not written atomically: one cut short by a kill makes the state unreadable.
        "PULUMI_BACKEND_URL": f"file://{place.state / 'pulumi'}?metadata=skip",
        "PULUMI_HOME": str(place.home),
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "KUBECONFIG": str(place.state / "kubeconfig"),
        **cloud,
    }
    if place.standins:
        # A state or an official component may ask for an older version of a provider than the installed SDK does;
        # with this switch the engine takes the plug-in of a later version, which is the stand-in.
        wanted["PULUMI_ENABLE_LEGACY_PLUGIN_SEARCH"] = "true"
    wanted |= dict.fromkeys(("NO_PROXY", "no_proxy"), without_proxy(environ, local))
    return Change(wanted, frozenset(name for name in environ if name.startswith(_MISLEADING) and name not in wanted))


def without_proxy(environ: Mapping[str, str], local: str) -> str:
    """Return the hosts for which no proxy is asked: a person's own and those of this machine.

    Go reads NO_PROXY first and Python no_proxy, so both get all hosts of both. "*" alone means every host.
    """
    parts = [part for name in ("NO_PROXY", "no_proxy") for part in environ.get(name, "").split(",") if part.strip()]
    return "*" if "*" in parts else ",".join(dict.fromkeys([*parts, *local.split(",")]))


def script(change: Change, environ: Mapping[str, str]) -> str:
    """Return shell commands (bash, zsh) that make `change`, and define `deactivate_tidewater` to undo it."""
    before = {name: environ[name] for name in [*change.set, *sorted(change.unset)] if name in environ}
    new = [name for name in change.set if name not in environ]
    undo = [*_exports(before), *(f"unset {name}" for name in new), "unset -f deactivate_tidewater", "hash -r"]
    lines = ["deactivate_tidewater() {", *(f"  {line}" for line in undo), "}"]
    lines += [*_exports(change.set), *(f"unset {name}" for name in sorted(change.unset)), "hash -r"]
    return "\n".join(lines)


def script_of_environment() -> str:
    """Return what `activate` evaluates: the change to this process's environment for this checkout's cloud."""
    place = prepare(default_state(), os.environ.get(STANDINS_VARIABLE))
    return script(environment(os.environ, place), os.environ)


def _exports(values: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in values.items()]


def _write_command(path: Path, text: str) -> None:
    if path.is_symlink():  # what an earlier checkout has linked is not ours to write
        path.unlink()
    _write(path, text)
    path.chmod(0o755)


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _localcloud_command(state: Path, tools: Path, python: Path) -> str:
    """Return the command `localcloud`, which needs no variable of the activated shell, so that sudo can run it."""
    return (
        "#!/bin/sh\n"
        f"{_IMPORTS}"
        f'[ -n "${STATE_VARIABLE}" ] || {STATE_VARIABLE}={shlex.quote(str(state))}\n'
        f"{TOOLS_VARIABLE}={shlex.quote(str(tools))}\n"
        f"export {STATE_VARIABLE} {TOOLS_VARIABLE}\n"
        f'exec {shlex.quote(str(python))} -m localcloud "$@"\n'
    )


def _aws_command(python: Path) -> str:
    """Return the command `aws`. Version 1 asks AWS for some services, whatever AWS_ENDPOINT_URL says; an option holds.

    https://github.com/aws/aws-cli (awscli/customizations/overridesslcommonname.py)
    """
    asked = "the one-machine cloud does not run; start it with make up"
    return (
        "#!/bin/sh\n"
        'for word in "$@"; do\n'
        "  case $word in sqs|emr|rds|docdb|neptune|health) ;; *) continue ;; esac\n"
        f'  set -- "$@" --endpoint-url "${{AWS_ENDPOINT_URL:?{asked}}}"\n'
        "  break\n"
        "done\n"
        f'exec {shlex.quote(str(python.with_name("aws")))} "$@"\n'
    )


def _own_command(module: str, python: Path) -> str:
    """Return a command of this checkout. It uses the shell's KUBECONFIG, as kubectl does."""
    return f'#!/bin/sh\n{_IMPORTS}exec {shlex.quote(str(python))} -m {module} "$@"\n'


def _torchx_commands(registered: Path) -> dict[str, str]:
    """Return the commands `torchx` and `torchx-python`, the Python for scripts that use TorchX, with our scheduler.

    Without TorchX's environment, which may be made later, they name the command that makes it.
    """
    imports = f"{_IMPORTS}export PYTHONPATH=$PYTHONPATH:{shlex.quote(str(registered))}\n"
    folder, missing = shlex.quote(str(paths.torchx_folder() / "bin")), shlex.quote(f"error: {ToolMissing(*TORCHX)}")
    check = f"[ -e {folder}/python ] || {{ echo {missing} >&2; exit 1; }}\n"
    programs = {"torchx": "torchx", "torchx-python": "python"}
    return {name: f'#!/bin/sh\n{check}{imports}exec {folder}/{program} "$@"\n' for name, program in programs.items()}


def register_schedulers(folder: Path) -> Path:
    """Write the metadata that an installation of `packages/torchx` would have; return the folder for PYTHONPATH."""
    project = tomllib.loads(TORCHX_PACKAGE.read_text())["project"]
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{n} = {v}" for n, v in points.items()))]
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    info = folder / f"{project['name'].replace('-', '_')}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    _write(info / "METADATA", metadata)
    _write(info / "entry_points.txt", "\n".join([*lines, ""]))
    return folder


def _folder_of(state: Path) -> Path:
    """Return the folder in the cache with the commands for one state directory of this checkout.

    It is not in the state directory, which only `localcloud start` may make. The link `around` leads to the folder that
    contains the state directory, mostly a checkout; when that is deleted, the next call deletes these commands too.
    """
    folders = paths.cache() / "shells"
    folder = folders / paths.key_of(str(paths.CHECKOUT).encode(), str(state).encode())
    folder.mkdir(parents=True, exist_ok=True)
    plugins.link(folder / "around", state.parent)
    for other in folders.iterdir():
        around = other / "around"
        if around.is_symlink() and not around.exists():
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _cloud(state: Path, python: Path) -> Mapping[str, str]:
    """Return the variables that localcloud gives its clients; none before its first start."""
    done = subprocess.run(
        [python, "-m", "localcloud", "env", "--json", "--state", state],
        env={**os.environ, "PYTHONPATH": paths.IMPORTS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StepFailed(done.stderr.strip())
    cloud: Mapping[str, str] = json.loads(done.stdout)
    return cloud
