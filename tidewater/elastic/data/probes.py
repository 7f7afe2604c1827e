"""A few samples of a training, for a comparison with those of other workers.

    found = probes(training, loader, seed=0)        # {"sample 17 of the dataset": Probe(…), …}

Workers that differ in a split of the data, or in the order of their files, have the same number of samples. Trained
together, they would use some samples several times, and others never.

A sample that has other values each time it is read, although all global generators are seeded, can't be compared: the
script draws from a generator of its own. Then none of that dataset are. A dataset with an attribute ``digest`` says
itself what it is: its samples are not read here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tidewater.elastic.data.stream import is_stream
from tidewater.elastic.membership.evidence import Probe

if TYPE_CHECKING:
    from tidewater.elastic.data.loader import Loader
    from tidewater.elastic.training import Training

_SAMPLES = 4
_READINGS = 4
"""How often they are read, to see whether they change."""
_LONG_SECONDS = 2.0
"""After this time no further sample is read, but the first one once more if none was read twice."""
_MOST_NUMBERS = 1 << 16
"""Numbers of an array that count for its mean."""
_MOST_PARTS = 4096
_MOST_DEPTH = 16
_TOLERANCE = 1e-3
"""Far above what processors and decoders of images differ in, and far below what two samples do."""
_COARSE_TOLERANCE = 1e-2
"""For types of fewer bits."""
_PRECISE = (torch.float32, torch.float64)
_BYTES_OF_TOKENS = 4
"""Arrays of smaller whole numbers are sound or images, which decoders round differently."""
_FIRST_TIME = 10**9
"""In 2001, as seconds since 1970."""
_DAY_SECONDS = 86400


def probes(training: Training, loader: Loader, seed: int) -> dict[str, Probe]:
    """Return a few samples of the dataset and of the validation data, chosen by the seed, by names for a person.

    They are read in this process, each with its collate function.
    """
    found: dict[str, Probe] = {}
    if is_stream(training.dataset) and not _says_what_it_is(training.dataset):
        name = f"the beginning of the dataset (the first {_SAMPLES} samples)"
        found |= _steady({name: lambda: loader.batch(range(_SAMPLES), 0)})
    for data, what, held_out in (
        (None if is_stream(training.dataset) else training.dataset, "dataset", False),
        (training.validation, "validation data", True),
    ):
        found |= _steady(
            {
                f"sample {index} of the {what}": _reading(loader, index, held_out)
                for index in _chosen(0 if data is None or _says_what_it_is(data) else len(_sized(data)), seed)
            }
        )
    return found


def probe(sample: Any) -> Probe:
    """Return what is compared of a sample.

    Strings, single whole numbers and arrays of those with 32 or 64 bits (labels, tokens) must be equal; of a path, its
    last part. Other arrays are compared by a mean. An object of an unknown type is compared by the name of its type.

    A single value that belongs to a worker doesn't count: its process id, the name of its host, a time since 2001.
    """
    exact, common = hashlib.sha256(), hashlib.sha256()
    means: list[float] = []
    tolerances: list[float] = []
    for count, part in enumerate(_parts(sample, 0)):
        if isinstance(part, str):
            text = f"{len(part)} {part}".encode(errors="surrogatepass")
            exact.update(text)
            common.update(b"own" if isinstance(part, _Own) else text)
        else:
            for mean, tolerance in part:
                means.append(mean)
                tolerances.append(tolerance)
        if count > _MOST_PARTS:
            break
    digests = dict.fromkeys(each.hexdigest()[:16] for each in (exact, common))
    return Probe(tuple(digests), tuple(means), tuple(tolerances))


Means = list[tuple[float, float]]


class _Own(str):
    """A text that belongs to this process, unless it is one of the data by chance."""

    __slots__ = ()


def _steady(readings: Mapping[str, Callable[[], Any]]) -> dict[str, Probe]:
    """Return these samples; none if one of them is not the same each time."""
    until = time.monotonic() + _LONG_SECONDS
    found: dict[str, Probe] = {}
    read = 0

    def is_as_before(name: str) -> bool:
        now = probe(readings[name]())
        return found.setdefault(name, now).is_like(now)

    try:
        for name in [*readings] * _READINGS:
            if read and time.monotonic() >= until:
                break
            if not is_as_before(name):
                return {}
            read += 1
        if found and read == len(found) and not is_as_before(next(iter(found))):
            return {}
    except Exception:  # perhaps only this time; if not, training meets it, and reports it
        return {}
    return found


def _reading(loader: Loader, index: int, held_out: bool) -> Callable[[], Any]:
    return lambda: loader.batch((index,), 0, validation=held_out)


def _chosen(total: int, seed: int) -> list[int]:
    return sorted(random.Random(f"{seed}/probes").sample(range(total), min(total, _SAMPLES)))


def _says_what_it_is(dataset: object) -> bool:
    return hasattr(dataset, "digest")


def _sized(dataset: Any) -> Sequence[Any]:
    sized: Sequence[Any] = dataset
    return sized


def _parts(value: Any, depth: int) -> Iterator[str | Means]:
    """Yield texts that must be equal, and means that may differ a little."""
    yield type(value).__name__
    if depth > _MOST_DEPTH:
        return
    if isinstance(value, torch.Tensor):
        yield from _of_tensor(value)
    elif isinstance(value, np.ndarray | np.generic) or type(value).__module__.startswith("PIL."):
        yield from _of_array(np.asarray(value), _TOLERANCE)
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key)
            yield from _parts(value[key], depth + 1)
    elif isinstance(value, list | tuple):
        yield str(len(value))
        for each in value:
            yield from _parts(each, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name, None), depth + 1)
    else:
        yield from _of_single(value)


def _of_single(value: Any) -> Iterator[str | Means]:
    if isinstance(value, float):
        yield _mean(np.asarray([value], dtype=np.float64), _TOLERANCE)
    elif isinstance(value, bytes | bytearray):
        yield hashlib.sha256(value).hexdigest()
    elif isinstance(value, os.PathLike):
        yield os.path.basename(str(value))
    elif isinstance(value, str):
        is_path = os.path.isabs(value) or value.startswith("file:")
        text = os.path.basename(value) if is_path else value
        yield _Own(text) if text == socket.gethostname() else text
    elif isinstance(value, int):
        yield _of_whole_number(value)
    elif value is None:
        yield str(value)


def _of_whole_number(value: int) -> str:
    """Return what is compared of a label. Any time counts as the same: files are copied at different times, too."""
    latest = int(time.time()) + _DAY_SECONDS
    if any(_FIRST_TIME * unit <= value <= latest * unit for unit in (1, 10**3, 10**6, 10**9)):
        return "a time"
    return _Own(value) if value == os.getpid() else str(value)


def _of_tensor(tensor: torch.Tensor) -> Iterator[str | Means]:
    yield f"{tensor.dtype} {tensor.layout} {tensor.is_quantized}"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return
    plain = tensor.detach().cpu()
    plain = torch.view_as_real(plain.resolve_conj()) if plain.is_complex() else plain
    if plain.is_floating_point():
        if plain.dtype in _PRECISE:
            yield from _of_array(plain.numpy(), _TOLERANCE)
        else:
            yield from _of_array(plain.to(torch.float32).numpy(), _COARSE_TOLERANCE)
    else:
        yield from _of_array(plain.numpy(), _TOLERANCE)


def _of_array(array: Any, tolerance: float) -> Iterator[str | Means]:
    kind = array.dtype.kind
    yield f"{kind} {array.shape}"
    if kind in "iub" and array.size == 1:
        yield _of_whole_number(int(array.item()))
    elif kind in "iub" and array.ndim <= 2 and array.size <= _MOST_NUMBERS and _has_tokens(array.dtype):
        yield hashlib.sha256(np.ascontiguousarray(array, dtype=np.int64).tobytes()).hexdigest()
    elif kind in "iu":
        yield _mean(array, tolerance if array.dtype.itemsize >= _BYTES_OF_TOKENS else _COARSE_TOLERANCE)
    elif kind in "fb":
        yield _mean(array, tolerance)
    elif kind in "SU":
        yield repr(array.tolist())


def _has_tokens(dtype: Any) -> bool:
    """Return whether an array of this type has labels, tokens or a mask, and not sound or an image."""
    return bool(dtype.kind == "b" or dtype.itemsize >= _BYTES_OF_TOKENS)


def _mean(array: Any, tolerance: float) -> Means:
    """Return two means of an array, each with the tolerance: one depends on the order of its numbers."""
    flat = array.reshape(-1)
    flat = np.asarray(flat[:: max(1, math.ceil(flat.size / _MOST_NUMBERS))], dtype=np.float64)
    flat = np.clip(np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0), -1e100, 1e100)
    if not flat.size:
        return []
    size = float(np.abs(flat).mean())
    return [(float((flat * np.linspace(1.0, 2.0, flat.size)).mean()), tolerance * size), (size, tolerance * size)]
