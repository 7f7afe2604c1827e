"""Whether a model's functions are in the zoo, before a job is made: its module is read, and not run.

    models.mistakes(JobArgs(model_zoo="model_zoo", model_def="mnist.mnist_functional_api.custom_model", …))

The machine that submits a job need not have what the model imports. What the functions do is checked in the pods.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

from elasticdl.client.flags.mistakes import Mistake
from elasticdl.job import JobArgs, JobMode

_FORM = "write MODULE.FUNCTION, with dots for folders: mnist.mnist_functional_api.custom_model"
_LISTED = 8


def mistakes(args: JobArgs) -> list[Mistake]:
    """Return what is missing in the zoo, which is on this machine."""
    return list(_missing(args))


def _missing(args: JobArgs) -> Iterator[Mistake]:
    zoo = Path(args.model_zoo).expanduser()
    if not zoo.is_dir():
        what = "is no folder" if zoo.exists() else "does not exist"
        remedy = "`elasticdl zoo init` writes one with an example; one that is in the image needs --image_name"
        yield Mistake(f"--model_zoo={args.model_zoo} {what}", remedy)
        return
    if args.job_command and not args.model_def:
        return
    *modules, function = args.model_def.split(".")
    if not modules or not all(part.isidentifier() for part in (*modules, function)):
        yield Mistake(f"--model_def={args.model_def} names no function of a module", _FORM)
        return
    path = zoo.joinpath(*modules)
    file = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
    if file is None:
        yield Mistake(f"--model_def={args.model_def}: there is no {path.with_suffix('.py')}", _modules(zoo))
        return
    try:
        defined = _names(ast.parse(file.read_bytes()))
    except (SyntaxError, ValueError, OSError) as error:
        yield Mistake(f"--model_def={args.model_def}: {file} can't be read: {error}", "correct the module")
        return
    if defined is None:  # `from x import *` may define anything
        return
    for flag, name in {"model_def": function, **_functions(args)}.items():
        if name not in defined:
            near = difflib.get_close_matches(name, sorted(defined), n=1)
            remedy = f"define it, or name another one with --{flag}"
            yield Mistake(f"{file} has no {name}", f"did you mean {near[0]}? {remedy}" if near else remedy)


def _functions(args: JobArgs) -> dict[str, str]:
    """Return the functions that every model of this command needs, by the flag that names them."""
    if args.job_command:
        return {}
    needed = {"feed": args.feed}
    if args.mode is not JobMode.PREDICT:
        needed["loss"] = args.loss
    if args.mode is JobMode.TRAIN:
        needed["optimizer"] = args.optimizer
    if args.mode is JobMode.EVALUATE or args.evaluation_steps:
        needed["eval_metrics_fn"] = args.eval_metrics_fn
    return needed


def _names(module: ast.Module) -> set[str] | None:
    """Return what a module defines or imports at its top, also under an `if` or `try`; None if nobody can tell."""
    found: set[str] = set()
    todo: list[ast.AST] = list(module.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
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
