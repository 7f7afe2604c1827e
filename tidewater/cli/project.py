"""The flags `--code` and `--requirements`: a person's folder and its lock, with a UsageError for what is wrong.

code = code_at("project", "train.py")
packages = packages_at("requirements.txt")
"""

from __future__ import annotations

from pathlib import Path

from tidewater.cli.errors import UsageError
from tidewater.project import folder, lock


def code_at(text: str, script: str) -> folder.Code:
    """Return the folder that `--code` names, and the script in it.

    Raises:
        UsageError: it has mistakes, or the script isn't in it.
    """
    if not Path(text).is_dir():
        raise UsageError(f"--code {text} is not a folder")
    try:
        found = folder.read(Path(text), script, "--code")
    except OSError as error:
        raise UsageError(f"--code {text} can't be read: {error}") from None
    if found.mistakes:
        raise UsageError("\n".join(f"--code {text}: {each}" for each in found.mistakes))
    if found.wrong_script:
        raise UsageError(f"the script {script or repr('')} {found.wrong_script}")
    return found.code


def packages_at(text: str) -> lock.Packages:
    """Return the packages of the lock that `--requirements` names. Raise UsageError if it has mistakes."""
    found, mistakes = lock.read(Path(text))
    if mistakes:
        raise UsageError("\n".join(f"--requirements {text}: {each}" for each in mistakes))
    return found
