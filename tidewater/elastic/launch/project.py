"""Runs a script in a person's folder, as `python SCRIPT` or `python -m MODULE` does there.

    python -m tidewater.elastic.launch.project FOLDER train.py --epochs 5
    python -m tidewater.elastic.launch.project FOLDER "-m package.module" --epochs 5

A module that isn't there is one sentence and exit code 2: another try would not find it either.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from pathlib import Path

from tidewater.contract.exit_codes import USAGE

LOCK, CODE = "--requirements", "--code"
"""What names the lock and the folder for people who use the command line."""


def run(folder: Path, script: str) -> None:
    """Run a script of a folder, which becomes the working directory. `sys.argv` has the script's flags from index 1."""
    # The runtime must be this one, also if the folder has a module of its name.
    importlib.import_module("tidewater")
    os.chdir(folder)
    if script.startswith("-m "):
        sys.path.insert(0, str(folder))
        runpy.run_module(script.removeprefix("-m "), run_name="__main__", alter_sys=True)
    else:
        path = folder / script
        sys.argv[0] = str(path)
        sys.path.insert(0, str(path.resolve().parent))
        runpy.run_path(str(path), run_name="__main__")


def sentence(error: ModuleNotFoundError, lock: str, code: str) -> str:
    """Return what to do about an import; `lock` and `code` are the names of the settings.

    Raises:
        ModuleNotFoundError: it is `error`, which was raised by hand.
    """
    if not error.name:
        raise error
    places = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    return (
        f"{places[-1].filename}, line {places[-1].lineno}, imports {error.name}, and the worker has no "
        f"such module: add the package that brings it to the lock of {lock}; if it is a module of yours, "
        f"set {code} to the folder that has it, and check that the ignore file there doesn't name it"
    )


def main() -> None:
    """Run the script that the command line names."""
    _, folder, script = sys.argv[:3]
    del sys.argv[1:3]
    if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):  # of `-m`: the script may have another folder
        del sys.path[0]
    try:
        run(Path(folder).resolve(), script)
    except ModuleNotFoundError as error:
        print(f"trainer: {sentence(error, LOCK, CODE)}", file=sys.stderr)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
