"""The caller of a loop sees only shares: what fails in one step is handled before the next share is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tidewater.elastic.data.loader import Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import Diverged, GroupBroken
from tidewater.elastic.session.loop import Loop
from tidewater.elastic.session.session import Meeting, Share
from tidewater.elastic.session.step import Outcome
from tidewater.elastic.session.worker import Requests

TOTAL = 4
"""Steps of the job, which have one sample each."""


class Session:
    """A session with steps that fail as the test asks."""

    def __init__(self, *fails: Exception | None, everyone_knows: bool = False, differs: bool = False) -> None:
        self._fails, self._everyone_knows, self._differs = list(fails), everyone_knows, differs
        self.told: list[str] = []
        self.state = SimpleNamespace(
            cursor=Cursor(),
            step=0,
            micro_batch=1,
            evaluated=0,
            stopped=False,
            suspect=False,
            tensors=lambda: [torch.ones(3)],
        )
        self.worker: Any = SimpleNamespace(state=self.state, group=SimpleNamespace(device=torch.device("cpu")))
        self.config: Any = SimpleNamespace(
            epochs=1, max_steps=0, evaluate_every=0, compare_every=9, min_step_seconds=0.0, step_size=lambda size: 1
        )
        self.reports: Any = SimpleNamespace(meter=SimpleNamespace(start=lambda: None, last_step_at=0.0))
        self.change: Any = SimpleNamespace(goes_on=lambda: None)
        self.log: Any = None
        self.waiting_since: float | None = None

    def meet(self) -> Meeting | None:
        if "finished" in self.told:
            return None
        self.told.append("meets")
        return Meeting(0, 1, replaced=False, included=False)

    def update(self, share: Share, sums: Callable[[], Outcome], apply: Callable[[Outcome], float]) -> Outcome:
        error = self._fails.pop(0) if self._fails else None
        if error:
            raise error
        self.told.append(f"step {share.samples[0]}")
        self.state.step, self.state.cursor = self.state.step + 1, share.after
        return Outcome(0.5, self._everyone_knows, {})

    def exchange(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of this rank and of another one, with another state at the first time if the test asks."""
        other = [each + self._differs for each in row]
        self._differs = False
        return [list(row), other]

    def give_up(self, error: GroupBroken) -> None:
        self.told.append(f"gives up: {error}")

    def finish(self) -> None:
        self.told.append("finished")

    def pause(self, until: float) -> None:
        pass

    def confirm(self) -> None:
        pass

    def check(self) -> None:
        pass

    def knows(self) -> bool:
        return False

    def is_overdue(self) -> bool:
        return False


class Loader:
    """Gives the steps from a place on."""

    def start(self, place: Any) -> None:
        self._next = place.cursor.offset

    def next(self) -> Prepared:
        self._next += 1
        after = Cursor(0, self._next) if self._next < TOTAL else Cursor(1, 0)
        return Prepared(Step((self._next - 1,), after), ())


def trained(session: Any) -> list[str]:
    material: Any = SimpleNamespace(
        training=SimpleNamespace(score=None), loader=Loader(), stepper=None, total=TOTAL, requests=Requests()
    )
    loop = Loop(session, material)
    for prepared in loop.steps():
        loop.make(prepared)
    return list(session.told)


def test_every_step_is_made_once_and_then_the_job_is_finished() -> None:
    assert trained(Session()) == ["meets", "step 0", "step 1", "step 2", "step 3", "finished"]


def test_a_step_in_which_a_peer_is_lost_is_given_again_in_the_next_generation() -> None:
    told = trained(Session(None, GroupBroken("lost b"), GroupBroken("lost c")))
    lost = ["gives up: lost b", "meets", "gives up: lost c", "meets"]
    assert told == ["meets", "step 0", *lost, "step 1", "step 2", "step 3", "finished"]


def test_states_that_differ_after_the_last_step_are_repaired_before_the_job_is_finished() -> None:
    session = Session(differs=True)
    differ = ["gives up: the states of the workers differ", "meets"]
    assert trained(session) == ["meets", "step 0", "step 1", "step 2", "step 3", *differ, "finished"]
    assert session.state.suspect


def test_when_all_ranks_know_of_the_next_generation_they_leave_this_one_after_the_step() -> None:
    told = trained(Session(everyone_knows=True))
    assert told == ["meets", "step 0", "meets", "step 1", "meets", "step 2", "meets", "step 3", "meets", "finished"]


def test_what_no_next_generation_can_repair_ends_the_loop() -> None:
    with pytest.raises(Diverged):
        trained(Session(None, Diverged("the loss is nan")))
