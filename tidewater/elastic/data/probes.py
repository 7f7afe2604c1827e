"""A few samples of a training, for a comparison with those of other workers.

    found = probes(training, loader, seed=0)        # {"sample 17 of the dataset": Probe(…), …}

Workers that differ in a split of the data, or in the order of their files, have the same number of samples. Trained
together, they would use some samples several times, and others never.

A sample that has other values each time it is read, although all global generators are seeded, can't be compared: the
script draws from a generator of its own. Then none of that dataset are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import random
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
"""How often they are read, to see whether they change; twice if that takes long."""
_LONG_SECONDS = 2.0
_MOST_NUMBERS = 1 << 16
"""Numbers of an array that count for its mean."""
_MOST_PARTS = 4096
_MOST_DEPTH = 16
_TOLERANCE = 1e-3
"""Far above what processors and decoders of images differ in, and far below what two samples do."""
_COARSE_TOLERANCE = 1e-2
"""For types of fewer bits."""
_PRECISE = (torch.float32, torch.float64)


def probes(training: Training, loader: Loader, seed: int) -> dict[str, Probe]:
    """Return a few samples of the dataset and of the validation data, chosen by the seed, by names for a person.

    They are read in this process, each with its collate function.
    """
    found: dict[str, Probe] = {}
    if is_stream(training.dataset):
        name = f"the beginning of the dataset (the first {_SAMPLES} samples)"
        found |= _steady({name: lambda: loader.batch(range(_SAMPLES), 0)})
    for data, what, held_out in (
        (None if is_stream(training.dataset) else training.dataset, "dataset", False),
        (training.validation, "validation data", True),
    ):
        found |= _steady(
            {
                f"sample {index} of the {what}": _reading(loader, index, held_out)
                for index in _chosen(0 if data is None else len(_sized(data)), seed)
            }
        )
    return found


def probe(sample: Any) -> Probe:
    """Return what is compared of a sample.

    Strings, single numbers and lists of whole numbers (labels, tokens) must be equal; of a path, its last part. Other
    arrays are compared by a mean. An object of an unknown type is compared by the name of its type.
    """
    digest = hashlib.sha256()
    means: list[float] = []
    tolerances: list[float] = []
    for count, part in enumerate(_parts(sample, 0)):
        if isinstance(part, str):
            digest.update(f"{len(part)} {part}".encode(errors="surrogatepass"))
        else:
            for mean, tolerance in part:
                means.append(mean)
                tolerances.append(tolerance)
        if count > _MOST_PARTS:
            break
    return Probe(digest.hexdigest()[:16], tuple(means), tuple(tolerances))


Means = list[tuple[float, float]]


def _steady(readings: Mapping[str, Callable[[], Any]]) -> dict[str, Probe]:
    """Return these samples; none if one of them is not the same each time."""
    began = time.monotonic()
    try:
        first = {name: probe(read()) for name, read in readings.items()}
        for count in range(1, _READINGS):
            if count > 1 and time.monotonic() - began > _LONG_SECONDS:
                break
            if not all(found.is_like(probe(readings[name]())) for name, found in first.items()):
                return {}
    except Exception:  # perhaps only this time; if not, training meets it, and reports it
        return {}
    return first


def _reading(loader: Loader, index: int, held_out: bool) -> Callable[[], Any]:
    return lambda: loader.batch((index,), 0, validation=held_out)


def _chosen(total: int, seed: int) -> list[int]:
    return sorted(random.Random(f"{seed}/probes").sample(range(total), min(total, _SAMPLES)))


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
        yield os.path.basename(value) if os.path.isabs(value) else value
    elif isinstance(value, int) or value is None:
        yield str(value)


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
    if kind in "iub" and array.ndim <= 2 and array.size <= _MOST_NUMBERS and array.dtype != np.uint8:
        yield hashlib.sha256(np.ascontiguousarray(array, dtype=np.int64).tobytes()).hexdigest()
    elif kind in "fiub":
        yield _mean(array, tolerance)
    elif kind in "SU":
        yield repr(array.tolist())


def _mean(array: Any, tolerance: float) -> Means:
    """Return two means of an array, each with the tolerance: one depends on the order of its numbers."""
    flat = array.reshape(-1)
    flat = np.asarray(flat[:: max(1, math.ceil(flat.size / _MOST_NUMBERS))], dtype=np.float64)
    flat = np.clip(np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0), -1e100, 1e100)
    if not flat.size:
        return []
    size = float(np.abs(flat).mean())
    return [(float((flat * np.linspace(1.0, 2.0, flat.size)).mean()), tolerance * size), (size, tolerance * size)]
