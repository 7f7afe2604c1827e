"""What the texts of ElasticDL's flags mean: resources, volumes, environments, priorities. Pure.

    resources("cpu=2,memory=2048Mi,gpu=1")          # {"cpu": "2", "memory": "2048Mi", "nvidia.com/gpu": "1"}
    volumes("mount_path=/data,claim_name=c")        # (Volume(mount_path="/data", claim_name="c"),)
    worker_priority("high=0.5")                     # WorkerPriority(core="high", surge="low", share=0.5)

Every function takes the text of one flag and returns its value, or raises WrongValue; who calls it knows the flag.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from elasticdl.data.params import parse_params
from elasticdl.errors import InputError
from elasticdl.job import JobArgs
from tidewater.contract import devices

E = TypeVar("E", bound=StrEnum)

_TRUE, _FALSE = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")
_FACTORS: dict[str, int | Decimal] = {
    "": 1,
    "m": Decimal("0.001"),
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
}
_FACTORS |= {"E": 10**18, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)([mkKMGTPE]|[KMGTPE]i)?")
_SIZES = ("memory", "ephemeral-storage")
_ALIASES = {"gpu": devices.GPU, "disk": "ephemeral-storage"}
_DEVICE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.=]*[A-Za-z0-9])?")
_SPEC_FORM = 'for example: {"pod_spec": {"labels": {"team": "vision"}}}'
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HIGH, _LOW = "high", "low"
_RESOURCES_FORM = "write it as cpu=2,memory=2048Mi,disk=1Gi,gpu=1"
_VOLUME_FORM = (
    "write claim_name=NAME,mount_path=/PATH[,sub_path=FOLDER][,read_only=true] or host_path=/PATH,mount_path=/PATH"
    '[,type=Directory]; several with ";" between them'
)


class WrongValue(Exception):
    """A text that can't be the value of its flag: what is wrong with it, and the remedy. The caller knows the flag."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True)
class Volume:
    """A volume, and where the containers of all pods have it."""

    mount_path: str
    claim_name: str = ""
    host_path: str = ""
    sub_path: str = ""
    type: str = ""
    """Of a host path, as in Kubernetes: Directory, DirectoryOrCreate, File, …"""
    read_only: bool = False


@dataclass(frozen=True)
class WorkerPriority:
    """The priority classes of the workers. Without a share, all of them have `core`; empty: none is asked for."""

    core: str = ""
    surge: str = ""
    share: float | None = None
    """The part of the workers that has the class `core`; the others have `surge`."""

    def of_core(self, workers: int) -> int:
        """Return how many of the workers have the class `core`: the share, rounded up."""
        return workers if self.share is None else math.ceil(workers * self.share)


def text(given: str) -> str:
    """Return a text as it is."""
    return given


def path(given: str) -> str:
    """Return a path with the home folder for `~`, which a shell leaves in `--flag=~/folder`; an address as it is."""
    return str(Path(given).expanduser()) if given.startswith("~") else given


def whole(least: int) -> Callable[[str], int]:
    """Return a reader of whole numbers that are not below `least`."""

    def read(given: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", given.strip()) or int(given) < least:
            raise WrongValue(
                f"{given!r} is not a whole number of at least {least}", "for example: " + str(max(least, 1))
            )
        return int(given)

    return read


def seconds(given: str) -> float:
    """Return seconds; ElasticDL's own values were true and false."""
    if given.strip().lower() == "false":
        return JobArgs.relaunch_timeout_worker
    if given.strip().lower() == "true":
        raise WrongValue(
            "'true' would relaunch a worker that is late, and here its tasks go to others while it finishes",
            "leave it out, or give the seconds for which a process waits for one that is replaced",
        )
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", given.strip()):
        raise WrongValue(f"{given!r} is no number of seconds", "for example: 300")
    return float(given)


def boolean(given: str) -> bool:
    """Return a truth value."""
    lowered = given.strip().lower()
    if lowered not in (*_TRUE, *_FALSE):
        raise WrongValue(f"{given!r} is neither true nor false", "write true or false")
    return lowered in _TRUE


def always(reason: str) -> Callable[[str], bool]:
    """Return a reader of a truth value that can only be true."""

    def read(given: str) -> bool:
        if not boolean(given):
            raise WrongValue(f"{given!r} is not possible: {reason}", "leave it out")
        return True

    return read


def choice(kind: type[E]) -> Callable[[str], E]:
    """Return a reader of one of the values of an enumeration, in any case."""

    def read(given: str) -> E:
        for each in kind:
            if each.value.lower() == given.strip().lower():
                return each
        raise WrongValue(f"{given!r} is unknown", "choose from " + ", ".join(each.value for each in kind))

    return read


def resources(given: str) -> Mapping[str, str]:
    """Return amounts by Kubernetes' names of resources."""
    found: dict[str, str] = {}
    for name, amount in _pairs(given, ",", _RESOURCES_FORM):
        own = _ALIASES.get(name, name)
        if own in found:
            raise WrongValue(f"{name} is given twice", "give it once")
        if own not in ("cpu", *_SIZES) and not _DEVICE.fullmatch(own):
            raise WrongValue(
                f"{name} is no resource", "choose from cpu, memory, disk, ephemeral-storage, gpu, VENDOR/gpu"
            )
        _check_amount(name, own, amount)
        found[own] = amount
    return found


def amount(quantity: str) -> Decimal:
    """Return the number that a quantity stands for, such as 0.25 for 250m."""
    match = _QUANTITY.fullmatch(quantity)
    if not match:
        raise WrongValue(f"{quantity!r} is no amount", _RESOURCES_FORM)
    return Decimal(match[1]) * _FACTORS[match[2] or ""]


def volumes(given: str) -> tuple[Volume, ...]:
    """Return volumes."""
    found = tuple(_volume(part) for part in given.split(";") if part.strip())
    paths = [each.mount_path for each in found]
    for path in paths:
        if paths.count(path) > 1:
            raise WrongValue(f"mount_path {path} is given twice", "give each volume a path of its own")
    return found


def environment(given: str) -> Mapping[str, str]:
    """Return variables: name1=value1,name2=value2. A value may have commas and equals signs.

    A new variable begins where a comma is followed by a name and an equals sign, as in ElasticDL.
    """
    found: dict[str, str] = {}
    for part in re.split(rf",(?={_VARIABLE.pattern}=)", given) if given.strip() else ():
        name, equals, value = part.partition("=")
        if not equals or not _VARIABLE.fullmatch(name.strip()):
            raise WrongValue(f"{part!r} is not NAME=VALUE", "for example: NCCL_DEBUG=INFO,OMP_NUM_THREADS=2")
        found[name.strip()] = value
    return found


def priority(given: str) -> str:
    """Return the name of a priority class."""
    if given and not _NAME.fullmatch(given):
        raise WrongValue(f"{given!r} is no name of a priority class", "`kubectl get priorityclasses` lists them")
    return given


def worker_priority(given: str) -> WorkerPriority:
    """Return the classes of the workers: one for all, or `high=0.5`, half of them high and the others low."""
    if re.fullmatch(r"0?\.[0-9]+", given.strip()):  # as in ElasticDL's example for PyTorch
        given = f"{_HIGH}={given.strip()}"
    name, equals, share = given.partition("=")
    if not equals:
        return WorkerPriority(priority(given))
    if name.strip() != _HIGH or not re.fullmatch(r"[0-9]*\.?[0-9]+", share.strip()) or not 0 < float(share) < 1:
        raise WrongValue(
            f"{given!r} is neither a class nor a share",
            "write the name of a priority class, or high=0.5 for half of the workers; a share is between 0 and 1",
        )
    return WorkerPriority(_HIGH, _LOW, float(share))


def cluster_spec(given: str) -> Mapping[str, Any]:
    """Return the additions to the pods in a text of JSON or YAML. What they may hold, `podspec` checks."""
    try:
        found = yaml.safe_load(given) if given.strip() else {}
        json.dumps(found)
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise WrongValue(
            f"it is not JSON: {error}", 'for example: {"pod_spec": {"labels": {"team": "vision"}}}'
        ) from None
    if not isinstance(found, dict):
        raise WrongValue("it is no mapping", _SPEC_FORM)
    return found


def parameters(given: str) -> str:
    """Return parameters in ElasticDL's form, `a=1; b='x'`, as they are, once it is known that they can be read."""
    try:
        parse_params("", given)
    except InputError as error:
        raise WrongValue(error.message.removeprefix(": "), error.remedy) from None
    return given


def _volume(part: str) -> Volume:
    known = [each.name for each in fields(Volume)]
    values: dict[str, Any] = {}
    for name, value in _pairs(part, ",", _VOLUME_FORM):
        if name not in known:
            raise WrongValue(f"{name} is unknown in a volume", _VOLUME_FORM)
        values[name] = boolean(value) if name == "read_only" else value
    if not str(values.get("mount_path", "")).startswith("/"):
        raise WrongValue(f"{part.strip()!r} has no mount_path that begins with /", _VOLUME_FORM)
    found = Volume(**values)
    if bool(found.claim_name) == bool(found.host_path):
        raise WrongValue(f"{part.strip()!r} has not exactly one of claim_name and host_path", _VOLUME_FORM)
    if found.claim_name and (found.type or not _NAME.fullmatch(found.claim_name)):
        wrong = "type, which is of a host_path" if found.type else f"{found.claim_name!r}, which is no name of a claim"
        raise WrongValue(f"{part.strip()!r} has {wrong}", _VOLUME_FORM)
    if found.host_path and not found.host_path.startswith("/"):
        raise WrongValue(f"host_path {found.host_path!r} does not begin with /", _VOLUME_FORM)
    if found.sub_path and (found.sub_path.startswith("/") or ".." in posixpath.normpath(found.sub_path).split("/")):
        raise WrongValue(f"sub_path {found.sub_path!r} is not a path within the volume", _VOLUME_FORM)
    return found


def _check_amount(name: str, own: str, value: str) -> None:
    match = _QUANTITY.fullmatch(value)
    if own == "cpu":
        if not match or match[2] not in (None, "m") or not amount(value):
            raise WrongValue(f"cpu={value} is no number of CPUs", "write 2, 0.5 or 500m")
    elif own in _SIZES:
        if not match or not match[2] or match[2] == "m" or not amount(value):
            raise WrongValue(f"{name}={value} is no size with a unit", "write 2048Mi or 4Gi")
    elif not value.isdecimal():
        raise WrongValue(f"{name}={value} is no whole number", "devices aren't divided: write gpu=1")


def _pairs(given: str, separator: str, form: str) -> Iterator[tuple[str, str]]:
    for part in _parts(given, separator):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise WrongValue(f"{part!r} is not NAME=VALUE", form)
        yield name.strip(), value.strip()


def _parts(given: str, separator: str) -> Sequence[str]:
    return [part.strip() for part in given.split(separator) if part.strip()]
