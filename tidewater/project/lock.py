"""The Python packages of people's training scripts: a lock in pip's format.

    alpha==1.2.0 ; sys_platform == "linux" \\
        --hash=sha256:0123…
    --find-links wheels                 # a folder next to the file; or --index-url, --extra-index-url, --no-index

pip reads the same text later, in the workers' image: what depends on its Python is found there. Everything else is
refused here, one sentence for each line.
https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

LARGEST_MIB = 256
"""Of all wheels in the folders of --find-links together, since they travel with the job."""
OF_THE_IMAGE = (
    r"torch|numpy|triton|tidewater|cuda-(bindings|pathfinder|toolkit)"
    r"|nvidia-(cublas|cuda-.+|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|nvjitlink|nvshmem|nvtx)(-cu\d+)?"
)
"""What the runtime and torch are built for. Another version in front of the image's would break them."""
UNREADABLE = "is not a file that can be read"
WITHOUT = "the image has it; lock without it (docs/training/code.md#your-packages) and remove the line"

_HASH = re.compile(r"--hash[= ]+(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")
_COMMENT = re.compile(r"(^|\s+)#.*$")  # pip's own rule
_SHORT = {"-i": "--index-url", "-f": "--find-links"}
_IMPLIED = ("--require-hashes", "--only-binary", "--prefer-binary")
_INDEXES = ("--index-url", "--extra-index-url")
_ALLOWED = f"{', '.join(_INDEXES)}, --find-links FOLDER and --no-index"


@dataclass(frozen=True)
class Packages:
    """Python packages that a job installs for the workers."""

    lock: str
    """Requirements with hashes, as pip reads them; the same packages have the same text."""
    wheels: tuple[Path, ...]
    """Those of them that travel with the job, instead of being downloaded."""

    @property
    def digest(self) -> str:
        """Return the start of the lock's SHA-256, after which job and folder are named."""
        return hashlib.sha256(self.lock.encode()).hexdigest()[:10]


@dataclass
class _Lock:
    """What has been read of a file, and what is wrong with it."""

    folder: Path
    options: list[str] = field(default_factory=list)
    pins: dict[str, list[str]] = field(default_factory=dict)
    """Lines by the package's name."""
    hashes: set[str] = field(default_factory=set)
    folders: list[Path] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


def read(path: Path) -> tuple[Packages, list[str]]:
    """Return the packages that a file names, and what is wrong with it: a sentence for each line."""
    try:
        return parse(path.read_bytes().decode("utf-8-sig"), path.parent)
    except OSError:
        return Packages("", ()), [UNREADABLE]
    except UnicodeDecodeError as error:
        return Packages("", ()), [f"is not UTF-8 (byte {error.start}); save it as UTF-8"]


def parse(content: str, folder: Path) -> tuple[Packages, list[str]]:
    """Return the packages that a lock names, and what is wrong with it: a sentence for each line.

    Args:
        content: the text of the file.
        folder: where it lies; those of --find-links are relative to it.
    """
    lock = _Lock(folder)
    for number, line in _lines(content):
        wrong = _option(lock, line) if line.startswith("-") else _pin(lock, line)
        if wrong:
            lock.mistakes.append(f"line {number}: {wrong}")
    if not lock.pins and not lock.mistakes:
        lock.mistakes.append("names no package; leave it out if the image has all that the script imports")
    wheels = _wheels(lock)
    pins = [line for name in sorted(lock.pins) for line in sorted(lock.pins[name])]
    return Packages("".join(f"{line}\n" for line in [*lock.options, *pins]), wheels), lock.mistakes


def _lines(content: str) -> list[tuple[int, str]]:
    """Return the lines without comments, joined where a backslash ends one, each with the number of its first."""
    found: list[tuple[int, str]] = []
    begun: list[str] = []
    first = 0
    for number, line in enumerate(content.splitlines(), 1):
        first = first if begun else number
        text = _COMMENT.sub("", line)
        if text.endswith("\\"):
            begun.append(text[:-1].strip())
            continue
        found.append((first, " ".join([*begun, text.strip()]).strip()))
        begun = []
    found.append((first, " ".join(begun)))
    return [(number, line) for number, line in found if line]


def _option(lock: _Lock, line: str) -> str | None:
    """Add an option; return what is wrong with it."""
    given, value = re.fullmatch(r"(-[\w-]*)[= ]*(.*)", line).groups()  # type: ignore[union-attr]
    name, value = _SHORT.get(given, given), value.strip("\"' ")
    if name in ("-e", "--editable"):
        return "-e installs from sources, which change; build a wheel and name its folder with --find-links"
    if name in ("-r", "--requirement", "-c", "--constraint"):
        return f"{name} reads another file; put all requirements into this one, as `uv pip compile` does"
    if name in _INDEXES:
        if wrong := _address(value):
            return f"the address of {name} {wrong}"
        lock.options.append(f"{name} {value}")
    elif name == "--find-links":
        place = lock.folder / value
        if "://" in value or not value or not place.is_dir():
            return "--find-links must name a folder of wheels, by its path from this file"
        lock.folders.append(place)
    elif line == "--no-index":
        lock.options.append(line)
    elif name not in _IMPLIED:
        return f"{name} is not supported here; the options are {_ALLOWED}"
    return None


def _address(text: str) -> str | None:
    """Return what is wrong with the address of an index, without what may be secret in it."""
    try:
        parts = urlsplit(text)
        secret = parts.username is not None or bool(parts.query)
    except ValueError:
        return "can't be read"
    if secret or "${" in text:
        return (
            "has credentials in it, which the bucket and the logs would show; put them into /etc/pip.conf of the image,"
            " or download the wheels and name their folder with --find-links"
        )
    return None if parts.scheme == "https" and parts.hostname else "must begin with https://"


def _pin(lock: _Lock, line: str) -> str | None:
    """Add a requirement; return what is wrong with it."""
    text, *options = re.split(r"\s+(?=--)", line)
    if re.match(r"\S*(://|/|\.whl$|\.tar\.gz$)", text) or " @ " in text:
        return "an address or a path has no version; name the package with ==, and folders of wheels with --find-links"
    try:
        need = Requirement(text)
    except InvalidRequirement:
        return "is neither a requirement nor an option of pip; write NAME==VERSION --hash=sha256:…"
    name = canonicalize_name(need.name)
    pinned = [each for each in need.specifier if each.operator in ("==", "===") and not each.version.endswith(".*")]
    if re.fullmatch(OF_THE_IMAGE, name):
        return f"{name}: {WITHOUT}"
    if len(pinned) != 1 or len(need.specifier) != 1:
        return f"{name} has no single version; write {name}==VERSION, as `uv pip compile --generate-hashes` does"
    hashes = [match[1] for each in options if (match := _HASH.fullmatch(each.strip()))]
    if len(hashes) < len(options):
        return f"{name} has an option that is no hash of SHA-256, 384 or 512; write --hash=sha256:… only"
    if not hashes:
        return f"{name} has no hash; lock with `uv pip compile --generate-hashes`"
    if not need.marker and name in lock.pins:
        return f"{name} is there twice; remove one of the lines"
    lock.pins.setdefault(name, []).append(" ".join([str(need), *(f"--hash={each}" for each in sorted(hashes))]))
    lock.hashes.update(hashes)
    return None


def _wheels(lock: _Lock) -> tuple[Path, ...]:
    """Return the wheels in the folders of --find-links that the lock names by their SHA-256."""
    found = {
        path.name: path
        for folder in lock.folders
        for path in sorted(folder.glob("*.whl"))
        if _wheel_of(path) in lock.pins and f"sha256:{_digest(path)}" in lock.hashes
    }
    sizes = {name: path.stat().st_size for name, path in found.items()}
    if sum(sizes.values()) > LARGEST_MIB * 2**20:
        largest = ", ".join(sorted(sizes, key=sizes.__getitem__, reverse=True)[:3])
        lock.mistakes.append(
            f"the wheels of --find-links have more than {LARGEST_MIB} MiB; let an index serve the largest: {largest}"
        )
    return tuple(found[name] for name in sorted(found))


def _wheel_of(path: Path) -> str:
    try:
        return parse_wheel_filename(path.name)[0]
    except InvalidWheelFilename:
        return ""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
