"""The caller of a loop sees only shares: what fails in one step is handled before the next share is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch

from tidewater.elastic.data.loader import Prepared
from tidewater.elastic.data.sampler import Cursor, Step
from tidewater.elastic.errors import BadSamples, ConfigError, Diverged, GroupBroken
from tidewater.elastic.session import loop as loop_module
from tidewater.elastic.session.loop import Loop
from tidewater.elastic.session.step import Outcome, Vote
from tidewater.elastic.session.worker import Meeting, Requests, Share

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
            applied_in=0,
            micro_batch=1,
            evaluated=0,
            stopped=False,
            suspect=False,
            tensors=lambda: [torch.ones(3)],
        )
        self.others_skip: set[int] = set()
        group = SimpleNamespace(
            device=torch.device("cpu"),
            gather=self.gather,
            interrupt=self.told.append,
            confirm=lambda: self.told.append("all have read the sums"),
        )
        self.worker: Any = SimpleNamespace(state=self.state, group=group)
        self.config: Any = SimpleNamespace(
            epochs=1, max_steps=0, evaluate_every=0, compare_every=9, min_step_seconds=0.0, step_size=lambda size: 1
        )
        self.config.sync_every = None
        self.config.lr_factor = lambda size: 1.0
        self.config.bad_samples, self.config.max_bad_samples, self.config.seed = "stop", 2, 0
        self.reports: Any = SimpleNamespace(
            meter=SimpleNamespace(start=lambda: None, last_step_at=0.0), save_after=0, is_time_to_save=lambda: False
        )
        self.stragglers = SimpleNamespace(work_seconds=0.0)
        self.change: Any = SimpleNamespace(goes_on=lambda: None)
        self.log: Any = SimpleNamespace(event=self.event)
        self.waiting_since: float | None = None
        self.confirmed: list[int] = []
        """The steps that were made final by a sum of their own."""

    def meet(self) -> Meeting | None:
        if "finished" in self.told:
            return None
        self.told.append("meets")
        return Meeting(0, 1, replaced=False, included=False, generation=1)

    def summed(self, share: Share, sums: Callable[[], Outcome]) -> Outcome:
        error = self._fails.pop(0) if self._fails else None
        if error:
            raise error
        return Outcome(0.5, self._everyone_knows, {})

    def applied(self, share: Share, outcome: Outcome, lr: float) -> None:
        self.told.append(f"step {share.samples[0]}")
        self.state.step, self.state.cursor = self.state.step + 1, share.after

    def together(self, call: Callable[[], Any]) -> Any:
        return call()

    def any_of(self, flag: bool) -> bool:
        return flag

    def exchange(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of this rank and of another one, with another state at the first time if the test asks."""
        other = [each + self._differs for each in row]
        self._differs = False
        return [list(row), other]

    def gather(self, data: bytes) -> list[bytes]:
        """Return what this rank and another one know."""
        return [data, json.dumps([sorted(self.others_skip), []]).encode()]

    def event(self, name: str, **fields: object) -> None:
        self.told.append(f"{name} {fields['sample']}")

    def give_up(self, error: GroupBroken) -> None:
        self.told.append(f"gives up: {error}")

    def finish(self) -> None:
        self.told.append("finished")

    def pause(self, until: float) -> None:
        pass

    def confirm(self, *, before_a_step: bool = False) -> None:
        self.confirmed.append(self.state.step)

    def check(self) -> None:
        pass

    def knows(self) -> bool:
        return False

    def is_overdue(self) -> bool:
        return False


class Loader:
    """Gives the steps from a place on."""

    def __init__(self, bad: Mapping[int, str]) -> None:
        self._bad = bad

    def start(self, place: Any) -> None:
        self._next, self._skipped = place.cursor.offset, place.cursor.skipped

    def next(self) -> Prepared:
        while self._next in self._skipped:
            self._next += 1
        if self._next in self._bad:
            raise BadSamples({self._next: self._bad[self._next]})
        self._next += 1
        after = Cursor(0, self._next, skipped=self._skipped) if self._next < TOTAL else Cursor(1, 0)
        return Prepared(Step((self._next - 1,), after), ())


@pytest.fixture(autouse=True)
def without_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "rehearsals", lambda *_, **__: iter(()))


def trained(
    session: Any, bad: Mapping[int, str] = MappingProxyType({}), gradients: Callable[..., Outcome] | None = None
) -> list[str]:
    material: Any = SimpleNamespace(
        training=SimpleNamespace(score=None, schedule=lambda progress: progress),
        loader=Loader(bad),
        stepper=SimpleNamespace(apply=lambda outcome, factor: 0.1, gradients=gradients),
        total=TOTAL,
        requests=Requests(),
        own_loop=False,
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


def test_only_the_first_step_after_a_change_is_made_final_before_the_next_one() -> None:
    session = Session(None, None, GroupBroken("lost b"))
    trained(session)
    assert session.confirmed == [1, 3, TOTAL], "and the last one, before it is evaluated"


def test_a_first_step_that_is_to_be_compared_is_not_final_before_the_comparison() -> None:
    session = Session(None, GroupBroken("lost b"), None, GroupBroken("lost c"))
    session.config.compare_every = 2
    trained(session)
    assert session.confirmed == [1, 3, TOTAL], "step 2 is compared with the sums of step 3"


def test_states_that_differ_after_the_last_step_are_repaired_before_the_job_is_finished() -> None:
    session = Session(differs=True)
    differ = ["gives up: the states of the workers differ", "meets"]
    assert trained(session) == ["meets", "step 0", "step 1", "step 2", "step 3", *differ, "finished"]
    assert session.state.suspect


def test_when_all_ranks_know_of_the_next_generation_they_leave_this_one_after_the_step() -> None:
    told = trained(Session(everyone_knows=True))
    assert told == ["meets", "step 0", "meets", "step 1", "meets", "step 2", "meets", "step 3", "meets", "finished"]


def test_a_worker_votes_with_what_it_knows_when_its_part_of_the_step_is_done() -> None:
    """With --sync-every the passes take long. What happens meanwhile counts in this step, not in the next one."""
    session = Session()
    known: list[bool] = []

    def summed(share: Share, sums: Callable[[], Outcome]) -> Outcome:
        return sums()

    def gradients(prepared: Prepared, vote: Callable[[], Vote], **_: Any) -> Outcome:
        session.knows = lambda: True  # type: ignore[method-assign]
        known.append(vote().knows)
        return Outcome(0.5, False, {})

    session.summed = summed  # type: ignore[method-assign]
    trained(session, gradients=gradients)
    assert known == [True] * TOTAL


def test_what_no_next_generation_can_repair_ends_the_loop() -> None:
    with pytest.raises(Diverged):
        trained(Session(None, Diverged("the loss is nan")))


def test_a_sample_that_cannot_be_read_is_left_out_by_all_and_reported_once() -> None:
    session = Session()
    session.config.bad_samples = "skip"
    session.others_skip = {0}
    error = "sample 1 of the dataset: KeyError: 'boxes'"
    found = [error, f"gives up: {error}", "meets", "sample_skipped 1"]
    assert trained(session, {1: "KeyError: 'boxes'"}) == ["meets", *found, "step 2", "step 3", "finished"]


def test_a_sample_that_another_worker_has_reported_is_not_reported_again() -> None:
    """That one got it in a generation without this worker, which had found it before."""
    session = Session()
    session.config.bad_samples = "skip"
    give_up = session.give_up

    def found_by_another(error: GroupBroken) -> None:
        session.others_skip = {1}
        give_up(error)

    session.give_up = found_by_another  # type: ignore[method-assign]
    assert "sample_skipped 1" not in trained(session, {1: "KeyError: 'boxes'"})
    assert session.told[-3:] == ["step 2", "step 3", "finished"]


@pytest.mark.parametrize(
    ("skipped", "remedy"),
    [({1, 2, 3}, "repair them, or raise --max-bad-samples"), ({0, 1, 2, 3}, "is the data there")],
    ids=["many", "all"],
)
def test_more_samples_than_allowed_that_cannot_be_read_end_training_on_all_workers(
    skipped: set[int], remedy: str
) -> None:
    session = Session()
    session.config.bad_samples = "skip"
    session.others_skip = skipped
    named = rf"{len(skipped)} of 4 samples can't be read, and --max-bad-samples is 2: {remedy}"
    with pytest.raises(ConfigError, match=named):
        trained(session)
    assert session.told == ["meets", "all have read the sums"], "no worker ends while another one waits for its sums"


def test_without_skip_samples_that_a_checkpoint_leaves_out_are_tried_again() -> None:
    session = Session()
    session.state.cursor = Cursor(skipped=(1, 2))
    assert trained(session) == ["meets", "step 0", "step 1", "step 2", "step 3", "finished"]


def test_a_worker_that_others_leave_behind_during_its_inner_steps_gives_the_step_up() -> None:
    class Frozen(Session):
        def check(self) -> None:
            if "inner step 2" in self.told:
                raise GroupBroken("the others continued while this worker could not reach etcd")

        def summed(self, share: Share, sums: Callable[[], Outcome]) -> Outcome:
            return sums()

        def give_up(self, error: GroupBroken) -> None:
            self.told += [str(error), "finished"]

    session = Frozen()

    def gradients(prepared: Prepared, vote: Any, *, pace: Callable[[int, int], float], **_: Any) -> Outcome:
        for done in range(4):
            pace(done, 4)
            session.told.append(f"inner step {done + 1}")
        raise AssertionError("it made all inner steps")

    told = trained(session, gradients=gradients)
    assert told[1:4] == ["inner step 1", "inner step 2", "the others continued while this worker could not reach etcd"]


def test_a_worker_that_must_leave_gives_a_step_of_many_inner_steps_up() -> None:
    class Leaving(Session):
        def meet(self) -> Meeting | None:
            return None if self.is_overdue() else super().meet()

        def is_overdue(self) -> bool:
            return "inner step 2" in self.told

        def summed(self, share: Share, sums: Callable[[], Outcome]) -> Outcome:
            return sums()

    session, factors = Leaving(), list[float]()

    def gradients(prepared: Prepared, vote: Any, *, pace: Callable[[int, int], float], **_: Any) -> Outcome:
        for done in range(4):
            factors.append(pace(done, 4))
            session.told.append(f"inner step {done + 1}")
        raise AssertionError("it made all inner steps")

    told = trained(session, gradients=gradients)
    reason = "this worker was asked to leave, and the step takes too long"
    assert told == ["meets", "inner step 1", "inner step 2", f"gives up: {reason}"]
    assert factors == [0.0, 0.25]
