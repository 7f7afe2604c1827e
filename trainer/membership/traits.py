"""What must be equal in all workers of a job, and the sentence that names a difference.

    mine = Traits.of(model, batch_size=64, seed=0, data=dataset.digest, code=code_digest(package, script))
    member = Member(…, signature=mine.digest())              # a worker with another digest is never admitted
    sentence = refusal(view, me.id, mine, ask)               # why this worker will never be admitted, or None
    if sentence: raise ConfigError(sentence)

The digest in a member's record is enough for the decision. The traits, which name the difference, are requested from
the peer (``server.ask_traits``), because the shapes of a large model don't belong in etcd.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from trainer.errors import RecordError
from trainer.membership.rules import Member, View, reference

if TYPE_CHECKING:
    from torch import nn

Value = str | int | float | bool | None

_VERSION = 1
_REMEDY = "Start all workers of a job with the same code, data and flags, or give this one another --job"


@dataclass(frozen=True)
class Shape:
    """One parameter or buffer of the model."""

    name: str
    size: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.size)) or 'a scalar'} of {self.dtype}"


@dataclass(frozen=True)
class Traits:
    """What must be equal in all workers. Compare with ``==``; explain with ``difference``."""

    values: tuple[tuple[str, Value], ...]
    shapes: tuple[Shape, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, **more: Value) -> Traits:
        """Return the traits of the model and of ``more``, which are named in this order."""
        state = model.state_dict().items()
        shapes = [Shape(name, tuple(v.shape), str(v.dtype).removeprefix("torch.")) for name, v in state if _sized(v)]
        return cls(tuple(more.items()), tuple(shapes))

    @classmethod
    def from_json(cls, data: bytes) -> Traits:
        """Return the traits. Raise RecordError if they are damaged or of another version of the code."""
        try:
            fields = json.loads(data)
            if fields["version"] != _VERSION:
                raise RecordError(f"a peer's traits have version {fields['version']}, this worker knows {_VERSION}")
            values = tuple((str(name), value) for name, value in fields["values"])
            shapes = tuple(Shape(str(name), tuple(size), str(dtype)) for name, size, dtype in fields["shapes"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"a peer's traits cannot be read: {error!r}") from error
        return cls(values, shapes)

    def to_json(self) -> bytes:
        """Return the traits as one line of JSON."""
        shapes = [(shape.name, shape.size, shape.dtype) for shape in self.shapes]
        return json.dumps({"version": _VERSION, "values": self.values, "shapes": shapes}).encode()

    def digest(self) -> str:
        """Return a digest of 16 hexadecimal digits."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]


def difference(mine: Traits, theirs: Traits, *, peer: str) -> str | None:
    """Return one sentence that names the first difference; None if they are equal.

    The model comes first and the code last, because a change of the model is also a change of the code.
    """
    found = _first_shape(mine, theirs) or _first_value(mine, theirs)
    if not found:
        return None
    what, here, there = found
    return f"this worker can't train with {peer}: {what} is {here} here and {there} there. {_REMEDY}"


def refusal(view: View, me: str, mine: Traits, ask: Callable[[Member], Traits | None]) -> str | None:
    """Return one sentence that says why the worker ``me`` will not be admitted; None if it may be.

    Only a peer that answers counts: the record of a killed one remains for the time of a lease, and after that this
    worker may define the job. So call this before the announcement, and from time to time while waiting in line.

    Args:
        view: The records in etcd.
        me: The member id of this worker; its record may or may not be in the view.
        mine: The traits of this worker.
        ask: Returns the traits of a member, None if it does not answer.
    """
    known = reference(view)
    if known is None or known.id == me or known.signature == mine.digest():
        return None
    for member in view.members:
        theirs = ask(member) if member.signature == known.signature else None
        # If the digest differs from its record's, this is not the member but a new process at its address.
        if theirs and theirs.digest() == member.signature:
            return difference(mine, theirs, peer=member.worker)
    return None


def code_digest(*roots: Traversable) -> str:
    """Return a digest of the Python files below ``roots``, in directories or zip files, by content and relative name.

    The digest has 16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for root in roots:
        for name, content in sorted(_sources(root)):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _sources(at: Traversable, within: str = "") -> Iterator[tuple[str, bytes]]:
    if at.is_dir():
        for child in at.iterdir():
            yield from _sources(child, f"{within}/{child.name}")
    elif at.name.endswith(".py"):
        yield within or at.name, at.read_bytes()


def _sized(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")  # a module's extra state may be anything


def _first_shape(mine: Traits, theirs: Traits) -> tuple[str, str, str] | None:
    return _first(
        ((shape.name, str(shape)) for shape in mine.shapes),
        ((shape.name, str(shape)) for shape in theirs.shapes),
        "the model's {}",
    )


def _first_value(mine: Traits, theirs: Traits) -> tuple[str, str, str] | None:
    def ordered(traits: Traits) -> Iterable[tuple[str, str]]:
        return [(name, repr(value)) for name, value in sorted(traits.values, key=lambda each: each[0] == "code")]

    return _first(ordered(mine), ordered(theirs), "{}")


def _first(
    mine: Iterable[tuple[str, str]], theirs: Iterable[tuple[str, str]], form: str
) -> tuple[str, str, str] | None:
    """Return the name and both texts of the first entry that differs or that only one of them has."""
    here, there = dict(mine), dict(theirs)
    for name in [*here, *(name for name in there if name not in here)]:
        if here.get(name) != there.get(name):
            return form.format(name), here.get(name, "missing"), there.get(name, "missing")
    if list(here) != list(there):
        return "the order of its parts", ", ".join(here), ", ".join(there)
    return None
