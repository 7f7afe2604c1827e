"""Whatever happens in whatever order: every task of every epoch is counted exactly once, or named as left out.

Workers join, ask, report, fail, give back, die and come back; answers get lost; time passes; the master is killed and
goes on from what it has saved. At the end one worker does what is left, and the job ends.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import pytest
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.decide import Action, decide
from elasticdl.master.tasks.plan import EXPORTS
from elasticdl.master.tasks.state import JobState, Rules, Stage, begin
from elasticdl.master.tasks.task_queue import Owner
from elasticdl.master.tasks.transitions import Outcome
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

NAMES = ("worker-0", "worker-1")
WORKERS = st.sampled_from(NAMES)
TASKS = range(1, 13)


@dataclass
class Believer:
    """A process of a worker, and the tasks that it believes to have."""

    owner: Owner
    tasks: list[int] = field(default_factory=list)
    attends: bool = False


class AnyOrder(RuleBasedStateMachine):
    """The master's transitions against workers that misbehave."""

    @initialize(evaluates=st.booleans(), max_step=st.none() | st.integers(60, 600))
    def start(self, evaluates: bool, max_step: int | None) -> None:
        self.of_job = Rules(
            servers=2,
            evaluation_steps=20,
            evaluation_tasks=2 if evaluates else 0,
            checkpoint_steps=30,
            max_step=max_step,
            exports=True,
            goes_on_without=True,
        )
        self.state = self.saved = begin(self.of_job, TASKS, plan="plan")
        self.now, self.version, self.processes = 0.0, 0, 0
        self.workers: dict[str, Believer] = {}
        self.counted: Counter[int] = Counter()
        for name in NAMES:
            self.join(name)

    def commit(self, state: JobState) -> None:
        self.state = self.saved = state

    @rule(name=WORKERS)
    def join(self, name: str) -> None:
        """Start a process under a worker's name, also while the master still counts the one before it as alive."""
        self.processes += 1
        self.workers[name] = Believer(Owner(name, f"p{self.processes}"), attends=True)
        self.state = transitions.attend(self.state, self.of_job, self.workers[name].owner, [], now=self.now)

    @rule(name=WORKERS, arrives=st.booleans())
    def ask(self, name: str, arrives: bool) -> None:
        worker = self.workers.get(name)
        if not worker or not worker.attends:
            return
        state, task = transitions.hand_out(self.state, worker.owner, now=self.now, holding=set(worker.tasks))
        self.commit(state)
        if task is not None and arrives:
            worker.tasks.append(task)

    @rule(name=WORKERS, how=st.sampled_from(["done", "done", "done", "failed", "back"]), arrives=st.booleans())
    def report(self, name: str, how: str, arrives: bool) -> None:
        worker = self.workers.get(name)
        if worker and worker.tasks:
            counted = self.told(worker, worker.tasks[0], how)
            if not arrives and how == "done":  # the answer is lost: the worker says it again, and hears the same
                assert self.told(worker, worker.tasks[0], how, again=True) == counted
            worker.tasks.pop(0)

    def told(self, worker: Believer, task: int, how: str, *, again: bool = False) -> bool:
        outcome = Outcome(
            task=task,
            owner=worker.owner,
            records=1,
            error="it failed" if how == "failed" else "",
            given_back=how == "back",
        )
        state, counted = transitions.report(self.state, self.of_job, outcome, now=self.now)
        self.commit(state)
        if counted and how == "done" and not again:
            self.counted[task] += 1
        return counted

    @rule(name=WORKERS)
    def die(self, name: str) -> None:
        worker = self.workers.pop(name, None)
        if worker:
            self.state = transitions.lost(self.state, self.of_job, worker.owner)

    @rule(name=WORKERS, how=st.sampled_from(["done", "failed"]))
    def work(self, name: str, how: str) -> None:
        """Do a task from its beginning to its end."""
        self.ask(name, arrives=True)
        self.report(name, how=how, arrives=True)

    @rule(name=WORKERS)
    def lose_the_stream(self, name: str) -> None:
        """Take a worker for dead that lives and goes on working."""
        worker = self.workers.get(name)
        if worker:
            worker.attends = False
            self.state = transitions.lost(self.state, self.of_job, worker.owner)

    @rule(name=WORKERS)
    def attend_again(self, name: str) -> None:
        worker = self.workers.get(name)
        if worker:
            worker.attends = True
            self.state = transitions.attend(self.state, self.of_job, worker.owner, worker.tasks, now=self.now)

    @rule(seconds=st.sampled_from([1.0, 200.0, 400.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        self.state, _ = transitions.expire(self.state, self.of_job, now=self.now)

    @rule(steps=st.integers(-15, 30))
    def reach_a_version(self, steps: int) -> None:
        self.version = max(0, self.version + steps)
        self.commit(transitions.reached(self.state, self.of_job, self.version))

    @rule()
    def kill_the_master(self) -> None:
        """Go on from the record, with the workers that come back; the others' tasks are to do again."""
        self.now = 1_000_000.0 - self.now  # another clock
        self.state = JobState.from_fields(json.loads(json.dumps(self.saved.to_fields())), now=self.now)
        for worker in self.workers.values():
            self.attend_again(worker.owner.worker)
        present = {worker.owner for worker in self.workers.values()}
        self.state = transitions.lost_all_but(self.state, self.of_job, present)

    @precondition(lambda self: decide(self.state, self.of_job) is not Action.WAIT)
    @rule()
    def act(self) -> None:
        state, rules = self.state, self.of_job
        match decide(state, rules):
            case Action.TAKE_SNAPSHOT:
                state = transitions.snapshot_taken(state, rules, self.version, ("s0", "s1"))
            case Action.CONCLUDE:
                state = transitions.evaluation_concluded(state, rules)
            case Action.SAVE:
                state = transitions.saved(state, rules, state.version)
            case Action.FLUSH:
                state = transitions.flushed(state, rules, self.version)
            case _:
                return
        self.commit(state)

    @precondition(lambda self: self.state.evaluation is not None)
    @rule()
    def lose_the_snapshot(self) -> None:
        self.commit(transitions.evaluation_begun_anew(self.state, self.of_job))

    @invariant()
    def no_task_is_counted_twice_and_the_queue_knows_those_that_were(self) -> None:
        if not hasattr(self, "state"):
            return
        assert all(count == 1 for count in self.counted.values()), self.counted
        counted = sorted(task for task in self.counted if task in TASKS)
        assert self.state.work.done_tasks() == counted
        assert self.state.work.done == len(counted)
        assert self.state.records == len(counted)

    def teardown(self) -> None:
        """Let one worker do what is left: the job ends, and nothing is missing."""
        if not hasattr(self, "state"):
            return
        for name in list(self.workers):
            self.die(name)
        self.join("worker-0")
        for _ in range(500):
            if self.state.ended:
                break
            while decide(self.state, self.of_job) not in (Action.WAIT, Action.END):
                self.act()
            self.ask("worker-0", arrives=True)
            self.report("worker-0", how="done", arrives=True)
        self.no_task_is_counted_twice_and_the_queue_knows_those_that_were()
        done, left_out = set(self.state.work.done_tasks()), set(self.state.work.left_out)
        assert not done & left_out
        never = set(range(self.state.work.end, TASKS.stop))  # cancelled before a worker had them
        assert done | left_out | never == set(TASKS)
        assert self.state.ended
        assert bool(never) <= bool(self.state.stopped)
        if self.state.stage is Stage.DONE:
            assert self.counted[EXPORTS] == 1
        else:  # only if not one task was done, or no worker could write the model
            assert not done or self.state.export.left_out


class Longer(AnyOrder):
    """The same with more examples and longer ones."""


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=100, stateful_step_count=50)
TestLonger = pytest.mark.soak(Longer.TestCase)
TestLonger.settings = settings(max_examples=3000, stateful_step_count=150)
