"""Finds a module of the model zoo, and a function in it.

    found = find("--model_def", "model_zoo", "mnist.mnist_functional_api.custom_model")
    found.value                     # the function

`model_zoo` is a folder; `mnist.mnist_functional_api.custom_model` is `custom_model` in its file
`mnist/mnist_functional_api.py`. The zoo becomes a package of its own, so that its modules may have the names of
installed ones; they may also import each other as if the zoo were on Python's path, where its folder comes last.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.errors import ElasticDLError, ZooError

_SHOWN = 12


@dataclass(frozen=True)
class Found:
    """A value of a module of the zoo."""

    name: str
    """In the module."""
    file: Path
    value: Any


def find(flag: str, model_zoo: str, dotted: str) -> Found:
    """Return what a dotted name stands for; raise ZooError that names the flag, the file and what is there instead."""
    module_name, _, name = dotted.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in dotted.split(".")):
        raise ZooError(
            f"{flag}={dotted!r} is no dotted name of a function in a module",
            "write folder.module.function, such as mnist.mnist_functional_api.custom_model",
        )
    file = _file(flag, Path(model_zoo), module_name)
    module = loaded(model_zoo, module_name, file)
    if not hasattr(module, name):
        raise ZooError(f"{flag}={dotted}: {file} has no {name}", f"it has {_names(module)}")
    return Found(name, file, getattr(module, name))


def has(model_zoo: str, module_name: str, name: str) -> bool:
    """Return whether a module of the zoo, which must be there, has a name that is not another module's."""
    module = loaded(model_zoo, module_name, _file("--model_def", Path(model_zoo), module_name))
    return not isinstance(getattr(module, name, module), ModuleType)


def loaded(model_zoo: str, module_name: str, file: Path) -> ModuleType:
    """Return a module of the zoo, imported; raise ZooError with file and line if that fails."""
    zoo = Path(model_zoo).resolve()
    package = f"elasticdl_zoo_{hashlib.sha256(str(zoo).encode()).hexdigest()[:12]}"
    if package not in sys.modules:
        spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(zoo)]
        sys.modules[package] = importlib.util.module_from_spec(spec)
    if str(zoo) not in sys.path:
        sys.path.append(str(zoo))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(f"{package}.{module_name}")
    except ElasticDLError:
        raise
    except Exception as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ZooError(
            f"{file} can't be imported: {type(error).__name__}: {problem}{place(error, zoo)}",
            "correct the module; what it imports must be installed in the image of the job",
        ) from error


def place(error: BaseException, zoo: Path) -> str:
    """Return words for the innermost line of the zoo that an error comes from; empty if it comes from none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(zoo):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""


def _file(flag: str, zoo: Path, module_name: str) -> Path:
    if not zoo.is_dir():
        what = "a file" if zoo.exists() else "not there"
        raise ZooError(
            f"--model_zoo={zoo} is {what}", "name the folder of the model zoo; `elasticdl zoo init` makes one"
        )
    path = zoo.joinpath(*module_name.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    modules = sorted(
        ".".join(each.relative_to(zoo).with_suffix("").parts) for each in zoo.rglob("*.py") if each.stem != "__init__"
    )
    there = f"its modules are {', '.join(modules[:_SHOWN])}" if modules else "it has no modules"
    raise ZooError(f"{flag}: the model zoo {zoo} has no {path.relative_to(zoo).with_suffix('.py')}", there)


def _names(module: ModuleType) -> str:
    own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return ", ".join(own[:_SHOWN]) or "nothing that can be called"
