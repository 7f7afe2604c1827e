"""Process groups of one rank, and a stepper in one, for tests of what a step does."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.utils.data import TensorDataset

from tidewater.elastic.addresses import Address
from tidewater.elastic.group.group import Group, open_group
from tidewater.elastic.session.state import State, kind_of
from tidewater.elastic.session.step import Stepper
from tidewater.elastic.training import Training


def opened_alone(open_: Callable[..., Group] = open_group) -> Iterator[Group]:
    """Yield a group that is not formed yet; close it at the end."""
    with pytest.MonkeyPatch.context() as environment:
        # Set here so that it is reset: `open_group` would leave it set for processes that other tests start.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setenv(name, "lo")
        group = open_("127.0.0.1", torch.device("cpu"), 60.0)
        yield group
        group.close()


def default_group_alone() -> Iterator[None]:
    """Make torch's default group, as a script does that divides a model; end it at the end."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def form_alone(group: Group) -> None:
    """Begin a new generation."""
    group.form(secrets.randbits(40), 0, (Address("127.0.0.1", 0),), time.monotonic() + 60)


def stepper_of(
    group: Group,
    model: nn.Module,
    loss: Any,
    optimizer: torch.optim.Optimizer,
    *,
    amp: str = "off",
    seed: int = 0,
    **more: Any,
) -> tuple[Stepper, State]:
    """Return a stepper for a model, and its state; the dataset is not used.

    ``more``: ``sum_dtype`` (see ``Stepper``), ``outer`` (see ``State``), and fields of ``Training``.
    """
    sum_dtype, outer = more.pop("sum_dtype", None), more.pop("outer", None)
    training = _training(model, loss, optimizer, **more)
    state = State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=amp == "fp16"), outer=outer)
    return Stepper(training, state, group, amp=amp, sum_dtype=sum_dtype, seed=seed), state


def state_of(model: nn.Module) -> State:
    """Return the state of a model that SGD trains."""
    training = _training(model, lambda model, batch: batch, torch.optim.SGD(model.parameters(), lr=0.1))
    return State(training, kind_of(model), torch.amp.GradScaler("cpu", enabled=False))


def _training(model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, **more: Any) -> Training:
    return Training(model=model, optimizer=optimizer, dataset=TensorDataset(torch.zeros(1)), loss=loss, **more)
