"""Whether a model's functions are in the zoo, before a job is made: its module is read, and not run.

    models.mistakes(JobArgs(model_zoo="model_zoo", model_def="mnist.mnist_functional_api.custom_model", …))

The machine that submits a job need not have what the model imports. What the functions do is checked in the pods.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.client.flags.mistakes import Mistake
from elasticdl.job import JobArgs, problems_of_outputs

_BASES = "elasticdl.zoo.spec"
"""A module that imports a base class from here has no function of that name."""

_FORM = "write MODULE.FUNCTION, with dots for folders: mnist.mnist_functional_api.custom_model"
_LISTED = 8


def mistakes(args: JobArgs) -> list[Mistake]:
    """Return what is missing in the zoo, which is on this machine."""
    return list(dict.fromkeys(_missing(args)))


@dataclass(frozen=True)
class _Module:
    """What a module of the zoo defines."""

    file: Path
    names: set[str] | None
    """None if they are unknown: `from x import *` may define anything."""


def _missing(args: JobArgs) -> Iterator[Mistake]:
    zoo = Path(args.model_zoo)
    if not zoo.is_dir():
        what = "is no folder" if zoo.exists() else "does not exist"
        remedy = "`elasticdl zoo init` writes one with an example; one that is in the image needs --image_name"
        yield Mistake(f"--model_zoo={args.model_zoo} {what}", remedy)
        return
    if args.job_command and not args.model_def:
        return
    for flag, name in {"model_def": args.model_def, **_needed(args)}.items():
        found = _module(args, zoo, flag, name)
        function = name.rpartition(".")[2]
        if isinstance(found, Mistake):
            yield found
        elif found.names is not None and function not in found.names:
            near = difflib.get_close_matches(function, sorted(found.names), n=1)
            remedy = f"define it, or name another one with --{flag}"
            yield Mistake(f"{found.file} has no {function}", f"did you mean {near[0]}? {remedy}" if near else remedy)
    yield from _of_outputs(args, zoo)


def _needed(args: JobArgs) -> dict[str, str]:
    """Return the functions that must be there, by the flag that names them."""
    names = {flag: (getattr(args, flag), must) for flag, must in args.functions().items()}
    return {flag: name for flag, (name, must) in names.items() if must or name != getattr(JobArgs, flag)}


def _of_outputs(args: JobArgs, zoo: Path) -> Iterator[Mistake]:
    """Yield what is wrong with where predictions go, if the module can be read."""
    name = args.prediction_outputs_processor
    found = _module(args, zoo, "prediction_outputs_processor", name)
    if isinstance(found, _Module) and found.names is not None:
        for message, remedy in problems_of_outputs(args, processor=name.rpartition(".")[2] in found.names):
            yield Mistake(message, remedy)


def _module(args: JobArgs, zoo: Path, flag: str, name: str) -> _Module | Mistake:
    """Return the module of a function: that of the model, unless the name says another one; or why there is none."""
    if "." not in name:
        flag, name = "model_def", args.model_def
    *modules, function = name.split(".")
    if not modules or not all(part.isidentifier() for part in (*modules, function)):
        return Mistake(f"--{flag}={name} names no function of a module", _FORM)
    path = zoo.joinpath(*modules)
    file = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
    if file is None:
        return Mistake(f"--{flag}={name}: there is no {path.with_suffix('.py')}", _modules(zoo))
    try:
        return _Module(file, _names(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError, OSError) as error:
        return Mistake(f"--{flag}={name}: {file} can't be read: {error}", "correct the module")


def _names(module: ast.Module) -> set[str] | None:
    """Return the names that a module defines or imports at its top, also under `if` or `try`; None if unknown."""
    found: set[str] = set()
    todo: list[ast.AST] = list(module.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module == _BASES:
            continue
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return None
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and _is_stored(each)}
            todo += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.ExceptHandler)]
    return found


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _modules(zoo: Path) -> str:
    """Return the remedy for a module that doesn't exist: those that do."""
    found = sorted(
        ".".join(path.relative_to(zoo).with_suffix("").parts)
        for path in zoo.rglob("*.py")
        if path.stem != "__init__" and not any(part.startswith(".") for part in path.relative_to(zoo).parts)
    )
    if not found:
        return f"there is no module in {zoo}; `elasticdl zoo init` writes an example"
    listed = ", ".join(found[:_LISTED]) + (", …" if len(found) > _LISTED else "")
    return f"{_FORM}; modules in {zoo}: {listed}"
