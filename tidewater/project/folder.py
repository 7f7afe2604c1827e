"""A folder with training code: what of it goes to the workers, and one sentence for each mistake in it.

    found = read(Path("project"), "train.py", "trainingCode")     # or `-m package.module`
    found.code                                                    # without what its ignore file names

Patterns mean what they mean to git: https://git-scm.com/docs/gitignore#_pattern_format
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec, RegexPattern

MODULE = r"-m [A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
"""Regular expression of what runs a module."""
LARGEST_MIB = 256
"""Of all files together: the bundle is made in memory, and every worker downloads it."""
IGNORE_FILES = (".tidewaterignore", ".gitignore")
NEVER = (".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".cache", ".DS_Store", *IGNORE_FILES)
MARKERS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""A folder that has one is a virtual environment, an environment of conda, or a cache (https://bford.info/cachedir/)."""

_SHOWN = 5


@dataclass(frozen=True)
class Code:
    """A folder with training code, without what its ignore file leaves out."""

    folder: Path
    files: tuple[str, ...]
    """Paths in the folder, sorted."""
    links: Mapping[str, str]
    """Symbolic links to files and folders that go too: path in the folder, and target from where the link is."""
    script: str
    """What runs: a file's path in the folder, or `-m package.module`."""


@dataclass(frozen=True)
class Reading:
    """What was read of a folder."""

    code: Code
    mistakes: list[str]
    """What is wrong with the folder."""
    wrong_script: str = ""
    """Why the script can't run, "" if it can, or if the folder has mistakes."""


@dataclass(frozen=True)
class _Rules:
    """What is left out of a folder."""

    root: Path
    file: str
    """The ignore file that is used, or would be."""
    patterns: dict[str, RegexPattern]
    """By their lines. The last one that matches decides."""

    def reason(self, name: str) -> str:
        """Return why a file, or a folder with a slash at its end, is left out; "" if it is not."""
        last = posixpath.basename(name.rstrip("/"))
        if last in NEVER:
            return f"{last} never goes to the workers"
        marker = next((each for each in MARKERS if name.endswith("/") and (self.root / name / each).exists()), None)
        if marker:
            return f"{name} has {marker}, and environments and caches never go to the workers"
        for line, pattern in reversed(self.patterns.items()):
            if pattern.regex and pattern.regex.fullmatch(name):
                return f"{self.file} has the line {line!r}" if pattern.include else ""
        return ""

    def reason_on_the_way(self, name: str) -> str:
        """Return why a file, or a folder that it is in, is left out; "" if none is."""
        folders = [f"{each}/" for each in reversed(PurePosixPath(name).parents[:-1])]
        return next((found for each in (*folders, name) if (found := self.reason(each))), "")


@dataclass
class _Found:
    """What of a folder goes to the workers, and what is wrong with it."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each file."""
    links: dict[str, str] = field(default_factory=dict)
    """Where symbolic links lead, as a path in the folder."""
    outside: list[str] = field(default_factory=list)
    """Links that lead out of the folder."""


def read(root: Path, runs: str, key: str) -> Reading:
    """Read a folder.

    Args:
        root: the folder, which exists.
        runs: the script's path in it, or `-m package.module`; "" if it is missing.
        key: what names the folder for people: a key of the configuration, or a flag.

    Raises:
        OSError: a file or folder can't be read.
    """
    rules = _rules(root)
    found = _walk(root, rules)
    links = {name: posixpath.relpath(target, posixpath.dirname(name) or ".") for name, target in found.links.items()}
    code = Code(root, tuple(sorted(found.sizes)), links, runs)
    mistakes = list(_mistakes(found, rules))
    return Reading(code, mistakes, "" if mistakes else _not_there(root, rules, runs, found.sizes, key))


def largest(sizes: Mapping[str, int]) -> str:
    """Return the names and sizes of the largest files, for people."""
    first = sorted(sizes, key=lambda name: (-sizes[name], name))[:_SHOWN]
    return ", ".join(f"{name} ({_mib(sizes[name])})" for name in first)


def _rules(root: Path) -> _Rules:
    """Return the rules of a folder. A line that git doesn't understand has no effect, as in git."""
    file = next((name for name in IGNORE_FILES if (root / name).is_file()), None)
    # As names of files are decoded, so that a name that isn't UTF-8 can be ignored.
    text = (root / file).read_bytes().decode("utf-8-sig", "surrogateescape") if file else ""
    # The same line may come again, and then decides from its last place.
    found = {line: pattern for line in reversed(text.splitlines()) if (pattern := _pattern(line))}
    return _Rules(root, file or IGNORE_FILES[0], dict(reversed(found.items())))


def _pattern(line: str) -> RegexPattern | None:
    """Return the pattern of a line; None if it has none. Its expression matches the whole of a path.

    By itself pathspec matches what is in a matching folder too, so that `!folder` would take in everything there, and
    shortens `*` at the end to an expression that matches a part of the path. `?*` is the same for git.
    """
    line = re.sub(r"(?<!\\) +$", "", line)
    line = re.sub(r"/\*\*(/?)$", r"/**/?*\1", line)
    line = re.sub(r"^(!?)\*\*(/?)$|(^!?|/)\*(/?)$", r"\1\3?*\2\4", line)
    try:
        patterns = GitIgnoreSpec.from_lines([line]).patterns
    except ValueError:
        return None
    return patterns[0] if patterns and patterns[0].include is not None else None


def _walk(root: Path, rules: _Rules) -> _Found:
    """Find what goes. A folder that is left out isn't entered, so nothing in it can be taken in again, as in git.

    Sockets, pipes and devices are left out, and links that lead nowhere.
    """
    found, base, left = _Found(), os.path.realpath(root), [""]
    while left:
        inner = left.pop()
        with os.scandir(root / inner) as entries:
            for entry in entries:
                name = inner + entry.name
                if entry.is_dir(follow_symlinks=False):
                    left += [] if rules.reason(f"{name}/") else [f"{name}/"]
                elif rules.reason(name):
                    continue
                elif entry.is_symlink():
                    target = posixpath.relpath(os.path.realpath(entry.path), base)
                    if target.split("/")[0] == "..":
                        found.outside.append(name)
                    elif os.path.exists(entry.path):
                        found.links[name] = target
                elif entry.is_file(follow_symlinks=False):
                    found.sizes[name] = entry.stat(follow_symlinks=False).st_size
                    if not os.access(entry.path, os.R_OK):
                        raise PermissionError(f"{name}: permission denied")
    return found


def _mistakes(found: _Found, rules: _Rules) -> Iterator[str]:
    file = rules.file
    if not found.sizes:
        yield f"no file is left of it: {file} leaves out everything" if rules.patterns else "has no file that can go"
        return
    if found.outside:
        yield (
            f"{_some(found.outside)}: a link that leads out of the folder can't go to the workers; copy what it leads "
            f"to, or name the link in {file} (without a slash at its end, since that means folders)"
        )
    folders = {str(parent) for name in found.sizes for parent in PurePosixPath(name).parents}
    lost = [f"{name} → {to}" for name, to in found.links.items() if to not in found.sizes and to not in folders]
    if lost:
        yield f"{_some(lost)}: the link stays and what it leads to is left out; name both in {file}, or none"
    total = sum(found.sizes.values())
    if total > LARGEST_MIB << 20:
        yield (
            f"has {_mib(total)}, and {LARGEST_MIB} MiB can go to the workers; name what isn't code in {file}, and put "
            f"data into the dataset. The largest files: {largest(found.sizes)}"
        )


def _not_there(root: Path, rules: _Rules, runs: str, files: Collection[str], key: str) -> str:
    """Return why a script or module can't run, "" if it can."""
    if not runs:
        return f"must name a .py file in {key} ({root}), or `-m` and a module there"
    module = runs.removeprefix("-m ").replace(".", "/") if runs.startswith("-m ") else ""
    if not module and (os.path.isabs(runs) or posixpath.normpath(runs).split("/")[0] == ".."):
        return f"is outside {key} ({root}); give the path of a file in that folder"
    names = [f"{module}.py", f"{module}/__main__.py"] if module else [posixpath.normpath(runs)]
    base = os.path.realpath(root)
    if any(posixpath.relpath(os.path.realpath(root / name), base) in files for name in names):
        return ""
    reasons = (rules.reason_on_the_way(name) for name in names if (root / name).is_file())
    if reason := next(reasons, None):
        return f"is left out: {reason}"
    if module:
        return f"is not in {key} ({root}), which has neither {names[0]} nor {names[1]}"
    here = posixpath.relpath(os.path.realpath(runs), base)
    return f"is not in {key} ({root}); give its path from that folder" + (f": {here}" if here in files else "")


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
