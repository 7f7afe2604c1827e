"""What `tidewater run` and `tidewater rehearse` run: a script, a module, or one of them in a folder, with packages.

    program = checked("train.py", ["--lr", "1"], Source(code="project"), "tidewater run", OWN)
    ready = prepared(program, new_folder, say)
    [*ready.line, …]                     # of a worker, in ready.environment(os.environ)

A folder is copied without what its ignore file names, so that nothing else is there than on a cluster.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated

import typer

from tidewater.cli import project
from tidewater.cli.errors import CliError, UsageError
from tidewater.contract.archive import to_zip
from tidewater.elastic.errors import TrainerError
from tidewater.elastic.launch import project as launch
from tidewater.elastic.observe.log import Log
from tidewater.elastic.packages import install
from tidewater.project import imports
from tidewater.project.folder import Code
from tidewater.project.lock import Packages
from tidewater.project.pack import lock_files, to_tar

RUNNER = launch.__name__
_OURS = ("--etcd", "--job", "--worker", "--host", "--metrics-port")
"""Flags of a script that these commands set for each worker."""
_COPY = "project"


@dataclass(frozen=True)
class Source:
    """The flags for a folder and its packages."""

    code: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the script, which is run in a copy without what its ignore file names.",
            show_default=False,
        ),
    ] = ""
    requirements: Annotated[
        str,
        typer.Option(
            metavar="LOCK",
            help="Packages to install, once for all runs: a .txt file with hashes.",
            show_default=False,
        ),
    ] = ""


@dataclass(frozen=True)
class Program:
    """A program without mistakes that can be known before it runs.

    Attributes:
        script: a path, in the folder if there is one, or `-m package.module`.
        flags: the script's own.
    """

    script: str
    flags: Sequence[str]
    code: Code | None = None
    packages: Packages | None = None

    @property
    def name(self) -> str:
        """Return the last part of the script's name, for a job."""
        if self.script.startswith("-m "):
            return self.script.removeprefix("-m ").rpartition(".")[2]
        return Path(self.script).stem


@dataclass(frozen=True)
class Ready:
    """A program that can be started.

    Attributes:
        arguments: of `launch.project`: folder, script, and the script's own.
        installed: folder of its packages.
    """

    arguments: list[str]
    installed: Path | None

    @property
    def line(self) -> list[str]:
        """Return the command line of a worker."""
        return [sys.executable, "-P", "-m", RUNNER, *self.arguments]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return variables with which Python finds the packages."""
        if self.installed is None:
            return dict(environ)
        given = environ.get("PYTHONPATH")
        return {**environ, "PYTHONPATH": os.pathsep.join([str(self.installed), *([given] if given else [])])}


def checked(script: str, flags: Sequence[str], source: Source, name: str, own: Collection[str]) -> Program:
    """Return the program that the command `name` is to run. `own` are those of the workers' flags that it has itself.

    Raises:
        UsageError: there is no such script, the folder or the lock has mistakes, or a flag is set for each worker.
    """
    if script == "-m" and flags:
        script, flags = f"-m {flags[0]}", flags[1:]
    code = project.code_at(source.code, script) if source.code else None
    if not code and not script.startswith("-m ") and not Path(script).is_file():
        raise UsageError(
            f"there is no training script {script}", f"Flags of `{name}` come before the script, its own after it."
        )
    wrong = next((flag.partition("=")[0] for flag in flags if flag.partition("=")[0] in _OURS), None)
    if wrong in own:
        raise UsageError(f"{wrong} comes after the script", f"Write it before the script: `{name} {wrong} …`.")
    if wrong:
        raise UsageError(f"{wrong} is for one worker, and `{name}` sets it for each", "Leave it out.")
    return Program(script, flags, code, project.packages_at(source.requirements) if source.requirements else None)


def prepared(program: Program, new: Path, say: Callable[[str], None]) -> Ready:
    """Copy the folder into a new one, and install the packages unless they are there.

    Raises:
        CliError: they can't be installed.
        UsageError: the script imports what is neither there nor in this Python.
    """
    folder = Path.cwd()
    if program.code:
        folder = new / _COPY
        with tarfile.open(fileobj=io.BytesIO(to_tar(program.code, _COPY)), encoding="utf-8") as tar:
            tar.extractall(new, filter="data")
    installed = _installed(program.packages, new, say) if program.packages else None
    _check_imports(folder, program.script, installed)
    return Ready([str(folder), program.script, *program.flags], installed)


def _check_imports(folder: Path, script: str, installed: Path | None) -> None:
    """Raise UsageError if a script surely imports what no worker would find."""
    if not script.startswith("-m "):
        path = (folder / script).resolve()  # as the worker does: imports are looked for next to it
        folder, script = path.parent, path.name
    places = [str(folder), *([str(installed)] if installed else [])]
    for each in imports.outside(folder, script, lambda name: (folder / name).exists()):
        if not PathFinder.find_spec(each.module, places) and not importlib.util.find_spec(each.module):
            raise UsageError(imports.sentence(each, launch.LOCK, launch.CODE))


def _installed(packages: Packages, new: Path, say: Callable[[str], None]) -> Path:
    bundle = new / "lock.zip"
    bundle.write_bytes(to_zip(lock_files(packages)))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tidewater" / "packages" / packages.digest / install.python()
    if not folder.exists():
        say(f"packages are installed into {folder}, once")
    try:
        install.install(bundle, folder, Log("install", stream=io.StringIO()))
    except TrainerError as error:
        raise CliError(f"the packages can't be installed: {error}") from None
    return folder
