"""The folder of a model zoo: `zoo init`, `zoo build`, `zoo push`, and how it is shipped without an image.

init(Path("model_zoo"), InitOptions())
build(Path("model_zoo"), "registry/zoo:1")
files(Path("model_zoo"))                   # what goes with a job
"""

from __future__ import annotations

import importlib.resources
import importlib.resources.abc
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import ElasticDLError, ZooError

BASE_IMAGE = "python:3.11-slim-bookworm"
_TEMPLATES = "templates"
_SKIPPED = ("__pycache__",)
_NO_DOCKER = (
    "install Docker, or leave the image out: `elasticdl train` ships the folder of --model_zoo itself and runs it in "
    "the image of the stack"
)


@dataclass(frozen=True)
class InitOptions:
    """Options of `zoo init`."""

    base_image: str = BASE_IMAGE
    """What the image of the Dockerfile is made from; it must have pip."""
    extra_pypi_index: str = ""
    """Address of a package index in addition to the default one."""


def init(folder: Path, options: InitOptions) -> list[Path]:
    """Write a Dockerfile, and two working examples if the folder has no modules yet; return the files.

    Raise ZooError, before anything is written, if a file is there with another content.
    """
    index = f" --extra-index-url {options.extra_pypi_index}" if options.extra_pypi_index else ""
    values = {"@BASE_IMAGE@": options.base_image, "@EXTRA_INDEX@": index}
    has_modules = folder.is_dir() and any(folder.rglob("*.py"))
    wanted = {}
    for name, text in _templates():
        if "/" in name and has_modules and not (folder / name).exists():
            continue
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        wanted[folder / name] = text
    for path, text in wanted.items():
        if path.exists() and (not path.is_file() or path.read_text() != text):
            raise ZooError(f"{path} is there already, with another content", "move it away, or name another folder")
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(wanted)


def build(folder: Path, image: str) -> None:
    """Build the image of a zoo with Docker. Raise ZooError if there is no Docker or no Dockerfile, or if it fails."""
    if not (folder / "Dockerfile").is_file():
        raise ZooError(f"{folder} has no Dockerfile", f"`elasticdl zoo init {folder}` writes one")
    _docker("build", "-t", image, str(folder))


def push(image: str) -> None:
    """Push an image with Docker. Raise ZooError if there is no Docker, or if it fails."""
    _docker("push", image)


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a zoo by their paths in it, in the same order on every machine.

    Hidden files and caches are left out. Raise ZooError if there is nothing, or a link that leads out of the folder.
    """
    if not folder.is_dir():
        raise ZooError(f"--model_zoo={folder} is no folder", "name the folder of the model zoo")
    root, found = folder.resolve(), {}
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        name = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") or part in _SKIPPED for part in name.parts):
            continue
        if not path.resolve().is_relative_to(root):
            raise ZooError(f"{path} is a link to {path.resolve()}", "copy the file into the model zoo")
        found[name.as_posix()] = path.read_bytes()
    if not found:
        raise ZooError(f"--model_zoo={folder} has no files", "`elasticdl zoo init` writes examples")
    return found


def _templates() -> Iterator[tuple[str, str]]:
    """Yield name and text of each file that `init` writes."""

    def below(folder: importlib.resources.abc.Traversable, prefix: str) -> Iterator[tuple[str, str]]:
        for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if each.name.startswith(("__", ".")):
                continue
            if each.is_dir():
                yield from below(each, f"{prefix}{each.name}/")
            else:
                yield f"{prefix}{each.name}", each.read_text()

    yield from below(importlib.resources.files("elasticdl.zoo") / _TEMPLATES, "")


def _docker(*arguments: str) -> None:
    """Run Docker; its output is the user's to read."""
    docker = shutil.which("docker")
    if docker is None:
        raise ZooError("there is no Docker on this machine: no program `docker`", _NO_DOCKER)
    done = subprocess.run([docker, *arguments], check=False)
    if done.returncode:
        raise ElasticDLError(
            f"`docker {' '.join(arguments)}` failed with exit code {done.returncode}; its error is above",
            "does the Docker daemon run, and may you use it?",
        )
