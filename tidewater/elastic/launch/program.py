"""The program of this process, to be run again with the same command line.

own_command()      # for the processes of a launcher
fix_hash_seed()    # executes it again in this process, if the hash seed isn't fixed
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path, PurePath

from tidewater.contract import env

_OPTION = re.compile(r"-(?:[^-cmWX]*([cmWX])(.*)|.+)", re.DOTALL)
"""An option of the interpreter, or several one-letter options; the last one of these may have a value."""
_VALUE_FOLLOWS = "--check-hash-based-pycs"


def own_command() -> list[str]:
    """Return the command line of this process, including the interpreter's flags and `-m`.

    A script has its absolute path, because it may have changed the current directory.
    """
    command = [sys.executable, *sys.orig_argv[1:]]
    module, at = _program(command)
    script = None if module else _script(command[at:])
    return [*command[:at], script, *command[at + 1 :]] if script else command


def fix_hash_seed() -> None:
    """Execute this program again, in the same process, with a fixed hash seed; return if it has one.

    Otherwise the order of a set of strings would differ between workers, and a split of the data made from one, too.
    The interpreter reads the seed only at its start. Return also if a program can't be executed again: it was read from
    standard input, another program runs it (IPython, a debugger, pytest), the interpreter ignores the environment
    (`-I`), or the current directory, which it has changed, has another module of its name.
    """
    if any(map(os.environ.get, env.FIXED_HASHES)) or sys.flags.ignore_environment or _is_hosted():
        return
    command = own_command()
    module, at = _program(command)
    more = _to_find(module) if module else {} if _script(command[at:]) else None
    if more is None:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, {**os.environ, **env.FIXED_HASHES, **more})


def _is_hosted() -> bool:
    """Return whether IPython, a debugger, a measurement of coverage or a test runs the program."""
    tested = "pytest" in sys.modules and "PYTEST_CURRENT_TEST" in os.environ
    return hasattr(builtins, "__IPYTHON__") or sys.gettrace() is not None or tested


def _program(command: Sequence[str]) -> tuple[str, int]:
    """Return the name of the module that a command line of Python runs, or "" and the index of its script."""
    at = 1
    while at < len(command) and (option := _OPTION.fullmatch(command[at])):
        letter, value = option.groups()
        if letter == "m":
            return value or "".join(command[at + 1 : at + 2]), at
        if letter == "c":
            return "", len(command)
        at += 2 if command[at] == _VALUE_FOLLOWS or (letter and not value) else 1
    return "", at


def _script(arguments: Sequence[str]) -> str | None:
    """Return the absolute path of the script, directory or zip file that is the first argument; None if no such runs.

    The interpreter makes the path absolute at its start.
    """
    file = getattr(sys.modules["__main__"], "__file__", None)
    if not arguments or not file:
        return None
    end = PurePath(arguments[0]).parts
    for path in (PurePath(file), PurePath(file).parent):
        if path.is_absolute() and path.parts[len(path.parts) - len(end) :] == end:
            return str(path)
    return None


def _to_find(module: str) -> dict[str, str] | None:
    """Return the variables with which `-m` finds the module that runs now; None if it would find another one."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if not file or spec is None or spec.name not in (module, f"{module}.__main__"):
        return None
    root = Path(file).parents[spec.name.count(".")]
    if root == Path.cwd() or root.is_relative_to(sys.prefix) or root.is_relative_to(sys.base_prefix):
        return {}
    here = PathFinder.find_spec(module.partition(".")[0], [os.getcwd()])
    if here is not None and here.origin is not None:
        return None
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{given}{os.pathsep}{root}" if given else str(root)}
