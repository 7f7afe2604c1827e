"""What a buffer is after a step of several ranks, by what their passes have written to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.buffers.together import Ranks
from tidewater.elastic.errors import ConfigError

INF, BIG = float("inf"), 2**53
Write = Callable[["Layer", torch.Tensor], None]


class Layer(nn.Module):
    """Has a buffer ``value``, and writes to it in every pass."""

    value: torch.Tensor

    def __init__(self, value: torch.Tensor, write: Write, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("value", value.clone(), persistent=persistent)
        self.passes = 0
        self._write = write
        self.linear = nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> Any:
        self.passes += 1
        self._write(self, inputs)
        return self.linear(inputs)


def adds(make: Callable[[torch.Tensor], Any]) -> Write:
    def write(layer: Layer, inputs: torch.Tensor) -> None:
        layer.value += make(inputs)

    return write


def sets(make: Callable[[Layer, torch.Tensor], Any]) -> Write:
    def write(layer: Layer, inputs: torch.Tensor) -> None:
        layer.value = make(layer, inputs)

    return write


def fills(make: Callable[[torch.Tensor], Any]) -> Write:
    def write(layer: Layer, inputs: torch.Tensor) -> None:
        layer.value[...] = make(inputs)

    return write


def writes_past_the_counter(layer: Layer, inputs: torch.Tensor) -> None:
    layer.value.data.mul_(0.5).add_(inputs.mean())


def marks(layer: Layer, inputs: torch.Tensor) -> None:
    layer.value[int(inputs[0, 0])] ^= True


FIRST, SECOND = [[1.0], [1.0], [4.0]], [[3.0]]
"""The ranks' samples: three with the mean 2, and one."""
CASES: dict[str, tuple[torch.Tensor, Write, torch.Tensor]] = {
    "constant -inf": (torch.tensor([-INF, 0.0]), lambda layer, inputs: None, torch.tensor([-INF, 0.0])),
    "-inf written again": (
        torch.tensor([-INF, 1.0]),
        fills(lambda x: torch.tensor([-INF, 1.0])),
        torch.tensor([-INF, 1]),
    ),
    "-inf on one": (torch.zeros(1), fills(lambda x: -INF if len(x) == 3 else 5.0), torch.tensor([-INF])),
    "float": (torch.tensor([8.0]), fills(lambda x: x.mean()), torch.tensor([0.75 * 2 + 0.25 * 3])),
    "the lowest float": (
        torch.zeros(1),
        fills(lambda x: torch.finfo(torch.float32).min),
        torch.tensor([-3.4028235e38]),
    ),
    "half": (torch.tensor([8.0]).half(), fills(lambda x: x.mean()), torch.tensor([2.25]).half()),
    "bfloat16": (torch.tensor([8.0]).bfloat16(), fills(lambda x: x.mean()), torch.tensor([2.25]).bfloat16()),
    "float64": (
        torch.tensor([2.0**30], dtype=torch.float64),
        adds(lambda x: 2.0**-20 * len(x)),
        torch.tensor([2.0**30 + 2.5 * 2.0**-20], dtype=torch.float64),
    ),
    "complex": (
        torch.zeros(1, dtype=torch.complex64),
        fills(lambda x: x.mean() * (1 + 2j)),
        torch.tensor([2.25 + 4.5j]),
    ),
    "complex128": (
        torch.zeros(1, dtype=torch.complex128),
        fills(lambda x: x.double().mean() * 1j),
        torch.tensor([2.25j], dtype=torch.complex128),
    ),
    "int64": (torch.tensor(BIG + 1), adds(len), torch.tensor(BIG + 5)),
    "int64 downwards": (torch.tensor(2 - BIG), adds(lambda x: -len(x)), torch.tensor(-2 - BIG)),
    "increments above 2^53": (torch.tensor(7), adds(lambda x: BIG + len(x)), torch.tensor(2 * BIG + 11)),
    "offsets above 2^24": (
        torch.tensor([2**24 + 1, 3]),
        adds(lambda x: torch.tensor([0, 1])),
        torch.tensor([2**24 + 1, 5]),
    ),
    "int32": (torch.tensor([1], dtype=torch.int32), adds(len), torch.tensor([5], dtype=torch.int32)),
    "uint8": (torch.tensor([1], dtype=torch.uint8), adds(len), torch.tensor([5], dtype=torch.uint8)),
    "bool": (torch.tensor([True, False, False, False]), marks, torch.tensor([True, True, False, True])),
    "assigned": (torch.tensor([8.0]), sets(lambda layer, x: layer.value * 0.5 + x.mean()), torch.tensor([6.25])),
    "assigned with another shape": (torch.zeros(1), sets(lambda layer, x: x[0].expand(2)), torch.tensor([1.5, 1.5])),
    "assigned integers with another shape": (torch.zeros(1), sets(lambda layer, x: torch.arange(3)), torch.arange(3)),
    "assigned, conjugated": (
        torch.zeros(1, dtype=torch.complex64),
        sets(lambda layer, x: (x[0] * 1j).conj()),
        torch.tensor([-1.5j]),
    ),
    "written past torch's counter": (torch.tensor([8.0]), writes_past_the_counter, torch.tensor([6.25])),
    "of no elements": (torch.zeros(0), sets(lambda layer, x: torch.zeros(0, 2)), torch.zeros(0, 2)),
}


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether type, shape and all values are the same."""
    return one.dtype == other.dtype and torch.equal(one, other)


def of(model: nn.Module) -> torch.Tensor:
    """Return the buffer."""
    return model.get_buffer("value")


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "not-persistent"])
@pytest.mark.parametrize("case", CASES)
def test_a_buffer_is_combined_in_its_own_type_and_is_the_same_on_all_ranks(case: str, persistent: bool) -> None:
    value, write, expected = CASES[case]
    ranks = Ranks(2, lambda: Layer(value, write, persistent=persistent))
    ranks.step(FIRST, SECOND)
    for model in ranks.models:
        assert same(of(model), expected), of(model)
    ranks.step(FIRST, SECOND)
    assert len({state.digest() for state in ranks.states}) == 1


@pytest.mark.parametrize("case", CASES)
def test_a_buffer_of_a_rank_that_is_alone_is_what_its_passes_have_written(case: str) -> None:
    value, write, _ = CASES[case]
    plain = Layer(value, write)
    ranks = Ranks(1, lambda: Layer(value, write))
    for _ in range(3):
        plain(torch.tensor(FIRST))
        ranks.step(FIRST)
    assert same(of(ranks.models[0]), plain.value)


NEW_FORM = {case for case, (value, _, expected) in CASES.items() if value.shape != expected.shape}


@pytest.mark.parametrize("case", sorted(CASES.keys() - NEW_FORM))
def test_a_pass_counts_as_much_as_if_it_were_made_by_another_rank(case: str) -> None:
    value, write, expected = CASES[case]
    alone, both, four = (Ranks(size, lambda: Layer(value, write)) for size in (1, 2, 4))
    for step in range(3):
        alone.step_in_passes([FIRST, SECOND])
        if step == 0:
            assert same(of(alone.models[0]), expected)
    for _ in range(2):
        both.step_in_passes([FIRST, SECOND], [FIRST, SECOND])
        four.step(FIRST, SECOND, FIRST, SECOND)
    assert same(of(both.models[0]), of(four.models[0]))
    assert both.states[0].digest() == both.states[1].digest()


@pytest.mark.parametrize("case", sorted(NEW_FORM))
def test_what_gets_another_shape_is_as_the_last_pass_leaves_it(case: str) -> None:
    value, write, _ = CASES[case]
    plain, alone = Layer(value, write), Ranks(1, lambda: Layer(value, write))
    alone.step_in_passes([FIRST, SECOND])
    plain(torch.tensor(SECOND))
    assert same(of(alone.models[0]), plain.value)


def test_a_buffer_that_only_some_passes_change_has_its_old_value_in_the_others() -> None:
    def write(layer: Layer, inputs: torch.Tensor) -> None:
        if len(inputs) == 1:
            layer.value += inputs.mean()

    for passes in ([FIRST, SECOND], [SECOND, FIRST]):
        alone = Ranks(1, lambda: Layer(torch.tensor([8.0]), write))
        for value in (8.75, 9.5, 10.25):
            alone.step_in_passes(passes)
            assert same(of(alone.models[0]), torch.tensor([value]))


def test_a_backward_pass_finds_what_its_forward_pass_has_written() -> None:
    class Scaled(Layer):
        def forward(self, inputs: torch.Tensor) -> Any:
            self._write(self, inputs)
            return self.linear(inputs) * self.value  # torch keeps the buffer for the backward pass, and its version

    alone = Ranks(1, lambda: Scaled(torch.ones(1), adds(lambda x: x.mean())))
    alone.step_in_passes([FIRST, SECOND])
    assert same(of(alone.models[0]), torch.tensor([3.25]))


def test_a_rank_without_samples_contributes_nothing_and_gets_what_the_others_have() -> None:
    for case, (value, write, _) in CASES.items():
        ranks, reference = (Ranks(size, partial(Layer, value, write)) for size in (3, 2))
        for _ in range(2):
            ranks.step([], FIRST, SECOND)
            reference.step(FIRST, SECOND)
        for model in ranks.models:
            assert same(of(model), of(reference.models[0])), case


def test_a_float_that_is_equal_on_all_ranks_stays_equal_bit_for_bit_whatever_their_shares() -> None:
    """Like a counter that a script keeps as a float."""
    ranks = Ranks(3, lambda: Layer(torch.tensor([0.1, 2.0**24 - 100]), adds(lambda x: 1.0)))
    expected = torch.tensor([0.1, 2.0**24 - 100])
    for _ in range(4):
        ranks.step([[1.0]], [[2.0]] * 2, [[3.0]] * 4)
        expected += 1
    for model in ranks.models:
        assert same(of(model), expected)


def normalized(momentum: float | None) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3, momentum=momentum), nn.Linear(3, 1))


@pytest.mark.parametrize("momentum", [0.1, None], ids=["exponential", "cumulative"])
def test_running_statistics_are_the_means_of_what_the_ranks_have_and_batches_are_counted_once(
    momentum: float | None,
) -> None:
    ranks, alone = Ranks(2, lambda: normalized(momentum)), Ranks(1, lambda: normalized(momentum))
    draw = torch.Generator().manual_seed(1)
    means = []
    for step in range(1, 6):
        batches = [torch.randn(size, 1, generator=draw) for size in (6, 2)]
        plain = normalized(momentum)
        plain.load_state_dict(ranks.models[0].state_dict())
        inputs = [plain[0](batch).detach() for batch in batches]
        means.append(0.75 * inputs[0].mean(0) + 0.25 * inputs[1].mean(0))
        before = plain[1].running_mean.clone()
        ranks.step(*batches)
        factor = momentum or 1 / step
        for model in ranks.models:
            norm: Any = model.get_submodule("1")
            assert int(norm.num_batches_tracked) == step
            torch.testing.assert_close(norm.running_mean, before * (1 - factor) + means[-1] * factor)
        alone.step_in_passes(batches)
        torch.testing.assert_close(alone.models[0].state_dict(), ranks.models[0].state_dict())
    if momentum is None:
        torch.testing.assert_close(norm.running_mean, torch.stack(means).mean(0))


def test_a_batch_normalization_that_is_frozen_stays_as_it_is_and_one_that_is_thawed_later_is_the_same_at_once() -> None:
    """torch does not count what it writes to the running statistics."""
    ranks = Ranks(2, lambda: normalized(0.1))
    norms: list[Any] = [model.get_submodule("1") for model in ranks.models]
    draw = torch.Generator().manual_seed(1)
    for step in range(6):
        for norm in norms:
            norm.train(step >= 4)
        sent = ranks.step(*(torch.randn(size, 1, generator=draw) for size in (6, 2)))
        assert torch.equal(norms[0].running_var, norms[1].running_var)
        assert bool((norms[0].running_var == 1).all()) is (step < 4)
        assert (len(sent) == 1) is (step < 4)
    assert ranks.states[0].digest() == ranks.states[1].digest()


def test_shapes_that_differ_end_all_ranks_with_a_sentence_that_names_the_buffer() -> None:
    ranks = Ranks(2, lambda: nn.Sequential(Layer(torch.zeros(1), sets(lambda layer, x: x.detach().clone()))))
    wanted = r"buffer 0\.value is float32 of shape \(3, 1\) on rank 0 and float32 of shape \(1, 1\) on rank 1"
    with pytest.raises(ConfigError, match=wanted):
        ranks.step(FIRST, SECOND)


def test_the_tensor_stays_the_one_that_a_compiled_model_knows() -> None:
    ranks = Ranks(2, lambda: Layer(torch.zeros(1), sets(lambda layer, x: x.mean().reshape(1))))
    before = [of(model) for model in ranks.models]
    ranks.step(FIRST, SECOND)
    assert all(of(model) is value for model, value in zip(ranks.models, before, strict=True))


def lazily(layer: Layer, inputs: torch.Tensor) -> None:
    """Make a buffer in the first pass, as caches do."""
    if not hasattr(layer, "cache"):
        layer.register_buffer("cache", torch.full((2,), float(len(inputs))), persistent=False)
    layer.value = None  # type: ignore[assignment]


def test_a_buffer_that_the_first_pass_makes_or_drops_is_the_same_on_all_ranks() -> None:
    ranks = Ranks(2, lambda: Layer(torch.zeros(1), lazily))
    for _ in range(2):
        ranks.step(FIRST, SECOND)
        for model in ranks.models:
            assert same(model.get_buffer("cache"), torch.tensor([2.5, 2.5]))
            assert model.value is None
    assert len({state.digest() for state in ranks.states}) == 1
