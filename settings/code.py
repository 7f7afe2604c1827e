"""The part of `parsing` for people's training code: one script, or a folder and what runs of it; and its packages.

trainingCode: project            # without what its .tidewaterignore names; if it has none, its .gitignore
trainingScript: train.py         # a file in that folder, or `-m package.module`
trainingPackages: lock.txt       # see `tidewater.project.lock`
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from settings.reader import Reader
from tidewater.project import folder as folders
from tidewater.project import imports, lock

KEY, SCRIPT, PACKAGES = "trainingCode", "trainingScript", "trainingPackages"
_FROM = "give its path from the directory of Pulumi.yaml"


def script(read: Reader) -> Path | None:
    """Return the one file that is the training code; None if there is none, or if it is in a folder."""
    text, inside = _script(read), _folder(read)
    if not text or inside or not read.are_right(KEY):
        return None
    if re.fullmatch(folders.MODULE, text):
        read.wrong(SCRIPT, text, f"needs the folder with the module: set {KEY}")
    elif not Path(text).is_file():
        read.wrong(SCRIPT, text, f"is not a file; {_FROM}")
    return Path(text)


def folder(read: Reader) -> folders.Code | None:
    """Return the folder with the training code; None if the configuration names none, or after a mistake."""
    text, runs = _folder(read), _script(read)
    if not text:
        return None
    if not Path(text).is_dir():
        read.wrong(KEY, text, f"is not a folder; {_FROM}")
        return None
    try:
        found = folders.read(Path(text), runs, KEY)
    except OSError as error:
        read.wrong(KEY, text, f"can't be read: {error}")
        return None
    for mistake in found.mistakes:
        read.wrong(KEY, text, mistake)
    if not read.are_right(KEY, SCRIPT):
        return None
    if found.wrong_script:
        read.wrong(SCRIPT, runs or '""', found.wrong_script)
    return found.code


def packages(read: Reader) -> lock.Packages | None:
    """Return the packages that the configuration names; None if it names none."""
    text = read.text(PACKAGES, r"(.+\.txt)?", "the path of a .txt file with locked requirements, or empty")
    if not text:
        return None
    found, mistakes = lock.read(Path(text))
    for mistake in mistakes:
        read.wrong(PACKAGES, text, f"{mistake}; {_FROM}" if mistake == lock.UNREADABLE else mistake)
    return found


def check_imports(
    read: Reader, script: Path | None, code: folders.Code | None, packages: lock.Packages | None, image: str
) -> None:
    """Add a mistake for each import that workers would surely lack: nothing is known of an image of another kind."""
    if not imports.OFFICIAL_IMAGE.fullmatch(image) or not read.are_right(SCRIPT, KEY, PACKAGES):
        return
    if code is None and script is not None:  # it goes alone
        code = folders.Code(script.parent, (script.name,), {}, script.name)
    if code is None or code.script in code.links:
        return
    names = {*code.files, *code.links}
    there = {*names, *(str(parent) for name in names for parent in PurePosixPath(name).parents)}
    first = code.folder if code.script.startswith("-m ") else (code.folder / code.script).parent
    for each in imports.outside(code.folder, code.script, there.__contains__):
        if imports.lacking(each, first, packages):
            read.wrong(SCRIPT, code.script, imports.sentence(each, PACKAGES, KEY))


def _folder(read: Reader) -> str:
    return read.text(KEY, r"[^\n]*", "the path of a folder, or empty")


def _script(read: Reader) -> str:
    return read.text(
        SCRIPT, rf"(.+\.py|{folders.MODULE})?", f"the path of a .py file, `-m` and a module of {KEY}, or empty"
    )
