"""Why pip failed, in one sentence, from what it prints and from its log (`--log`).

The texts are those of the pip that travels with the job, so the tests see when one of them changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OTHER_PYTHON = re.compile(r"Requires-Python (.+)")
_NOT_FOUND = re.compile(r"ERROR: No matching distribution found for (\S+)")
_CONFLICT = re.compile(r"^\s+(\S+) from \S+.*:\n(?:\s+(?:Expected|or) .*\n)+\s+Got\s+(\w+)", re.M)
_UNREACHED = re.compile(r"connection broken by '?\"?(?P<error>\w+)\(.*?(?:host='(?P<host>[^']+)'|$)")
_SKIPPED = re.compile(r"Skipping link: (.+?): \S*?([^/\s#]+\.(?:whl|zip|tar\.\w+))(?=[#\s]|$)", re.M)
_ERROR = re.compile(r"^ERROR: (.+)$", re.M)


@dataclass(frozen=True)
class Reason:
    """Why pip failed, and whether trying again may help."""

    text: str
    is_passing: bool = False


def reason(output: str, log: str) -> Reason:
    """Return why pip failed.

    Args:
        output: what pip has printed.
        log: its log, which also says what it has passed over.
    """
    if wrong := _CONFLICT.search(output):
        return Reason(f"{wrong[1]} is not what was locked: the hash of its wheel is sha256:{wrong[2]}; lock it again")
    missing = _NOT_FOUND.search(output)
    unreached = _UNREACHED.search(output)
    if unreached:
        host = unreached["host"] or "its server"
        return Reason(f"the package index can't be reached: {host} ({unreached['error']})", is_passing=True)
    if missing:
        return Reason(_not_found(missing[1], log))
    errors = _ERROR.findall(output)
    return Reason(f"pip failed: {errors[-1] if errors else output.strip()[-500:] or 'it said nothing'}")


def _not_found(need: str, log: str) -> str:
    name, _, version = need.partition("==")
    begin = _plain(f"{name.partition('[')[0]}-{version}")
    skipped = {why: file for why, file in _SKIPPED.findall(log) if re.match(rf"{begin}(-|$)", _stem(file))}
    for why, file in skipped.items():
        if "none of the wheel's tags" in why:
            return f"{need} has no wheel for this image's Python, only others such as {file}: choose another version"
        if wanted := _OTHER_PYTHON.search(why):
            return f"{need} needs Python {wanted[1]}, which the image's is not: choose another version"
    if any("No sources permitted" in why for why in skipped):
        return (
            f"{need} is a source distribution, and no job builds it: build its wheel (`pip wheel {need}`), "
            "put it into a folder, name that with --find-links, and lock its hash"
        )
    return f"{need} is not in the index: look at the version, and at the address of the index"


def _stem(file: str) -> str:
    return _plain(re.sub(r"\.(whl|zip|tar\.\w+)$", "", file))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
