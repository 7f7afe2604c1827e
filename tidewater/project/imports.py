"""What a script imports from outside of its folder whenever it runs, and what of that workers would surely lack.

    for each in outside(folder, "train.py", goes):      # Import("net/model.py", 3, "timm")
        if lacking(each, folder, packages):
            print(sentence(each, "--requirements", "--code"))

A missed mistake ends a worker with the same sentence; a refused script that would run has no way around. So only
imports at the top level of a module count, up to the first statement that may end the program or change what can be
imported; and none counts in code that touches `sys.path` or installs packages.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tidewater.project.lock import OF_THE_IMAGE, Packages

OFFICIAL_IMAGE = re.compile(r"(docker\.io/)?pytorch/pytorch(:|@).+")
"""PyTorch's own images, the stack's default among them. They have all that torch needs, and none of `_LIBRARIES`."""
_LIBRARIES = {
    **{name: name for name in ("accelerate", "datasets", "deepspeed", "diffusers", "lightning", "mlflow", "peft")},
    **{name: name for name in ("timm", "transformers", "trl", "wandb")},
    "pytorch_lightning": "lightning",
    "sklearn": "scikit-learn",
}
"""Modules, and what the names of all packages that bring them contain."""
_CHANGES = re.compile(
    r"sys\s*\.\s*(path|modules|meta_path)|from sys import|addsitedir|setup_root|pythonpath|\bpip\d?\b|\buv\b", re.I
)
"""In code that changes what can be imported."""


@dataclass(frozen=True)
class Import:
    """An import of a module that is not in the folder.

    Attributes:
        file: path in the folder.
        module: the first part of its name.
    """

    file: str
    line: int
    module: str


@dataclass
class _Search:
    """A walk through modules in the order in which Python would run them."""

    folder: Path
    root: PurePosixPath
    """Where imports are looked for first, as a path in the folder."""
    goes: Callable[[str], bool]
    seen: set[str] = field(default_factory=set)
    found: list[Import] = field(default_factory=list)
    is_known: bool = True

    def read(self, file: str, package: str) -> None:
        """Read a file that is a module of a package; "" for the script itself and what is next to it."""
        if file in self.seen or not self.goes(file):
            return
        self.seen.add(file)
        tree = _parsed(self.folder / file)
        if tree is None:
            self.is_known = False
            return
        for statement in tree.body:
            if _may_end(statement):
                return
            for name, names in _imported(statement, package):
                self._import(Import(file, statement.lineno, name.partition(".")[0]), name, names)

    def run(self, module: str) -> None:
        """Read what runs as `python -m`."""
        package, _, _ = module.rpartition(".")
        self._packages(package)
        if self.goes(self._path(module, ".py")):
            self.read(self._path(module, ".py"), package)
        else:
            self._packages(module)
            self.read(self._path(module, "/__main__.py"), module)

    def _import(self, each: Import, name: str, names: list[str]) -> None:
        if not self.goes(self._path(each.module, ".py")) and not self.goes(self._path(each.module)):
            if each.module not in (*sys.stdlib_module_names, "__main__") and each not in self.found:
                self.found.append(each)
            return
        self._packages(name)
        first = self.folder / self._path(name, "/__init__.py")
        text = first.read_text(errors="replace") if self.goes(self._path(name, "/__init__.py")) else ""
        for inner in names:
            if not re.search(rf"\b({inner}|__getattr__)\b|\*", text):
                self._packages(f"{name}.{inner}")

    def _packages(self, name: str) -> None:
        """Read a module, and before it the packages that it is in."""
        parts = name.split(".") if name else []
        for count in range(1, len(parts) + 1):
            inner = ".".join(parts[:count])
            if self.goes(self._path(inner, "/__init__.py")):
                self.read(self._path(inner, "/__init__.py"), inner)
            elif not self.goes(self._path(inner)):
                self.read(self._path(inner, ".py"), inner.rpartition(".")[0])

    def _path(self, module: str, ending: str = "") -> str:
        return str(self.root / (module.replace(".", "/") + ending))


def outside(folder: Path, script: str, goes: Callable[[str], bool]) -> list[Import]:
    """Return what a script surely imports that is neither in the folder nor in Python's standard library.

    Args:
        folder: where the code is.
        script: a path in it, or `-m package.module`.
        goes: whether the workers have a file or a folder of this path in the folder.
    """
    if script.startswith("-m "):
        search = _Search(folder, PurePosixPath(), goes)
        search.run(script.removeprefix("-m "))
    else:
        file = PurePosixPath(script)
        search = _Search(folder, file.parent, goes)
        search.read(str(file), "")
    return search.found if search.is_known else []


def lacking(each: Import, folder: Path, packages: Packages | None) -> bool:
    """Return whether it is sure that neither a lock nor an official image has a module.

    Args:
        each: what is imported.
        folder: where a module of this name that doesn't go to the workers would be.
        packages: those of the lock; what those of an index other than PyPI bring is not known.
    """
    files = (folder / f"{each.module}.py", folder / each.module / "__init__.py")
    is_own = any(map(Path.is_file, files)) and not re.fullmatch(rf"{OF_THE_IMAGE}|torchvision", each.module)
    if packages is None:
        return is_own or each.module in _LIBRARIES
    if is_own or each.module not in _LIBRARIES or "-index-url " in packages.lock:
        return False
    return _LIBRARIES[each.module] not in re.sub(r"[-_.]+", "-", packages.lock.lower()) and each.module not in set(
        _brought(packages)
    )


def sentence(each: Import, lock: str, code: str) -> str:
    """Return what to do about an import that workers lack; `lock` and `code` are the names of the settings."""
    return (
        f"{each.file}, line {each.line}, imports {each.module}, and the workers would have no such module: add the "
        f"package that brings it to the lock of {lock}, or correct the name; if it is a module of yours, set {code} "
        "to the folder that has it, and check that the ignore file there doesn't name it"
    )


def _parsed(path: Path) -> ast.Module | None:
    """Return the code of a file, None if it changes what can be imported.

    Also None if Python can't read it: running it shows the mistake better.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())
        return None if _CHANGES.search(ast.unparse(tree)) else tree
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _may_end(statement: ast.stmt) -> bool:
    """Return whether a statement may end the program or call what changes the imports that follow."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
        return False
    return any(isinstance(each, ast.Call | ast.Raise) for each in ast.walk(statement))


def _imported(statement: ast.stmt, package: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each module that a statement imports, with the names that it takes from there."""
    if isinstance(statement, ast.Import):
        yield from ((alias.name, []) for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        names = [alias.name for alias in statement.names if alias.name != "*"]
        parts = package.split(".") if package else []
        if not statement.level and statement.module:
            yield statement.module, names
        elif 0 < statement.level <= len(parts):
            inner = parts[: len(parts) - statement.level + 1]
            yield ".".join([*inner, *([statement.module] if statement.module else [])]), names


def _brought(packages: Packages) -> Iterator[str]:
    """Yield the modules that are in the wheels which travel with the job."""
    for path in filter(zipfile.is_zipfile, packages.wheels):
        with zipfile.ZipFile(path) as wheel:
            yield from (re.split(r"[/.]", name)[0] for name in wheel.namelist())
