"""What becomes of a worker's minibatches when the state of another one replaces its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from elasticdl.api import controller as controller_module
from elasticdl.api.agreement import Row
from elasticdl.api.assembly import JOB_ARGS, MASTER_ADDR
from elasticdl.api.controller import ElasticController, Every, _numbers, advance, create_elastic_controller
from elasticdl.api.optimizer import FixedBatchOptimizer
from elasticdl.api.shards import Data
from elasticdl.errors import ElasticDLError
from elasticdl.job import JobArgs
from elasticdl.rpc import elasticdl_pb2 as pb

from packages.elasticdl.tests.api.test_shards import Tasks, opened, task
from tidewater.contract import env
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.session.step import Outcome
from tidewater.elastic.session.worker import Meeting
from tidewater.elastic.training import Learner

TOGETHER = Meeting(0, 1, replaced=False, included=False, generation=1)


class Session:
    """A worker alone, which is cut off as a test wishes."""

    is_leaving = False

    def __init__(self, model: torch.nn.Module) -> None:
        group = SimpleNamespace(device=torch.device("cpu"), rank=0, size=1, uuid=17)
        state = SimpleNamespace(step=0, optimizers=SimpleNamespace(step=lambda factor: 0.1))
        self.worker: Any = SimpleNamespace(training=SimpleNamespace(model=model), group=group, state=state)
        self.config = SimpleNamespace(seed=0)
        self.meetings = [TOGETHER]
        self.breaks_at = ""
        """Where it is cut off: ``exchange`` or ``update``; for the second time, it meets the others again there."""
        self.enough = True
        """Whether the others are there, as many as the job needs at least."""

    def meet(self, nothing_left: Callable[[], bool]) -> Meeting:
        assert self.enough or nothing_left(), "it waits for other workers, and none comes"
        return self.meetings.pop(0)

    def exchange(self, row: Any) -> list[list[float]]:
        self._reach("exchange")
        return [list(row)]

    def summed(self, *_: object) -> Outcome:
        self._reach("update")
        return Outcome(0.5, everyone_knows=False, buffers={})

    def applied(self, *_: object) -> None:
        self.worker.state.step += 1

    def _reach(self, place: str) -> None:
        if place == self.breaks_at:
            self.breaks_at = ""
            raise GroupBroken("cut off")

    def give_up(self, error: GroupBroken) -> None:
        pass

    def pause(self, until: float) -> None:
        pass

    def knows(self) -> bool:
        return False

    def is_overdue(self) -> bool:
        return False


class Script:
    """A script with four records in a minibatch, two minibatches in an update, and one minibatch in a shard."""

    def __init__(self) -> None:
        model = torch.nn.Linear(1, 1)
        optimizer = FixedBatchOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        self.session = Session(model)
        self.service, self.master = opened(*(task(number, 4 * number - 4, 4 * number) for number in range(1, 9)))
        session: Any = self.session
        self.controller = ElasticController(session, self.service, optimizer, Every(minibatches=2))

        def pass_() -> None:
            torch.autograd.backward(model(torch.ones(4, 1)).mean())
            optimizer.step()

        self.optimized = pass_
        self._train = self.controller.elastic_run(pass_)

    def train(self) -> None:
        """Train one minibatch."""
        next(iter(self.controller.batch_sampler))
        self._train()


def cut_off(script: Script, at: str, met: Meeting) -> Tasks:
    """Cut the worker off in an update or in the exchange after the next minibatch, and let it meet the others."""
    script.session.breaks_at, script.session.meetings = at, [met]
    script.train()
    script.controller._agree()
    return script.master


@pytest.fixture
def script() -> Script:
    """Return a script that has made one update, and half of the next one's minibatches."""
    made = Script()
    for _ in range(3):
        made.train()
    assert made.controller.step == 1
    assert [number for number, _ in made.master.reported] == [1, 2]
    return made


def test_after_a_failure_a_worker_keeps_what_it_has_collected(script: Script) -> None:
    master = cut_off(script, "update", TOGETHER)
    script.controller._agree()
    assert script.controller.step == 2
    assert [number for number, _ in master.reported] == [1, 2, 3, 4]


def test_what_the_others_have_applied_counts(script: Script) -> None:
    cut_off(script, "update", Meeting(0, 1, replaced=True, included=True, generation=2))
    script.controller._agree()
    assert [number for number, _ in script.master.reported] == [1, 2, 3, 4]


@pytest.mark.parametrize("included", [True, False], ids=["the-last-update-counts", "nor-does-the-last-update"])
def test_what_was_in_no_update_is_given_back_when_the_others_went_on(included: bool, script: Script) -> None:
    master = cut_off(script, "exchange", Meeting(0, 1, replaced=True, included=included, generation=2))
    assert [number for number, _ in master.reported] == [1, 2]
    assert not {3, 4} & set(master.held)


@pytest.mark.parametrize("shards", [8, 9], ids=["all-shards-are-done", "a-shard-is-with-another-worker"])
def test_only_at_the_end_of_the_data_a_worker_needs_no_others(shards: int, script: Script) -> None:
    for _ in range(5):
        script.train()
    script.controller._agree()
    script.master.tasks = shards
    script.session.enough = False
    script.session.breaks_at, script.session.meetings = "exchange", [TOGETHER]
    script.controller._agree()
    with nullcontext() if shards == 8 else pytest.raises(AssertionError, match="none comes"):
        script.controller._agree()


def test_a_script_ends_the_training_of_all_and_the_master_is_told(script: Script) -> None:
    train, given = script.controller.elastic_run(script.optimized), list[Any]()
    for keys in script.controller.batches(script.controller.batch_sampler):
        train()
        given.append(keys)
        if script.controller.step == 2:
            script.controller.stop()
    assert len(given) <= 3, "the update under way is the last one"
    assert script.controller.step == 2
    assert (script.master.held, script.master.ends) == ((), [True]), "at once: the script may store its model next"
    script.controller.end()
    assert script.master.ends == [True]


def test_a_worker_ends_when_another_one_has_said_that_it_is_enough(script: Script) -> None:
    session: Any = script.session
    session.exchange = lambda row: [list(row), _numbers(Row(enough=True))]
    train = script.controller.elastic_run(script.optimized)
    assert len([train() for _ in script.controller.batches(script.controller.batch_sampler)]) == 1
    assert script.master.ends == [True]


def test_a_loop_that_ends_before_the_job_is_told_and_one_that_ends_with_it_is_not(script: Script) -> None:
    script.controller.end()
    assert (script.master.held, script.master.ends) == ((), [False])
    finished = Script()
    finished.master.left = [pb.Task(type=pb.STOP)]
    assert list(finished.controller.batches(finished.controller.batch_sampler)) == []
    finished.controller.end()
    assert finished.master.ends == []


def test_an_end_that_can_not_be_reported_is_no_failure(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    def away(*, everyone: bool) -> None:
        raise ElasticDLError("the master has not answered for 300 s")

    script.master.ended = away  # type: ignore[method-assign]
    script.controller.end()
    assert "the master has not answered for 300 s" in caplog.text


class Opened(Tasks):
    """Also the connection to the master."""

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "ends"), [(0, [True]), (None, [True]), (3, []), ("a message", [])], ids=["0", "none", "error", "message"]
)
def test_a_loop_that_ends_with_the_process_is_reported_unless_it_has_failed(
    code: int | str | None, ends: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    master = Opened()

    @contextmanager
    def opened_script(_: object, learner: Learner) -> Iterator[Session]:
        yield Session(learner.model)

    monkeypatch.setattr(controller_module, "ScriptMaster", lambda *_, **__: master)
    monkeypatch.setattr(controller_module, "open_script", opened_script)
    for name in (MASTER_ADDR, env.ETCD):
        monkeypatch.setenv(name, "127.0.0.1:1")
    monkeypatch.setenv(JOB_ARGS, JobArgs(job_name="small").to_json())
    model = torch.nn.Linear(1, 1)
    optimizer = FixedBatchOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    def script() -> None:
        with create_elastic_controller(Data(100), model, optimizer) as controller:
            controller.stop()
            sys.exit(code)

    with pytest.raises(SystemExit) as ended:
        script()
    assert (ended.value.code, master.ends) == (code, ends)


def test_the_master_learns_with_how_many_updates_a_worker_begins_and_with_which_one_a_shard_was_final(
    script: Script,
) -> None:
    assert script.master.begun_from == [(0, 1)]
    assert script.master.versions == [1, 1]


def test_a_worker_without_the_trained_model_does_not_go_on_after_the_end() -> None:
    late = Script()
    late.master.left, late.master.versions = [pb.Task(type=pb.STOP)], [40]
    with pytest.raises(ElasticDLError, match="a model of 40 updates, and this worker begins with 0"):
        list(late.controller.batches(late.controller.batch_sampler))


def test_an_epoch_ends_when_as_many_records_as_there_are_were_in_updates() -> None:
    script, epochs = Script(), list[tuple[int, int]]()
    for _ in range(8):
        script.train()
        epochs.append((script.controller.step, script.controller.get_current_epoch()))
    assert sorted(set(epochs)) == [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2)]


def test_a_scheduler_of_epochs_is_stepped_once_for_each_also_if_an_update_is_told_twice() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    rates = []
    for epoch in (0, 0, 1, 1, 3):
        optimizer.step()
        advance(scheduler, epoch)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.125]
