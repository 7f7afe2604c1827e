"""How a group of NCCL is formed again. Run with gloo, which has the same API of torch for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.elastic.alone import form_alone, opened_alone
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.group import backend, nccl
from tidewater.elastic.group.group import Group
from tidewater.elastic.group.rendezvous import MeetingStore


class OnCpus(nccl.Nccl):
    """Works of gloo need no event, and it has no error state."""

    name = "gloo"

    def _library_options(self) -> None: ...

    def _mark(self) -> Any:
        return self

    def _small_kernel(self) -> Any:
        return self

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 0.0

    def error(self) -> str:
        return ""


class Reconfigured(OnCpus, nccl.Reconfigured):
    pass


class Restarted(OnCpus, nccl.Restarted):
    pass


@pytest.fixture(params=[Reconfigured, Restarted])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    yield from opened_alone(lambda *_: Group(request.param(torch.device("cpu"), 20.0)))


def form(group: Group) -> Any:
    """Return torch's group."""
    form_alone(group)
    assert group.tally([7.0]) == [7.0]
    return group._backend.pg


def test_a_group_is_formed_again_after_a_planned_change_and_after_an_abort(group: Group) -> None:
    form(group)
    form(group)
    group.interrupt("lost b")
    form(group)


@pytest.mark.parametrize("group", [Reconfigured], indirect=True)
def test_a_group_that_torch_refuses_to_reconfigure_is_made_anew(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    first = form(group)
    assert form(group) is first

    def refuse(*_: object) -> None:
        raise RuntimeError("ProcessGroupNCCL has been finalized")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "reconfigure", refuse)
        with pytest.raises(GroupBroken, match="has been finalized"):
            form(group)
    second = form(group)
    assert second is not first
    assert form(group) is second


@pytest.mark.parametrize("group", [Reconfigured], indirect=True)
def test_a_rendezvous_that_fails_keeps_the_group(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    first = form(group)

    def lost(*_: object) -> bytes:
        raise GroupBroken("lost b")

    with monkeypatch.context() as patch:
        patch.setattr(MeetingStore, "get", lost)
        with pytest.raises(GroupBroken, match="lost b"):
            form(group)
    assert form(group) is first
