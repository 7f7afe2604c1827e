"""The variables to which a function of a script refers, also through other functions of the script.

for name, value in referred(training.on_step): ...
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sysconfig
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIBRARIES = ("builtins", "torch", "numpy", "tidewater", "argparse", "pathlib", "logging", "threading")
_INSTALLED = {"site-packages", "dist-packages"}
_MOST_CALLS = 2
"""Functions of the script are followed so deep below that of the training."""


def referred(function: Any, calls: int = _MOST_CALLS) -> Iterator[tuple[str, Any]]:
    """Yield the variables around a function, those of its module, and the object that it is a method of or that it is.

    Args:
        function: Any callable; others have no variables.
        calls: How many functions of the script to follow, one below the other.
    """
    if isinstance(function, functools.partial):
        given = {**{f"argument {index}": each for index, each in enumerate(function.args)}, **function.keywords}
        for name, value in given.items():
            yield from _found(name, value, calls)
        yield from referred(function.func, calls)
        return
    owner, inner = _parts(function)
    if owner is not None:
        yield type(owner).__name__, owner
    if not isinstance(inner, types.FunctionType):
        return
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            yield from _found(name, cell.cell_contents, calls)
    names = {name: None for code in _codes(inner.__code__) for name in code.co_names}
    for name in filter(inner.__globals__.__contains__, names):
        value = inner.__globals__[name]
        yield from _found(name, value, calls)
        if isinstance(value, types.ModuleType) and _is_the_scripts(value.__name__, getattr(value, "__file__", None)):
            for attribute in filter(vars(value).__contains__, names):
                yield from _found(f"{name}.{attribute}", vars(value)[attribute], calls)


def _found(name: str, value: Any, calls: int) -> Iterator[tuple[str, Any]]:
    yield name, value
    if calls and isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        _, inner = _parts(value)
        code = getattr(inner, "__code__", None)
        if code is None or _is_the_scripts(inner.__module__, code.co_filename):
            yield from referred(value, calls - 1)


def _parts(function: Any) -> tuple[Any, Any]:
    """Return the object of a method or a callable object, and the function in it, without its decorators."""
    if isinstance(function, types.FunctionType | type):
        return None, inspect.unwrap(function)
    owner = getattr(function, "__self__", function)
    return owner, inspect.unwrap(getattr(function, "__func__", type(function).__call__))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of a function, and of the functions and comprehensions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def _is_the_scripts(module: str, file: str | None) -> bool:
    """Return whether a module, or the file of a function in it, belongs to a script and not to a library."""
    if file is None or module.partition(".")[0] in LIBRARIES or _INSTALLED & {*Path(file).parts}:
        return False
    return not file.startswith((sysconfig.get_path("stdlib"), "<frozen"))
