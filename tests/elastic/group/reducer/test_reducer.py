"""The gradients of a step are those of plain autograd, whatever parameters have one and however the last step ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.alone import form_alone, opened_alone
from tests.elastic.group.reducer.steps import WIDE, Branches, InParts, Steps, batch, gradients, signed, storages, total
from tidewater.elastic.data.loader import Micro, Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import ConfigError, GroupBroken
from tidewater.elastic.group import buckets
from tidewater.elastic.group.group import Group

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)


@pytest.fixture(scope="module")
def opened() -> Iterator[Group]:
    yield from opened_alone()


@pytest.fixture
def group(opened: Group) -> Group:
    form_alone(opened)
    return opened


def test_a_parameter_without_a_gradient_has_none_and_is_not_moved_by_momentum_and_weight_decay(group: Group) -> None:
    Steps(group, Branches()).agree([signed(1)], [signed(-1)], [signed(1)], [signed(1)])


def test_a_parameter_that_only_some_micro_batches_use_has_their_gradient(group: Group) -> None:
    Steps(group, Branches()).agree([signed(1)], [signed(-1), signed(1)], [signed(1), signed(-1), signed(1)])


def test_a_parameter_may_be_frozen_in_training_or_before(group: Group) -> None:
    steps = Steps(group, Branches())
    steps.agree([signed(1)])
    for model in (steps.model, steps.plain):
        model.first.requires_grad_(False)
    steps.agree([signed(1)], [signed(-1)])


def test_a_parameter_that_is_unfrozen_in_training_is_refused_by_name(group: Group) -> None:
    model = Branches()
    model.first.requires_grad_(False)
    steps = Steps(group, model)
    steps.agree([signed(1)])
    model.first.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"first\.weight has a gradient, but did not require one when training began"):
        steps.step(signed(1))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str
)
def test_gradients_of_several_buckets_are_those_of_autograd_bit_for_bit(group: Group, dtype: torch.dtype) -> None:
    layers = [nn.Linear(WIDE, WIDE, dtype=dtype) for _ in range(4)]
    steps = Steps(group, nn.Sequential(*layers, nn.Linear(WIDE, 2, dtype=dtype)))
    steps.agree(*([batch(dtype=dtype), batch(dtype=dtype)] for _ in range(3)))


def test_parameters_of_several_types_are_summed_in_their_types(group: Group) -> None:
    class Mixed(nn.Sequential):
        def forward(self, batch: Any) -> Any:
            for layer in self:
                batch = layer(batch.to(layer.weight.dtype))
            return batch

    layers = [nn.Linear(WIDE, WIDE, dtype=dtype) for dtype in (torch.bfloat16, torch.float64, torch.float32) * 2]
    Steps(group, Mixed(*layers)).agree([batch()], [batch()], [batch()])


def test_shared_and_strided_parameters_have_their_gradients(group: Group) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)
            self.other.weight = self.one.weight
            self.columns = nn.Parameter(torch.rand(WIDE, 6)[:, ::2] / WIDE)
            self.transposed = nn.Parameter(torch.rand(5, WIDE).t() / WIDE)
            self.scalar, self.empty = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.zeros(0))

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            batch = self.other(self.one(batch))
            return torch.cat([batch @ self.columns, batch @ self.transposed], 1) * self.scalar + self.empty.sum()

    Steps(group, Shared()).agree([batch()], [batch()], [batch()])


def test_gradients_that_come_in_parts_are_complete(group: Group) -> None:
    Steps(group, InParts()).agree([batch()], [batch()], [batch(), batch()], [batch()])


def test_parts_that_come_after_the_sum_has_begun_are_added(group: Group) -> None:
    steps = Steps(group, InParts(last_segment=1))
    for segments in (1, 1, 2, 2, 3, 1):
        steps.model.segments = steps.plain.segments = segments  # type: ignore[assignment]
        values = batch()
        for one, other in zip(steps.step(values), steps.expected(values), strict=True):
            torch.testing.assert_close(one, other)


def test_a_step_without_gradients_is_said_and_after_many_from_the_start_it_is_an_error(group: Group) -> None:
    other = torch.ones(1, requires_grad=True)
    steps = Steps(group, Branches(), lambda model, batch: other.sum())
    with pytest.warns(UserWarning, match="no gradient was computed in a step"):
        assert set(steps.step(batch())) == {None}
    for _ in range(98):
        steps.step(batch())
    with pytest.raises(ConfigError, match=r"in 100 steps: the loss depends on none of the model's parameters"):
        steps.step(batch())


def test_a_sparse_gradient_is_refused_by_name(group: Group) -> None:
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Linear(3, 2))
    with pytest.raises(ConfigError, match=r"the gradient of the parameter 0\.weight is sparse.*sparse=False"):
        Steps(group, model).step(torch.tensor([1, 2]))


class Failing(torch.autograd.Function):
    """Fails in the backward pass when asked to."""

    wanted = False

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if Failing.wanted:
            raise MemoryError("no memory")
        return gradient


class FailsInTheMiddle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, batch: torch.Tensor) -> Any:
        return self.second(Failing.apply(self.first(batch)))


@pytest.mark.parametrize("micro", [1, 2])
def test_the_step_after_a_backward_pass_that_failed_is_exact(
    group: Group, monkeypatch: pytest.MonkeyPatch, micro: int
) -> None:
    steps = Steps(group, FailsInTheMiddle())
    steps.agree([batch()], [batch()])
    for _ in range(2):
        monkeypatch.setattr(Failing, "wanted", True)
        with pytest.raises(MemoryError):
            steps.step(*[batch()] * micro)
        monkeypatch.setattr(Failing, "wanted", False)
        steps.agree([batch()] * micro)


def test_an_abandoned_sum_that_ends_late_does_not_change_the_next_step(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(group, nn.Sequential(nn.Linear(WIDE, WIDE), nn.Linear(WIDE, WIDE)))
    steps.agree([batch()], [batch()])
    abandoned: list[torch.Tensor] = []
    begin = group.begin

    def begin_and_break(tensor: torch.Tensor) -> Any:
        abandoned.append(tensor)
        work = begin(tensor)
        group.interrupt("lost b")
        return work

    monkeypatch.setattr(group, "begin", begin_and_break)
    with pytest.raises(GroupBroken, match="lost b"):
        steps.step(batch())
    monkeypatch.setattr(group, "begin", begin)
    form_alone(group)
    values = batch()
    expected = steps.expected(values)
    steps._stepper.gradients(Prepared(Step((0,), Cursor()), (Micro(values, 1.0, 4),)))
    assert len(abandoned) > 1
    for tensor in abandoned:
        tensor.fill_(float("nan"))
    for one, other in zip(gradients(steps.model), expected, strict=True):
        assert torch.equal(one, other)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float32, 0), (torch.bfloat16, 2)], ids=str)
def test_a_step_needs_no_copy_of_its_gradients_but_two_buckets_of_16_bits(
    group: Group, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, copies: int
) -> None:
    monkeypatch.setattr(buckets, "BYTES", 1 << 20)
    steps = Steps(group, nn.Sequential(*[nn.Linear(WIDE, WIDE, dtype=dtype) for _ in range(8)]))
    begin, complete = group.begin, group.complete
    begun: list[Any] = []
    most = 0

    def begin_and_count(tensor: torch.Tensor) -> Any:
        nonlocal most
        begun.append(begin(tensor))
        sums.append(tensor.untyped_storage().data_ptr())
        most = max(most, len(begun))
        return begun[-1]

    def complete_and_count(works: Sequence[Any]) -> None:
        complete(works)
        for work in works:
            begun.remove(work)

    monkeypatch.setattr(group, "begin", begin_and_count)
    monkeypatch.setattr(group, "complete", complete_and_count)
    for _ in range(3):
        sums: list[int] = []
        steps.step(batch(dtype=dtype))
        assert len(sums) >= 3
        assert (set(sums) == storages(steps.model)) == (not copies)
        assert most == (copies or len(sums))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_several_micro_batches_need_no_more_memory_for_gradients_than_one(
    group: Group, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(buckets, "BYTES", 1 << 20)
    places: list[set[int]] = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        places.append(storages(model))
        return total(model, batch)

    steps = Steps(group, nn.Sequential(*[nn.Linear(WIDE, WIDE, dtype=dtype) for _ in range(8)]), loss)
    for count in (1, 3, 3, 2):
        places.clear()
        steps.step(*[batch(dtype=dtype)] * count)
        summed = storages(steps.model)
        assert len(summed) >= 3
        assert places == [summed if count > 1 else set()] * count


@pytest.mark.parametrize("sum_dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_16_bits_round_the_gradients_and_nothing_else(
    group: Group, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, sum_dtype: torch.dtype
) -> None:
    monkeypatch.setattr(buckets, "BYTES", 1 << 20)
    steps = Steps(group, nn.Sequential(*[nn.Linear(WIDE, WIDE, dtype=dtype) for _ in range(4)]), sum_dtype=sum_dtype)
    sums: list[torch.Tensor] = []
    begin = group.begin

    def begin_and_note(tensor: torch.Tensor) -> Any:
        sums.append(tensor)
        return begin(tensor)

    monkeypatch.setattr(group, "begin", begin_and_note)
    for count in (1, 2):
        sums.clear()
        batches = [batch(dtype=dtype)] * count
        found, expected = steps.step(*batches), steps.expected(*batches)
        assert [each.dtype for each in sums] == [sum_dtype] * (len(sums) - 1) + [torch.float32]
        for one, other in zip(found, expected, strict=True):
            assert one is not None
            assert other is not None
            assert torch.equal(one, rounded(other, sum_dtype))
        with torch.no_grad():
            for one_, other_ in zip(steps.plain.parameters(), steps.model.parameters(), strict=True):
                one_.copy_(other_)


def rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_complex(torch.view_as_real(tensor).to(dtype).float())
    return tensor.to(dtype).to(tensor.dtype)


def test_buckets_are_in_reverse_order_of_registration_and_of_one_type() -> None:
    def named(name: str, size: int, dtype: torch.dtype = torch.float32) -> buckets.Named:
        return name, nn.Parameter(torch.zeros(size, dtype=dtype))

    parameters = [named("a", 4), named("b", 4, torch.float64), named("c", 8), named("d", 1), named("e", 1)]
    found = buckets.assign(parameters, torch.device("cpu"), first_bytes=8, most_bytes=40)
    assert [bucket.names for bucket in found] == [["e", "d"], ["c", "a"], ["b"]]
    assert [bucket.names for bucket in buckets.assign([], torch.device("cpu"), first_bytes=1, most_bytes=1)] == [[]]
