"""Several workers that make inner steps reach what synchronous ones reach, and send a fraction of the bytes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tests.elastic.alone import stepper_of
from tests.elastic.buffers.together import all_at_once, ranks
from tidewater.elastic.data.loader import Micro, Place, Prepared, requests_of
from tidewater.elastic.data.sampler import plan
from tidewater.elastic.session.state import State
from tidewater.elastic.session.step import Stepper

TOTAL, BATCH, FEATURES, CLASSES, SEED = 1024, 16, 20, 4, 1
ROUNDING = 2e-6
"""Of a parameter, relative to the largest, after an epoch of 64 steps."""
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


@dataclass(frozen=True)
class Result:
    model: nn.Module
    sent: int
    """Bytes that a worker has given to the sums."""

    @property
    def loss(self) -> float:
        with torch.no_grad():
            return float(nn.functional.cross_entropy(self.model(INPUTS), LABELS))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of overlapping classes: their loss does not go to 0."""
    draw = torch.Generator().manual_seed(SEED)
    labels = torch.randint(CLASSES, (TOTAL,), generator=draw)
    centres = torch.randn(CLASSES, FEATURES, generator=draw)
    return 0.6 * centres[labels] + torch.randn(TOTAL, FEATURES, generator=draw), labels


INPUTS, LABELS = data()


def network() -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))


def loss(model: nn.Module, samples: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(INPUTS[samples]), LABELS[samples])


def trained(
    optimizer: Optimizer,
    phases: Sequence[tuple[int, int]],
    every: int | None = None,
    outer: tuple[float, float] | None = None,
    sum_dtype: torch.dtype | None = None,
) -> Result:
    """Train; a phase has so many workers for so many epochs. ``every`` is the number of inner steps in a step."""
    state: State | None = None
    sent, until = 0, 0
    for size, epochs in phases:
        wire, groups = ranks(size)
        made = [
            stepper_of(group, model := network(), loss, optimizer(model), outer=outer, sum_dtype=sum_dtype)
            for group in groups
        ]
        for _, each in made:
            if state is not None:
                each.load(copy.deepcopy(state.whole()))
        until += epochs
        all_at_once(functools.partial(_train, made, every=every, until=until), size)
        assert len({each.digest() for _, each in made}) == 1, "the workers' states differ"
        state, sent = made[0][1], sent + sum(wire.sent)
    assert state is not None
    return Result(state.model, sent)


def _train(made: Sequence[tuple[Stepper, State]], rank: int, *, every: int | None, until: int) -> None:
    (stepper, state), inner = made[rank], BATCH if every else 0
    while state.cursor.epoch < until:
        place = Place(state.cursor, rank, len(made), BATCH * (every or 1), until, inner=inner)
        step = plan(state.cursor, total=TOTAL, batch_size=place.batch_size, seed=SEED, inner=inner)
        requests = requests_of(step, state.cursor.epoch, place, 0)
        micro = (Micro(torch.tensor(each.samples), each.weight, len(each.samples)) for each in requests)
        stepper.apply(stepper.gradients(Prepared(step, tuple(micro))), 1.0)
        state.advance(step.after, 1)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    with torch.no_grad():
        pairs = list(zip(one.parameters(), other.parameters(), strict=True))
        return max(float((mine - its).abs().max() / its.abs().max()) for mine, its in pairs)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_one_inner_step_and_the_plain_mean_are_synchronous_sgd(size: int) -> None:
    synchronous = trained(sgd, [(size, 1)])
    local = trained(sgd, [(size, 1)], every=1, outer=(1.0, 0.0))
    assert largest_difference(local.model, synchronous.model) < ROUNDING


def test_sixteen_inner_steps_reach_the_loss_of_synchronous_steps_with_a_sixteenth_of_the_bytes() -> None:
    synchronous = trained(adamw, [(2, 12)])
    local = trained(adamw, [(2, 12)], every=16, outer=(0.7, 0.9))
    print(f"loss {local.loss:.4f}, synchronous {synchronous.loss:.4f}")
    assert local.loss < 1.02 * synchronous.loss
    assert synchronous.loss < 0.3 * Result(network(), 0).loss
    assert local.sent * 16 == synchronous.sent


def test_differences_in_bf16_halve_these_bytes_and_reach_the_same_loss() -> None:
    wide, narrow = (
        trained(adamw, [(2, 12)], every=16, outer=(0.7, 0.9), sum_dtype=each) for each in (None, torch.bfloat16)
    )
    parameters = sum(each.numel() for each in narrow.model.parameters())
    steps = 12 * TOTAL // BATCH // 16
    assert wide.sent - narrow.sent == 2 * parameters * steps
    assert narrow.loss == pytest.approx(wide.loss, rel=0.02)


def test_so_do_they_with_workers_that_come_and_go() -> None:
    synchronous = trained(adamw, [(2, 12)])
    local = trained(adamw, [(2, 3), (3, 3), (1, 2), (4, 4)], every=16, outer=(0.7, 0.9))
    print(f"loss {local.loss:.4f}, synchronous {synchronous.loss:.4f}")
    assert local.loss < 1.02 * synchronous.loss
