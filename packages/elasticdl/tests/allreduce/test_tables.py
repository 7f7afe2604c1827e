"""Tables that are parameters give what those of the parameter servers give, and are exported as they are."""

from __future__ import annotations

import pytest
import torch
from elasticdl import layers
from elasticdl.allreduce.assembly import HeldEmbedding, hold_tables, whole
from elasticdl.embedding_init import Table, initial_rows
from elasticdl.errors import InputError
from elasticdl.layers import Embedding
from torch import nn

USERS = Table("user", 4, num_ids=10, seed=3)
IDS = torch.tensor([[1, 9, 0], [0, 0, 5]])


class Model(nn.Module):
    """Two layers of one table, and a dense one."""

    def __init__(self) -> None:
        super().__init__()
        self.one = Embedding(USERS, combiner="mean", padding_id=0)
        self.parts = nn.ModuleList([Embedding(USERS)])
        self.dense = nn.Linear(4, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.dense(self.one(ids) + self.parts[0](ids).sum(1)))


def same_dense(model: nn.Module) -> Model:
    """Return another model with the dense values of this one."""
    other = Model()
    other.load_state_dict(model.state_dict(), strict=False)
    return other


def test_a_held_table_gives_the_same_values_and_gradients() -> None:
    plain = Model()
    held = same_dense(plain)
    hold_tables(held)
    assert torch.equal(plain(IDS), held(IDS))
    plain(IDS).sum().backward()
    held(IDS).sum().backward()
    ((_, ids, rows),) = layers.collect_gradients(plain)
    gradient = held.one.weight.grad
    assert isinstance(gradient, torch.Tensor)
    torch.testing.assert_close(gradient[ids], rows)
    assert not gradient[[index for index in range(10) if index not in ids.tolist()]].any()


def test_layers_of_one_table_share_a_parameter() -> None:
    model = Model()
    hold_tables(model)
    assert isinstance(model.one, HeldEmbedding)
    assert [name for name, _ in model.named_parameters()] == ["one.weight", "dense.weight", "dense.bias"]
    assert all(isinstance(value, torch.Tensor) for value in model.state_dict().values())


def test_a_model_that_is_a_layer_is_replaced_itself() -> None:
    assert isinstance(hold_tables(Embedding(USERS)), HeldEmbedding)


def test_rows_that_were_loaded_are_kept() -> None:
    layer = Embedding(USERS)
    layer.load(torch.tensor([2]), torch.ones(1, 4))
    held = hold_tables(layer)
    expected = initial_rows(USERS, torch.arange(10))
    expected[2] = 1.0
    assert torch.equal(held(torch.arange(10)), expected)


def test_an_exported_model_has_its_tables_apart() -> None:
    model = Model()
    hold_tables(model)
    found = whole(model, 7)
    assert (found.version, set(found.dense), set(found.tables)) == (7, {"dense.weight", "dense.bias"}, {"user"})
    rows = found.tables["user"]
    assert torch.equal(rows.ids, torch.arange(10))
    assert torch.equal(rows.rows, initial_rows(USERS, torch.arange(10)))


def test_a_table_of_unknown_size_is_refused_with_its_name_and_the_other_strategy() -> None:
    with pytest.raises(InputError, match=r"'item' has no num_ids.*\n.*ParameterServerStrategy"):
        hold_tables(nn.Sequential(Embedding(Table("item", 4))))
