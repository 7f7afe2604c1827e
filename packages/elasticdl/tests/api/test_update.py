"""The buffers of a script's model after an update: combined in their own types, and the same in all workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from elasticdl.api.update import Contribution, Updates
from torch import nn

from tests.elastic.buffers.together import all_at_once, ranks

MINIBATCHES = (torch.ones(3, 1), torch.full((1, 1), 5.0))
"""Of one worker each. They are the whole global batch."""


class Model(nn.Module):
    """A linear layer with buffers of all kinds."""

    seen: torch.Tensor
    used: torch.Tensor
    center: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.register_buffer("mask", torch.tensor([-float("inf"), 0.0]))
        self.register_buffer("rotary", torch.tensor([1.0 + 2.0j]))
        self.register_buffer("offsets", torch.tensor([2**24 + 1, 2**60 + 1]), persistent=False)
        self.register_buffer("seen", torch.tensor(2**53 + 1))
        self.register_buffer("used", torch.tensor([False, False]))
        self.register_buffer("center", torch.tensor([0.0j]))

    def forward(self, inputs: torch.Tensor) -> Any:
        self.seen += len(inputs)
        self.used[int(len(inputs) == 1)] = True
        self.center = self.center * 0.5 + inputs.mean() * 1j
        return self.linear(inputs).mean()


class Worker:
    """The updates of one worker, with the real group above sums in memory."""

    def __init__(self, group: Any) -> None:
        torch.manual_seed(0)
        self.model = Model()
        state = SimpleNamespace(step=0, optimizers=SimpleNamespace(step=lambda factor: 0.1))
        self.worker = SimpleNamespace(training=SimpleNamespace(model=self.model), group=group, state=state)
        self.config = SimpleNamespace(seed=0)
        session: Any = self
        self.updates = Updates(session)

    def summed(self, share: Any, sums: Any) -> Any:
        return sums()

    def applied(self, *_: object) -> None:
        pass

    def train(self, *minibatches: torch.Tensor) -> None:
        """Collect the gradients of some minibatches, and make the update."""
        gradients: list[torch.Tensor | None] = [None, None]
        for minibatch in minibatches:
            with self.updates.passes():
                torch.autograd.backward(self.model(minibatch))
            gradients = [parameter.grad for parameter in self.model.parameters()]
        records = sum(map(len, minibatches))
        self.updates.make(Contribution(gradients, 0.0, records, total=4, whole=4))


def test_two_workers_have_the_buffers_of_all_records() -> None:
    _, groups = ranks(2)
    workers = [Worker(group) for group in groups]
    all_at_once(lambda rank: workers[rank].train(MINIBATCHES[rank]), 2)
    for worker in workers:
        found = dict(worker.model.named_buffers())
        assert torch.equal(found["mask"], torch.tensor([-float("inf"), 0.0]))
        assert torch.equal(found["rotary"], torch.tensor([1.0 + 2.0j]))
        assert found["offsets"].tolist() == [2**24 + 1, 2**60 + 1]
        assert int(found["seen"]) == 2**53 + 5
        assert found["used"].tolist() == [True, True]
        assert found["center"].tolist() == [2j]


def test_several_minibatches_of_a_worker_continue_from_each_other_and_one_without_records_gets_the_result() -> None:
    _, groups = ranks(2)
    workers = [Worker(group) for group in groups]
    for _ in range(2):
        all_at_once(lambda rank: workers[rank].train(*(() if rank else MINIBATCHES)), 2)
    for worker in workers:
        assert int(worker.model.seen) == 2**53 + 9
        assert worker.model.center.tolist() == [((5.5 * 0.5 + 1) * 0.5 + 5) * 1j]


def test_between_minibatches_the_model_has_the_buffers_of_the_last_update() -> None:
    """What a newcomer gets or a checkpoint contains must not have a part of the next update."""
    worker = Worker(ranks(1)[1][0])
    with worker.updates.passes():
        worker.model(MINIBATCHES[0])
    assert int(worker.model.seen) == 2**53 + 1
    worker.updates.forget()
    worker.train(MINIBATCHES[1])
    assert int(worker.model.seen) == 2**53 + 2


def test_what_a_minibatch_that_fails_has_changed_in_buffers_is_undone() -> None:
    _, (group,) = ranks(1)
    worker = Worker(group)
    for seen in (0, 3):  # without a minibatch before it, and after one
        with pytest.raises(KeyError), worker.updates.passes():  # noqa: PT012
            worker.model(torch.ones(2, 1))
            raise KeyError
        assert int(worker.model.seen) == 2**53 + 1
        with worker.updates.passes():
            assert int(worker.model.seen) == 2**53 + 1 + seen
            worker.model(torch.ones(3, 1))
