"""A state is restored with equal values, types, order and keys."""

from __future__ import annotations

import enum
import json
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

import numpy
import pytest
import torch

from tests.elastic.checkpoint.conftest import same
from tidewater.elastic import tree
from tidewater.elastic.errors import ConfigError, RecordError
from tidewater.elastic.group.broadcast import memory


class Phase(enum.Enum):
    A = "x"


class Number(enum.IntEnum):
    A = 4


class Name(str):
    pass


class Many(int):
    pass


class Point(NamedTuple):
    x: int


endless: list[Any] = []
endless.append(endless)


def round_trip(state: dict[Any, Any]) -> Any:
    kept: dict[str, torch.Tensor] = {}

    def copy(name: str, value: torch.Tensor) -> torch.Tensor:
        kept[name] = value
        return value

    outline = json.loads(json.dumps(tree.split(state, copy).outline))
    assert sorted(tree.names(outline)) == sorted(kept)
    return tree.join(outline, kept)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, 1, -1, 2**80, 0.1, 1.0, -0.0, 5e-324, float("inf"), float("nan"), 1e308),
        *("", "ü \ud800 \0 \"'", b"", b"\x00\xff", [], (), {}, [[]], ((),), [{}], ({},)),
        *((0.9, 0.999), [1, 2.0, True, None, "x"], {"a": (1, [2, (3,)])}, {"dict": {"tensor": "x"}}),
        *({0: "int", 1.5: "float", True: "bool", None: "none", (1, "a"): "tuple"}, {"1": "text"}),
        *(
            numpy.float64(0.1),
            numpy.float32("nan"),
            numpy.float16(-0.0),
            numpy.longdouble(1) / 3,
            numpy.complex64(1 - 2j),
        ),
        *(numpy.int64(-3), numpy.uint8(255), numpy.bool_(True), numpy.str_(""), numpy.str_("aü"), numpy.bytes_(b"\0a")),
        *(numpy.datetime64("2026-01-01", "ns"), numpy.datetime64("NaT"), numpy.timedelta64(3, "s"), 1 - 0.5j),
        numpy.longdouble(1) / 3,
        *({b"k": 1, numpy.int32(3): 2, date(2026, 1, 2): 3}, {(1, numpy.int8(2)): 3}),
        *(
            set(),
            {3, 1, 2},
            pytest.param({"b", "a", (1, None)}, id="a set of several types"),
            frozenset({1.5}),
            deque(),
            deque([1, (2,)], maxlen=3),
        ),
        *(OrderedDict(b=1, a=2), Counter("aab"), defaultdict(int, a=1), defaultdict(list, a=[1]), defaultdict(None)),
        *(
            datetime(2026, 1, 2, 3, 4, 5, 6),
            datetime(2026, 1, 2, tzinfo=UTC),
            date(2026, 1, 2),
            time(3, 4),
            timedelta(-1, 2),
        ),
        torch.Size([2, 3]),
    ],
    ids=repr,
)
def test_other_values_than_tensors_are_restored_with_equal_value_and_type(value: object) -> None:
    assert same(round_trip({"value": value}), {"value": value})


def test_tensors_are_restored_in_their_places() -> None:
    one, two = torch.arange(3.0), torch.tensor(7)
    state = {"a": {0: {"x": one}}, "b": (two, [one, {"c": two}]), "d": [1, [two]]}
    assert same(round_trip(state), state)


ARRAYS = {
    "float32": numpy.arange(6, dtype="f4").reshape(2, 3),
    "scalar": numpy.array(3.5),
    "empty": numpy.empty((0, 4)),
    "Fortran": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
    "view": numpy.arange(10)[::-2],
    "big endian": numpy.arange(3, dtype=">i4"),
    "text": numpy.array(["a", "bcd"]),
    "times": numpy.array(["2026-01-01", "NaT"], dtype="M8[D]"),
    "fields": numpy.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_an_array_is_restored_with_its_type_shape_and_bits(array: Any) -> None:
    found = round_trip({"value": [array]})["value"][0]
    assert type(found) is numpy.ndarray
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert found.flags.writeable


def test_a_view_that_conjugates_or_negates_is_restored_by_its_values() -> None:
    view = torch.tensor([1 + 2j, 3 - 4j]).conj()
    assert round_trip({"value": [view, view.imag]})["value"][1].tolist() == [-2, 4]
    assert memory(round_trip({"value": view})["value"]).numel() == 16


def test_a_mapping_keeps_what_it_does_for_a_missing_key() -> None:
    restored = round_trip({"value": defaultdict(list, {"a": [1]})})["value"]
    assert restored["b"] == []
    assert round_trip({"value": deque([1, 2], maxlen=2)})["value"].maxlen == 2


@pytest.mark.parametrize(
    ("value", "plain"),
    [pytest.param(Name("x"), "x", id="str"), pytest.param(Many(4), 4, id="int")],
)
def test_a_subclass_is_restored_as_the_plain_type(value: object, plain: object) -> None:
    assert same(round_trip({"value": value}), {"value": plain})


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"more": {"ema": [1, object()]}}, "builtins.object at more.ema.1"),
        ({"phase": Phase.A}, r"test_tree\.Phase at phase, which can't be stored: make it a number"),
        ({"phase": Number.A}, r"test_tree\.Number at phase"),
        ({"point": Point(1)}, r"test_tree\.Point at point"),
        ({"seen": {1, Phase.A}}, r"test_tree\.Phase as a member at seen"),
        ({"noise": numpy.array([object()])}, "numpy.ndarray of objects at noise"),
        ({"noise": numpy.ma.masked_array([1])}, "MaskedArray at noise"),
        ({"a": {Phase.A: 1}}, r"test_tree\.Phase as the key at a.Phase.A"),
        ({"n": defaultdict(lambda: 3)}, "defaultdict with the factory .* at n, .* make it a dict"),
        ({"at": datetime(2026, 1, 2, fold=1)}, r"datetime\.datetime at at"),
        ({"n": 1 << 20_000}, "builtins.int at n"),
        ({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, r"two values called a\.b: rename one"),
        ({"a": {"b": 1}, "a.b": 2}, r"two values called a\.b: rename one"),
        ({1: torch.ones(1), "1": torch.ones(1)}, "two tensors called 1: rename one"),
        ({"a": torch.ones(2).to_sparse()}, r"torch\.sparse_coo tensor at a: make it a dense one"),
        ({"a": torch.ones(2, device="meta")}, "meta tensor at a"),
        ({"a": endless}, "the state contains itself"),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)) if len(value) == 1 else "names",
)
def test_an_unsupported_value_is_refused_with_its_path(state: dict[Any, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        round_trip(state)


@pytest.mark.parametrize(
    "outline",
    [
        *({"dict": 3}, {"what": []}, {"tensor": "gone"}, {}, {"dict": [[1]]}, {"bytes": "?"}, {"datetime": "x"}),
        *(
            {"number": ["|O", "MTIzNDU2Nzg="]},
            {"number": ["<f8", ""]},
            {"array": "gone"},
            {"defaultdict": ["eval", []]},
        ),
    ],
)
def test_a_damaged_outline_is_reported_as_damaged(outline: object) -> None:
    with pytest.raises(RecordError, match="outline"):
        tree.join(outline, {})
