"""What must be equal in all workers of a job, and the sentence that names a difference.

    mine = Traits.of(model, secret, batch_size=64, seed=0, data=dataset.digest, code=code_digest(package, script))
    member = Member(…, signature=mine.digest())              # a worker with another digest is never admitted
    sentence = refusal(view, me.id, mine, ask)               # why this worker will never be admitted, or None
    if sentence: raise ConfigError(sentence)

The digest in a member's record is enough for the decision. The traits, which name the difference, are requested from
the peer (``server.ask_traits``), because the shapes of a large model don't belong in etcd.

A flag of the script may be a password. So each value is compared by a digest with the job's secret as its key, and no
worker learns the value of another one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from tidewater.contract import env
from tidewater.elastic.compiled import plain
from tidewater.elastic.errors import RecordError, Stranger
from tidewater.elastic.membership.evidence import Evidence, contradiction
from tidewater.elastic.membership.rules import Seat, View, defining

if TYPE_CHECKING:
    from torch import nn

Value = str | int | float | bool | None

_VERSION = 4
_MOST_ASKED = 3
"""Members of a large job: others that start at the same time ask, too."""
_HEAD_START_SECONDS = 0.25
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

    values: tuple[tuple[str, str], ...]
    """Names, and digests of the values."""
    shapes: tuple[Shape, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """This worker's values as text. They are not sent."""
    evidence: Evidence = field(default_factory=Evidence, compare=False, repr=False)
    """Not part of the digest, because two workers need not have the same."""

    @classmethod
    def of(cls, model: nn.Module, secret: bytes, /, **more: Value) -> Traits:
        """Return the traits of the model and of ``more``, which are named by their keys. ``secret`` is the job's."""
        state = model.state_dict().items()
        shapes = [
            Shape(plain(name), tuple(v.shape), str(v.dtype).removeprefix("torch.")) for name, v in state if _sized(v)
        ]
        shown = {name: repr(value) for name, value in more.items()}
        values = tuple((name, _keyed(secret, name, text)) for name, text in sorted(shown.items()))
        return cls(values, tuple(shapes), shown)

    @classmethod
    def from_json(cls, data: bytes) -> Traits:
        """Return the traits. Raise RecordError if they are damaged or of another version of the code."""
        try:
            fields = json.loads(data)
            if fields["version"] != _VERSION:
                raise RecordError(f"a peer's traits have version {fields['version']}, this worker knows {_VERSION}")
            values = tuple((str(name), str(value)) for name, value in fields["values"])
            shapes = tuple(Shape(str(name), tuple(size), str(dtype)) for name, size, dtype in fields["shapes"])
            evidence = Evidence.of(fields["evidence"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"a peer's traits cannot be read: {error!r}") from error
        return cls(values, shapes, evidence=evidence)

    def to_json(self) -> bytes:
        """Return the traits as one line of JSON."""
        return json.dumps({**self._compared(), "evidence": self.evidence.values()}).encode()

    def digest(self) -> str:
        """Return a digest of 16 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self._compared()).encode()).hexdigest()[:16]

    def _compared(self) -> dict[str, Any]:
        shapes = [(shape.name, shape.size, shape.dtype) for shape in self.shapes]
        return {"version": _VERSION, "values": self.values, "shapes": shapes}


def difference(mine: Traits, theirs: Traits, *, peer: str) -> str | None:
    """Return one sentence that names the first difference; None if they are equal.

    The model comes first and the code last, because a change of the model is also a change of the code.
    """
    found = _first_shape(mine, theirs) or _first_value(mine, theirs)
    what, remedy = (found, _REMEDY) if found else contradiction(mine.evidence, theirs.evidence) or ("", "")
    return f"this worker can't train with {peer}: {what}. {remedy}" if what else None


def refusal(view: View, me: str, mine: Traits, ask: Callable[[Seat], Traits | None]) -> str | None:
    """Return one sentence that says why the worker ``me`` will not be admitted; None if it may be.

    Only a peer that answers counts: the record of a killed one remains for the time of a lease, and after that this
    worker may define the job. So call this before the announcement, and from time to time while waiting in line.

    Args:
        view: The records in etcd.
        me: The member id of this worker; its record may or may not be in the view.
        mine: The traits of this worker.
        ask: Returns the traits of a member, None if it does not answer. Raises Stranger if it has another secret.
    """
    signature, members = defining(view)
    if members and members[0].id == me:
        return None
    # Not all newcomers of a large job ask the same member.
    start = zlib.crc32(me.encode()) % len(members) if not view.whole and members else 0
    asked = list(islice(chain(members[start:], members[:start]), None if view.whole else _MOST_ASKED))
    strangers = 0
    for member, answer in _answers([each for each in asked if each.id != me], ask):
        try:
            theirs = answer()
        except Stranger:
            strangers += 1
            # A generation outlives its members, so a process of another job may have the address of one.
            if not view.whole and strangers < len(asked):
                continue
            return (
                f"this worker can't train with {member.worker}: it has another secret. "
                f"Give all workers of a job the same {env.SECRET}, or none"
            )
        # If the digest differs from its record's, this is not the member but a new process at its address.
        if theirs and theirs.digest() == signature:
            return difference(mine, theirs, peer=member.worker)
    return None


def _answers(
    members: Sequence[Seat], ask: Callable[[Seat], Traits | None]
) -> Iterator[tuple[Seat, Callable[[], Traits | None]]]:
    """Yield each member and a function that waits for its answer, in order.

    Mostly the first answers at once, and no other is asked. If it doesn't, the others are asked at the same time: an
    address that nothing answers at takes seconds.
    """
    if not members:
        return
    pool = ThreadPoolExecutor(len(members), "ask")

    def ask_others() -> list[Future[Traits | None]]:
        return [pool.submit(ask, member) for member in members[1:]]

    try:
        first = pool.submit(ask, members[0])
        others = ask_others() if wait([first], _HEAD_START_SECONDS).not_done else []
        yield members[0], first.result
        yield from zip(members[1:], (other.result for other in others or ask_others()), strict=True)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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


def _first_shape(mine: Traits, theirs: Traits) -> str | None:
    here, there = ({shape.name: str(shape) for shape in each.shapes} for each in (mine, theirs))
    name = _first(here, there)
    if name is not None:
        return f"the model's {name} is {here.get(name, 'missing')} here and {there.get(name, 'missing')} there"
    if list(here) != list(there):
        return f"the order of the model's parts is {', '.join(here)} here and {', '.join(there)} there"
    return None


def _first_value(mine: Traits, theirs: Traits) -> str | None:
    here, there = (dict(sorted(each.values, key=lambda value: value[0] == "code")) for each in (mine, theirs))
    name = _first(here, there)
    if name is None:
        return None
    if name not in here or name not in there:
        return f"{name} is missing {'here' if name in there else 'there'}"
    return f"{name} is {mine.shown[name]} here and has another value there"


def _first(here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """Return the name of the first entry that differs or that only one of them has."""
    names = [*here, *(name for name in there if name not in here)]
    return next((name for name in names if here.get(name) != there.get(name)), None)


def _keyed(secret: bytes, name: str, text: str) -> str:
    return hmac.digest(secret, f"tidewater trait {len(name)} {name} {text}".encode(), "sha256").hex()[:32]
