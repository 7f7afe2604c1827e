"""A batch of any kind that people write reaches the device with its tensors, and stays of its kind."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from tidewater.elastic.data.device import leaves, onto

META = torch.device("meta")
"""Stands for a GPU: tensors of another device can't be used with its tensors."""
ONES = torch.ones(2)


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass(frozen=True)
class Batch:
    x: Any
    name: str
    more: Any = None
    size: int = dataclasses.field(init=False, default=7)


class Encoding(collections.UserDict[str, Any]):
    """As that of a tokenizer: a mapping with attributes, and with a ``to`` of its own."""

    def __getattr__(self, name: str) -> Any:
        return self.data[name]

    def to(self, device: torch.device) -> Encoding:
        return type(self)({name: value.to(device) for name, value in self.data.items()})


class Plain(dict[str, Any]):
    """A mapping of a kind of its own, with an attribute."""

    source = "none"


def moved(value: Any) -> Any:
    return onto(value, META)


def test_a_dataclass_stays_one_and_its_fields_are_moved() -> None:
    batch = moved(Batch(ONES, "a", more={"y": [ONES, None]}))
    assert isinstance(batch, Batch)
    assert (batch.name, batch.size, batch.more["y"][1]) == ("a", 7, None)
    assert [each.device for each in (batch.x, batch.more["y"][0])] == [META, META]


def test_the_batch_that_was_given_is_not_changed() -> None:
    batch = Batch([ONES], "a", more=Plain(x=ONES))
    moved(batch)
    assert [each.device.type for each in (batch.x[0], batch.more["x"])] == ["cpu", "cpu"]


def test_a_mapping_stays_of_its_kind_and_has_its_attributes() -> None:
    encoding = moved([Encoding(input_ids=ONES)])[0]
    assert encoding.input_ids.device == META
    plain = Plain(x=ONES)
    plain.source = "shard 3"
    plain = moved(plain)
    assert (type(plain), plain.source, plain["x"].device) == (Plain, "shard 3", META)
    ordered = moved(collections.defaultdict(list, x=ONES))
    assert (ordered["x"].device, ordered["y"]) == (META, [])


def test_tuples_and_sequences_stay_of_their_kind() -> None:
    pair = moved(Pair(ONES, ("text", None, 3)))
    assert (type(pair), pair.x.device, pair.y) == (Pair, META, ("text", None, 3))
    packed = moved(pack_sequence([ONES, ONES[:1]]))
    assert (type(packed), packed.data.device) == (PackedSequence, META)
    assert moved(collections.deque([ONES]))[0].device == META


def test_what_has_no_tensor_is_the_same_object() -> None:
    for value in ("text", b"bytes", None, 3, object(), range(3)):
        assert moved(value) is value


def test_a_class_with_a_to_is_no_batch_with_one() -> None:
    assert moved(torch.nn.Linear) is torch.nn.Linear


def test_the_leaves_of_a_batch_are_in_containers_of_all_these_kinds() -> None:
    batch = Pair(Batch(1, "a", more=Encoding(x=[2, (3, "text")])), {"y": collections.deque([None, 4])})
    assert [*leaves(batch)] == [1, "a", 2, 3, "text", 7, None, 4]
