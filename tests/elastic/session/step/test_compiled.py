"""A compiled model is compiled before its worker joins: no change of the membership compiles it again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.data import TensorDataset

from tests.elastic.session.step.conftest import loss, warm_up
from tidewater.elastic.data.loader import Loader, LoaderSettings, Place
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.group.group import Group
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.evaluation import ROUND, Evaluation, Seat
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.session.step import Stepper
from tidewater.elastic.session.warmup import sizes
from tidewater.elastic.session.worker import Material, Worker
from tidewater.elastic.training import Training

TOTAL, BATCH, HELD_OUT = 70, 48, 130


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 6), nn.BatchNorm2d(4), nn.Flatten()),
        *(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 3)),
    )


def wrapped(backend: Any) -> tuple[nn.Module, Any]:
    return cast("nn.Module", torch.compile(network(), backend=backend)), loss


def in_place(backend: Any) -> tuple[nn.Module, Any]:
    model = network()
    model.compile(backend=backend)
    return model, loss


def in_the_loss(backend: Any) -> tuple[nn.Module, Any]:
    return network(), torch.compile(loss, backend=backend)


@pytest.fixture(params=[wrapped, in_place, in_the_loss])
def compiled(request: pytest.FixtureRequest) -> tuple[CompileCounter, nn.Module, Any]:
    """Return a counter of compilations, a model and a loss; the model or the loss is compiled."""
    counter = CompileCounter()
    return counter, *request.param(counter)


def images(samples: int) -> TensorDataset:
    return TensorDataset(torch.randn(samples, 1, 8, 8), torch.arange(samples) % 3)


def assembled(group: Group, model: nn.Module, given_loss: Any) -> tuple[Worker, Material]:
    training = Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=images(TOTAL),
        loss=given_loss,
        validation=images(HELD_OUT),
        score=lambda model, batch: given_loss(model, batch) * len(batch[1]),
    )
    state = State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))
    loader = Loader(
        training.dataset, LoaderSettings(0), collate=None, device=group.device, validation=training.validation
    )
    worker = SimpleNamespace(state=state, group=group, metrics=SimpleNamespace(evaluated=lambda seconds: None))
    material = Material(training, Stepper(training, state, group, amp="off"), loader, TOTAL)
    return cast("Worker", worker), material


def test_no_share_of_a_step_or_an_evaluation_compiles_after_the_warm_up(
    form: Callable[[], Group], compiled: tuple[CompileCounter, nn.Module, Any], quiet: Log
) -> None:
    counter, model, given_loss = compiled
    worker, material = assembled(form(), model, given_loss)
    warm_up(worker, material, quiet, most=BATCH)
    before = counter.frame_count
    assert before > 0
    for world in (1, 2, 3, 5):
        for rank in {0, world - 1}:
            cursor = Cursor()
            material.loader.start(Place(cursor, rank, world, BATCH, epochs=2))
            while cursor.epoch < 1:
                prepared = material.loader.next()  # the last step of the epoch is smaller
                material.stepper.apply(material.stepper.gradients(prepared), factor=1.0)
                cursor = prepared.step.after
        session: Any = SimpleNamespace(worker=worker, log=quiet, check=lambda: None)
        session.knows = session.is_overdue = lambda: False
        session.together, session.over_processes, session.decided = lambda call: call(), list, lambda value: value
        evaluation = Evaluation(session, material)
        evaluation.begin(Seat(0, 1))
        evaluation.measure()
        assert evaluation.finish()
    assert counter.frame_count == before


def test_sizes_up_to_the_largest_are_tried() -> None:
    assert list(sizes(1)) == [1]
    assert list(sizes(8)) == [1, 2, 4, 8]
    assert list(sizes(ROUND + 6)) == [1, 2, 4, 8, 16, 32, 64, 70]


def test_a_state_is_the_same_for_a_wrapped_model_and_the_plain_one() -> None:
    def state_of(model: nn.Module) -> State:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        training = Training(model=model, optimizer=optimizer, dataset=images(1), loss=loss)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()  # so that it has moments, which are stored by the names of parameters
        return State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))

    inside = network()
    inside[3] = torch.compile(inside[3])  # type: ignore[index, operator]
    recomputed, both = network(), network()
    recomputed[1] = checkpoint_wrapper(recomputed[1])  # type: ignore[index, operator]
    both[1] = torch.compile(checkpoint_wrapper(both[1]))  # type: ignore[index, operator]
    models = (network(), cast("nn.Module", torch.compile(network())), inside, recomputed, both)
    plain, *others = map(state_of, models)
    for other in others:
        assert other.kind == plain.kind
        assert list(other.tree()["model"]) == list(plain.tree()["model"])
        for source, target in ((plain, other), (other, plain)):
            with torch.no_grad():
                next(source.model.parameters()).add_(1.0)
            target.load(source.tree())
            assert target.digest() == source.digest()
