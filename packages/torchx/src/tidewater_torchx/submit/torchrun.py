"""torchrun as a role's command: found, and made to meet in etcd. Pure.

    command = found_in(role)                # None if the role runs something else
    met_in_etcd(role, "etcd:2379")          # a copy of the role

`dist.ddp` runs `bash -c "torchrun --rdzv_backend c10d --rdzv_endpoint …"`: the agents meet in a store that replica 0
holds. If replica 0 is lost, all are. In etcd they meet without it, by this project's rendezvous `etcd-v3`.
"""

from __future__ import annotations

import copy
import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from torchx.specs import Role, macros

from tidewater_torchx.submit.retries import is_elastic

BACKEND = "etcd-v3"
"""See docs/training/torchrun.md#etcd-v3-for-torchrun."""

STORE = "c10d"
"""torchrun's own backend. Any other was chosen by the user, and stays."""

MAX_RESTARTS = "PET_MAX_RESTARTS"
"""torchrun's default for --max-restarts, as for every option of its:
https://github.com/pytorch/pytorch/blob/main/torch/distributed/argparse_util.py"""

RESTARTS = "100"
"""When a replica is lost, the workers of the others fail too, and each of these failures counts for torchrun."""

_MODULE = "torch.distributed.run"
_PYTHON = re.compile(r"(.*/)?python[\d.]*")
_OWN_ENDPOINT = re.compile(rf"localhost:0|\$\$\{{{re.escape(macros.rank0_env)}:=localhost\}}:\d+")
"""What `dist.ddp` gives for every backend: a port of replica 0, or of the only replica."""

_SHELLS = frozenset({"bash", "sh", "/bin/bash", "/bin/sh"})
_FLAGS = frozenset({"standalone", "no-python", "m", "module", "run-path", "virtual-local-rank"})
"""torchrun's options without a value."""

_SUBSTITUTION = r"\$\((?:[^()]|\([^()]*\))*\)|\$\{[^{}]*\}|`[^`]*`"
_TOKEN = re.compile(rf"""(?:{_SUBSTITUTION}|[^\s'"\\]|'[^']*'|"(?>{_SUBSTITUTION}|[^"\\]|\\.)*+"|\\.)+""")
"""One word of a shell's command line, as it is written. A substitution may have blanks: `$(hostname -i):29500`."""


@dataclass(frozen=True)
class Option:
    """An option before the script: its name without dashes, its value as written, and where the value is."""

    name: str
    value: str
    start: int
    end: int


@dataclass(frozen=True)
class Command:
    """torchrun's command line within a role.

    Attributes:
        text: the shell's text, or the words with NULs between them.
        options: those of torchrun, before the script and its arguments.
        shell: whether the text is a shell's.
    """

    text: str
    options: tuple[Option, ...]
    shell: bool

    def option(self, name: str) -> Option | None:
        """Return the option of that name, which is written with dashes; None if it isn't given."""
        return next((each for each in reversed(self.options) if each.name == name), None)


def found_in(role: Role) -> Command | None:
    """Return the torchrun command line of a role; None if it runs something else."""
    if role.entrypoint in _SHELLS and len(role.args) == 2 and role.args[0] == "-c":
        return _read(role.args[1], shell=True)
    return _read("\0".join([role.entrypoint, *role.args]), shell=False)


def lacks_etcd(role: Role) -> bool:
    """Return whether a role's command names the rendezvous on etcd, and the endpoint of another one."""
    command = found_in(role)
    return command is not None and _lacks_etcd(command)


def met_in_etcd(role: Role, endpoint: str) -> Role:
    """Return a copy of a role with agents that meet in etcd, if it runs torchrun with its own backend, or `lacks_etcd`.

    Args:
        role: the role, before its macros are filled in.
        endpoint: where etcd is; a checked address, without what a shell or a macro would read.
    """
    command = found_in(role)
    if command is None:
        return role
    backend, place = command.option("rdzv-backend"), command.option("rdzv-endpoint")
    if backend is None or place is None or not (_backend(command) == STORE or _lacks_etcd(command)):
        return role
    quoted = shlex.quote(endpoint) if command.shell else endpoint
    text = command.text
    for option, value in sorted(((backend, BACKEND), (place, quoted)), key=lambda each: -each[0].start):
        text = text[: option.start] + value + text[option.end :]
    changed: Role = copy.deepcopy(role)
    changed.args = [role.args[0], text] if command.shell else text.split("\0")[1:]
    if is_elastic(role) and command.option("max-restarts") is None:
        changed.env = {MAX_RESTARTS: RESTARTS, **role.env}
    return changed


def _backend(command: Command) -> str:
    option = command.option("rdzv-backend")
    return "" if option is None else _plain(option.value, shell=command.shell)


def _lacks_etcd(command: Command) -> bool:
    place = command.option("rdzv-endpoint")
    if place is None or _backend(command) != BACKEND:
        return False
    return _OWN_ENDPOINT.fullmatch(_plain(place.value, shell=command.shell)) is not None


def _read(text: str, *, shell: bool) -> Command | None:
    words = _words(text, shell=shell)
    begin = _begin([_plain(word, shell=shell) for word, _, _ in words])
    if not begin:
        return None
    options, rest = list[Option](), words[begin:]
    while rest:
        (word, start, end), *rest = rest
        if not word.startswith("-") or word == "--":
            break
        name, equals, value = word.partition("=")
        key = name.lstrip("-").replace("_", "-")
        if equals:
            options.append(Option(key, value, start + len(name) + 1, end))
        elif key in _FLAGS or not rest:
            options.append(Option(key, "", end, end))
        else:
            (value, start, end), *rest = rest
            options.append(Option(key, value, start, end))
    return Command(text, tuple(options), shell)


def _begin(words: Sequence[str]) -> int:
    """Return the position of torchrun's first argument; 0 if the words are another program's."""
    if not words:
        return 0
    if words[0].rpartition("/")[2] == "torchrun":
        return 1
    if not _PYTHON.fullmatch(words[0]):
        return 0
    options_of_python = itertools.takewhile(lambda word: word.startswith("-") and word != "-m", words[1:])
    module = 1 + len(list(options_of_python))
    return module + 2 if list(words[module : module + 2]) == ["-m", _MODULE] else 0


def _words(text: str, *, shell: bool) -> Sequence[tuple[str, int, int]]:
    """Return the words of a command line and where each begins and ends."""
    if shell:
        return [(match[0], match.start(), match.end()) for match in _TOKEN.finditer(text)]
    found, start = [], 0
    for word in text.split("\0"):
        found.append((word, start, start + len(word)))
        start += len(word) + 1
    return found


def _plain(word: str, *, shell: bool) -> str:
    """Return a word without the quotes of a shell."""
    return word.replace("'", "").replace('"', "") if shell else word
