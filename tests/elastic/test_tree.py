"""A state is restored with equal values, types, order and keys."""

from __future__ import annotations

import enum
import json
from collections import OrderedDict
from typing import Any

import numpy
import pytest
import torch

from tests.elastic.checkpoint.conftest import same
from tidewater.elastic import tree
from tidewater.elastic.errors import ConfigError, RecordError


class Text(str, enum.Enum):  # noqa: UP042  (str() of a StrEnum is its value, so it would not test this)
    A = "x"


class Number(enum.IntEnum):
    A = 4


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
    ],
    ids=repr,
)
def test_other_values_than_tensors_are_restored_with_equal_value_and_type(value: object) -> None:
    assert same(round_trip({"value": value}), {"value": value})


def test_tensors_are_restored_in_their_places() -> None:
    one, two = torch.arange(3.0), torch.tensor(7)
    state = {"a": {0: {"x": one}}, "b": (two, [one, {"c": two}]), "d": [1, [two]]}
    assert same(round_trip(state), state)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        pytest.param(numpy.float64(0.25), 0.25, id="numpy"),
        pytest.param(OrderedDict(a=1), {"a": 1}, id="ordered"),
        pytest.param(torch.Size([2, 3]), (2, 3), id="size"),
        pytest.param(Number.A, 4, id="int-enum"),
        pytest.param(Text.A, "x", id="str-enum"),
    ],
)
def test_a_subclass_is_restored_as_the_plain_type(value: object, plain: object) -> None:
    assert same(round_trip({"value": value}), {"value": plain})


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"more": {"ema": [1, object()]}}, "builtins.object at more.ema.1"),
        ({"seen": {1, 2}}, "builtins.set at seen"),
        ({"noise": numpy.zeros(3)}, "numpy.ndarray at noise"),
        ({"a": {b"key": 1}}, "builtins.bytes as the key"),
        ({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, r"two tensors called a\.b: rename one"),
        ({"a": torch.ones(2).to_sparse()}, r"torch\.sparse_coo tensor at a: make it a dense one"),
    ],
    ids=["object", "set", "array", "key", "name", "sparse"],
)
def test_an_unsupported_value_is_refused_with_its_path(state: dict[Any, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        round_trip(state)


@pytest.mark.parametrize(
    "outline", [{"dict": 3}, {"what": []}, {"tensor": "gone"}, {}, {"dict": [[1]]}, {"bytes": "?"}]
)
def test_a_damaged_outline_is_reported_as_damaged(outline: object) -> None:
    with pytest.raises(RecordError, match="outline"):
        tree.join(outline, {})
