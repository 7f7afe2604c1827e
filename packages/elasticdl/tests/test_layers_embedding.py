"""An embedding layer gives what torch's own gives, asks for rows of its minibatch alone, and collects gradients."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.errors import InputError
from elasticdl.layers import Embedding, LocalTables, attach, collect_gradients, tables
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

TABLE = Table("item", 4, "normal(0,1)")
ROWS = initial_rows(TABLE, torch.arange(10))


class Source:
    """Rows in another place, which notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []

    def pull(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        self.asked.append((name, ids.tolist()))
        return ROWS[ids]


def reference(combiner: str | None, padding_id: int | None) -> Any:
    """Return torch's own layer with the same rows."""
    rows = with_padding(padding_id)
    if combiner is None:
        return nn.Embedding(10, 4, padding_idx=padding_id, _weight=rows)
    mode = "sum" if combiner == "sqrtn" else combiner
    return nn.EmbeddingBag(10, 4, mode=mode, padding_idx=padding_id, _weight=rows)


def with_padding(padding_id: int | None) -> torch.Tensor:
    rows = ROWS.clone()
    if padding_id is not None:
        rows[padding_id] = 0
    return rows


def dense(layer: nn.Module) -> torch.Tensor:
    """Return the layer's collected gradient as one for the whole table."""
    whole = torch.zeros_like(ROWS)
    for _, ids, rows in collect_gradients(layer):
        whole[ids] = rows
    return whole


BAGS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=1, max_size=6)
)


@settings(max_examples=40)
@given(BAGS, st.sampled_from([None, "sum", "mean", "sqrtn"]), st.sampled_from([None, 0, 3]))
def test_values_and_gradients_are_those_of_torch(
    bags: list[list[int]], combiner: str | None, padding_id: int | None
) -> None:
    ids = torch.tensor(bags)
    layer, theirs = Embedding(TABLE, combiner=combiner, padding_id=padding_id), reference(combiner, padding_id)
    found, expected = layer(ids), theirs(ids)
    if combiner == "sqrtn":
        expected = expected / (ids != (-1 if padding_id is None else padding_id)).sum(1, keepdim=True).clamp(1).sqrt()
    weights = torch.arange(found.numel(), dtype=torch.float32).reshape(found.shape)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(dense(layer), theirs.weight.grad)


@pytest.mark.parametrize("combiner", ["sum", "mean"])
def test_bags_by_offsets_are_those_of_torch(combiner: str) -> None:
    ids, offsets = torch.tensor([1, 2, 3, 3, 0, 9]), torch.tensor([0, 2, 2, 5])
    layer, theirs = Embedding(TABLE, combiner=combiner, padding_id=0), reference(combiner, 0)
    found, expected = layer(ids, offsets), theirs(ids, offsets)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(dense(layer), theirs.weight.grad)


def test_a_column_of_a_minibatch_is_looked_up_without_a_warning() -> None:
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(action="error"):
            Embedding(TABLE)(torch.arange(6).reshape(3, 2)[:, 1])
    finally:
        torch.set_warn_always(always)


def test_each_row_of_a_minibatch_is_asked_for_once() -> None:
    layer, source = Embedding(TABLE, padding_id=0), Source()
    attach(layer, source)
    vectors = layer(torch.tensor([[7, 2, 7], [0, 2, 2]]))
    assert source.asked == [("item", [2, 7])]
    assert torch.equal(vectors[0, 2], ROWS[7])
    assert torch.equal(vectors[1, 0], torch.zeros(4))


def test_gradients_of_several_layers_and_calls_of_a_table_are_added() -> None:
    model = nn.ModuleList([Embedding(TABLE), Embedding(TABLE, combiner="sum")])
    attach(model, Source())
    vectors = [model[0](torch.tensor([1, 2])), model[0](torch.tensor([2])), model[1](torch.tensor([[5, 1]]))]
    torch.autograd.backward(torch.cat(vectors).sum())
    ((name, ids, rows),) = collect_gradients(model)
    assert (name, ids.tolist()) == ("item", [1, 2, 5])
    assert torch.equal(rows, torch.tensor([2.0, 2.0, 1.0]).unsqueeze(1).expand(3, 4))
    assert collect_gradients(model) == []


def test_what_has_no_gradient_is_not_collected() -> None:
    layer = Embedding(TABLE)
    layer(torch.tensor([1]))
    with torch.no_grad():
        layer(torch.tensor([2]))
    layer(torch.zeros(0, dtype=torch.int64)).sum().backward()
    assert layer.collect_gradients() == []


def test_a_bag_of_nothing_is_zero() -> None:
    layer = Embedding(TABLE, combiner="mean", padding_id=0)
    assert torch.equal(layer(torch.zeros(2, 3, dtype=torch.int32)), torch.zeros(2, 4))


def test_rows_of_a_layers_own_travel_with_its_state() -> None:
    layer = Embedding(TABLE)
    layer(torch.tensor([100, 5]))
    layer.load(torch.tensor([5, 7]), torch.ones(2, 4))
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    other = Embedding(TABLE)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(other(torch.tensor([5, 7])), torch.ones(2, 4))
    assert torch.equal(other(torch.tensor([100]))[0], initial_rows(TABLE, torch.tensor([100]))[0])


def test_rows_that_are_elsewhere_are_not_in_the_state() -> None:
    layer = Embedding(TABLE)
    attach(layer, Source())
    assert layer.get_extra_state() == {}


def test_local_tables_keep_what_they_are_given_however_many() -> None:
    local = LocalTables([TABLE, Table("user", 2, "zeros")])
    ids = torch.arange(0, 3000, 3)
    local.assign("user", ids, ids.unsqueeze(1).expand(-1, 2).float())
    assert torch.equal(local.pull("user", torch.tensor([1, 2997])), torch.tensor([[0.0, 0.0], [2997.0, 2997.0]]))
    assert local.assigned("user")[0].tolist() == ids.tolist()
    assert len(local.assigned("item")[0]) == 0


def test_a_pulled_row_is_a_copy() -> None:
    local = LocalTables([TABLE])
    local.pull("item", torch.tensor([1])).zero_()
    assert torch.equal(local.pull("item", torch.tensor([1]))[0], ROWS[1])


def test_layers_may_share_a_table_but_not_a_name() -> None:
    assert tables(nn.ModuleList([Embedding(TABLE), Embedding(Table("item", 4, "normal(0,1)"))])) == {"item": TABLE}
    with pytest.raises(InputError, match="two embedding tables are named 'item'"):
        attach(nn.ModuleList([Embedding(TABLE), Embedding(Table("item", 5))]), Source())


@pytest.mark.parametrize(
    ("layer", "ids", "offsets", "said"),
    [
        (Embedding(Table("t", 2)), [1, -3], None, r"'t': id -3 is not in \[0, …\)"),
        (Embedding(Table("t", 2, num_ids=5)), [1, 5], None, r"'t': id 5 is not in \[0, 5\)"),
        (Embedding(Table("t", 2, num_ids=5), padding_id=-1), [-1, -2], None, r"id -2 is not in"),
        (Embedding(Table("t", 2)), [1.0], None, "'t': ids are torch.float32"),
        (Embedding(Table("t", 2)), [True], None, "'t': ids are torch.bool"),
        (Embedding(Table("t", 2)), [1], [0], "'t': offsets with ids of 1 dimensions and combiner None"),
        (Embedding(Table("t", 2), combiner="sum"), [[1]], [0], "'t': offsets with ids of 2 dimensions"),
        (Embedding(Table("t", 2), combiner="sum"), 1, None, "'t': one id, and the combiner sum"),
    ],
)
def test_wrong_ids_are_named(layer: Embedding, ids: Any, offsets: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        layer(torch.tensor(ids), None if offsets is None else torch.tensor(offsets))


def test_a_source_with_rows_of_another_size_is_named() -> None:
    layer = Embedding(Table("item", 3))
    attach(layer, Source())
    with pytest.raises(InputError, match=r"'item': its rows came as \(1, 4\) for 1 ids of 3 numbers"):
        layer(torch.tensor([1]))


def test_an_unknown_combiner_is_named() -> None:
    with pytest.raises(InputError, match="'item': unknown combiner 'max'"):
        Embedding(TABLE, combiner="max")


@pytest.mark.parametrize("offsets", [[1, 2], [0, 2, 1], [0, 5], [0.0, 2.0], [[0]], []])
def test_offsets_that_do_not_fit_are_refused(offsets: list[Any]) -> None:
    layer = Embedding(Table("user", 4), combiner="sum")
    with pytest.raises(InputError, match=r"'user': .*offsets"):
        layer(torch.tensor([1, 2, 3]), torch.tensor(offsets))
