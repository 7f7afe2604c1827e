"""With weighted losses, the gradient and the loss of a step equal those of the whole batch in plain torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.method.conftest import (
    SAMPLES,
    Batch,
    Trainee,
    assert_same_bits,
    batches,
    bits,
    mean_loss,
    net,
    prepared,
)
from tidewater.elastic.errors import ConfigError, Diverged
from tidewater.elastic.group.group import Group
from tidewater.elastic.method.losses import part_of

IGNORED = -100


def total_loss(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum over the samples that are not padding, and their number."""
    inputs, labels = batch
    loss = nn.functional.cross_entropy(model(inputs), labels, ignore_index=IGNORED, reduction="sum")
    return loss, (labels != IGNORED).sum()


def with_totals(model: nn.Module) -> dict[str, Any]:
    return {"optimizer": torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9), "loss": total_loss}


def padded(count: int) -> list[Batch]:
    """Return batches in which the second quarter is padding."""
    made = batches(count)
    for _, labels in made:
        labels[SAMPLES // 4 : SAMPLES // 2] = IGNORED
    return made


@pytest.mark.parametrize("amp", ["off", "fp16"])
@pytest.mark.parametrize("sizes", [(12,), (5, 4, 3), (3, 3, 6)], ids=["one", "uneven", "with padding"])
def test_a_step_of_uneven_micro_batches_is_that_of_the_whole_batch_in_plain_torch(
    group: Group, sizes: Sequence[int], amp: str
) -> None:
    trainee, plain = Trainee(group, with_totals, amp=amp), net()
    sgd = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.9)
    for batch in padded(4):
        outcome = trainee.stepper.gradients(prepared(batch, sizes))
        trainee.stepper.apply(outcome, 1.0)
        sgd.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=amp == "fp16"):
            expected = nn.functional.cross_entropy(plain(batch[0]), batch[1], ignore_index=IGNORED)
        torch.autograd.backward(expected)
        sgd.step()
        rtol, atol = (0.02, 2e-3) if amp == "fp16" else (1e-5, 1e-6)
        torch.testing.assert_close(outcome.loss, expected.item(), rtol=rtol, atol=atol)
        for mine, theirs in zip(bits(trainee.model), bits(plain), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)


def test_the_weighted_mean_differs_from_the_mean_of_the_micro_batches(group: Group) -> None:
    """Otherwise the test above would prove nothing."""
    (batch,) = padded(1)
    trainee = Trainee(group, with_totals)
    weighted = trainee.stepper.gradients(prepared(batch, (6, 6))).loss
    halves = slice(6), slice(6, 12)
    parts = [nn.functional.cross_entropy(net()(batch[0][half]), batch[1][half]).item() for half in halves]
    assert weighted != pytest.approx(sum(parts) / 2, rel=1e-3)


def test_a_rank_without_samples_adds_nothing_to_the_totals() -> None:
    """It takes part with a sample of another rank, which must not count twice."""
    part = part_of((torch.tensor(3.0), torch.tensor(7)), weight=0.0, samples=5)
    assert (part.seed, part.value, part.weight) == (0.0, 0.0, 0.0)


def test_a_step_of_padding_alone_has_no_gradients(group: Group) -> None:
    trainee = Trainee(group, with_totals)
    before = bits(trainee.model)
    ((inputs, labels),) = batches(1)
    outcome = trainee.stepper.gradients(prepared((inputs, torch.full_like(labels, IGNORED))))
    trainee.stepper.apply(outcome, 1.0)
    assert outcome.loss == 0.0
    assert all(map(torch.equal, bits(trainee.model), before))


def without_labels(count: int) -> Batch:
    """Return a batch with no label in its first samples."""
    ((inputs, labels),) = batches(1)
    labels[:count] = IGNORED
    return inputs, labels


@pytest.mark.parametrize("amp", ["off", "fp16"])
@pytest.mark.parametrize("sizes", [(6, 6), (1,) * 12], ids=["halves", "one-each"])
@pytest.mark.parametrize(
    "constant",
    [lambda pair: (0, 0), lambda pair: 0, lambda pair: torch.zeros(()), lambda pair: (pair[0].detach(), 0)],
    ids=["numbers", "a-number", "a-tensor", "weight-0"],
)
def test_a_loss_that_is_constant_for_some_samples_adds_zeros(
    group: Group, amp: str, sizes: Sequence[int], constant: Any
) -> None:
    def loss(model: nn.Module, batch: Batch) -> Any:
        pair = total_loss(model, batch)
        return pair if pair[1] else constant(pair)

    def build(model: nn.Module) -> dict[str, Any]:
        return {**with_totals(model), "loss": loss}

    for count in (6, SAMPLES):
        batch = without_labels(count)
        mine, usual = Trainee(group, build, amp=amp), Trainee(group, with_totals, amp=amp)
        for parts in (sizes, sizes[::-1]):
            losses = [each.stepper.gradients(prepared(batch, parts)) for each in (mine, usual)]
            assert losses[0].loss == losses[1].loss
            for each, outcome in zip((mine, usual), losses, strict=True):
                each.stepper.apply(outcome, 1.0)
            assert_same_bits(bits(mine.model), bits(usual.model))


def test_with_fp16_an_optimizer_without_gradients_in_a_step_changes_nothing(group: Group) -> None:
    def build(model: nn.Module) -> dict[str, Any]:
        optimizers = [torch.optim.Adam(layer.parameters()) for layer in (model[0], model[2])]  # type: ignore[index]
        return {
            "optimizer": optimizers,
            "loss": lambda model, batch: mean_loss(model[2], (torch.ones(12, 8), batch[1])),
        }

    trainee = Trainee(group, build, amp="fp16")
    before = bits(trainee.model)
    trainee.train(batches(2))
    same = list(map(torch.equal, bits(trainee.model), before))
    assert same == [True, True, False, False]


@pytest.mark.parametrize("sizes", [(12,), (6, 6), (3, 1, 8)])
def test_a_mean_over_no_labels_names_the_samples_and_the_remedy(group: Group, sizes: Sequence[int]) -> None:
    trainee = Trainee(group, lambda model: {**with_totals(model), "loss": mean_loss})
    with pytest.raises(Diverged, match=r"step 1 is nan, from the samples 0, 1, 2.* return a pair, the sum over"):
        trainee.train([without_labels(SAMPLES)], sizes=sizes)


def test_a_mean_that_is_not_a_number_does_not_count_for_a_rank_without_samples() -> None:
    part = part_of(torch.tensor(float("nan")), weight=0.0, samples=5)
    assert (part.value, part.weight) == (0.0, None)


def test_a_sum_that_is_not_a_number_stops_training(group: Group) -> None:
    trainee = Trainee(group, with_totals)
    ((inputs, labels),) = batches(1)
    with pytest.raises(Diverged, match="the loss of step 1 is nan"):
        trainee.stepper.gradients(prepared((inputs * float("nan"), labels)))


def test_the_weight_may_be_a_plain_number(group: Group) -> None:
    def loss(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, float]:
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum"), 2.0 * len(batch[0])

    trainee = Trainee(group, lambda model: {**with_totals(model), "loss": loss})
    (batch,) = batches(1)
    expected = nn.functional.cross_entropy(net()(batch[0]), batch[1]) / 2
    assert trainee.stepper.gradients(prepared(batch)).loss == pytest.approx(expected.item())


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (lambda loss: (loss, 1.0, 2.0), "returns 3 values: it must return one number, the mean .* or a pair"),
        (lambda loss: (loss, torch.ones(4)), r"shape \(4,\)"),
        (lambda loss: (loss.expand(3), 1.0), r"shape \(3,\)"),
        (lambda loss: [loss, 1.0], "returns a list: it must return"),
    ],
    ids=["three", "weights", "sums", "list"],
)
def test_another_result_is_refused_with_the_remedy(group: Group, returned: Any, named: str) -> None:
    trainee = Trainee(
        group, lambda model: {**with_totals(model), "loss": lambda model, batch: returned(total_loss(model, batch)[0])}
    )
    with pytest.raises(ConfigError, match=named):
        trainee.stepper.gradients(prepared(batches(1)[0]))
